#include "cli/kubernetes/serve/http.h"

#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstring>

#include "cli/kubernetes/sockets/unix_path.h"
#include "core/base/option_check.h"

namespace vrdma::cli::kubernetes {

namespace {

constexpr size_t kMaxRequest = 8192;
constexpr size_t kMaxClients = 16;
constexpr auto kPatience = std::chrono::seconds(5);
constexpr std::string_view kUnix = "unix:";

struct Place {
  sockaddr_storage address{};
  socklen_t size = 0;
  std::string path;  // of a unix socket; then there is no address
};

base::Result<Place> parse(const std::string& text) {
  const auto invalid = base::fail(
      EINVAL, base::in_quotes(text) + " is not unix:PATH, ADDRESS:PORT or [ADDRESS]:PORT");
  Place place;
  if (text.starts_with(kUnix)) {
    place.path = text.substr(kUnix.size());
    const auto valid = check_path(place.path);
    return valid ? base::Result<Place>(place) : base::pass(valid.error());
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return invalid;
  std::string host = text.substr(0, colon);
  const bool brackets = host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  uint16_t port = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + colon + 1, last, port);
  if (error != std::errc() || end != last || port == 0) return invalid;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_family = brackets ? AF_INET6 : AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    return invalid;
  std::memcpy(&place.address, found->ai_addr, found->ai_addrlen);
  place.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return place;
}

base::Result<base::Fd> listen_on(const Place& place, const std::string& name) {
  if (!place.path.empty()) {
    // A killed process leaves its socket.
    struct stat status {};
    if (::lstat(place.path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode) &&
        is_stale(place.path))
      ::unlink(place.path.c_str());
    return listen_at(place.path);
  }
  const int family = place.address.ss_family;
  base::Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return base::fail_errno("make a socket for " + name);
  const int one = 1;  // a restarted program can bind the port at once
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const auto* const address = reinterpret_cast<const sockaddr*>(&place.address);
  if (::bind(fd.get(), address, place.size) != 0) return base::fail_errno("bind " + name);
  if (::listen(fd.get(), kMaxClients) != 0) return base::fail_errno("listen on " + name);
  return fd;
}

std::string response(const HttpAnswer& answer, bool without_body) {
  return "HTTP/1.1 " + std::string(answer.status) +
         "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: " +
         std::to_string(answer.body.size()) +
         "\r\nConnection: close\r\nCache-Control: no-store\r\n\r\n" +
         (without_body ? "" : answer.body);
}

}  // namespace

base::Result<void> HttpServer::check(const std::string& address) {
  const auto place = parse(address);
  if (!place) return base::pass(place.error());
  return {};
}

base::Result<std::unique_ptr<HttpServer>> HttpServer::start(base::EventLoop& loop,
                                                            const std::string& address,
                                                            Handler handler) {
  const auto place = parse(address);
  if (!place) return base::pass(place.error());
  auto listener = listen_on(*place, address);
  if (!listener) return base::pass(std::move(listener).error());
  return std::unique_ptr<HttpServer>(
      new HttpServer(loop, std::move(handler), std::move(*listener), place->path));
}

HttpServer::HttpServer(base::EventLoop& loop, Handler handler, base::Fd listener, std::string path)
    : loop_(loop),
      handler_(std::move(handler)),
      listener_(std::move(listener)),
      path_(std::move(path)),
      acceptor_(loop, listener_.get(), [this](base::Fd client) { admit(std::move(client)); }) {}

HttpServer::~HttpServer() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void HttpServer::admit(base::Fd fd) {
  if (clients_.size() >= kMaxClients) return;
  const uint64_t id = next_id_++;
  Client& client = clients_[id];
  client.fd = std::move(fd);
  client.deadline = loop_.after(kPatience, [this, id] { clients_.erase(id); });
  if (!watch(id, client, EPOLLIN)) clients_.erase(id);
}

bool HttpServer::watch(uint64_t id, Client& client, uint32_t events) {
  client.watch.reset();
  auto watch = loop_.watch(client.fd.get(), events, [this, id](uint32_t) {
    Client& ready = clients_.at(id);
    if (!(ready.answer.empty() ? receive(id, ready) : send(id, ready))) clients_.erase(id);
  });
  if (!watch) return false;
  client.watch = std::move(*watch);
  return true;
}

// False: the connection has ended.
bool HttpServer::receive(uint64_t id, Client& client) {
  char buffer[4096];
  const ssize_t got = ::recv(client.fd.get(), buffer, sizeof buffer, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  client.request.append(buffer, static_cast<size_t>(got));
  const bool whole = client.request.find("\r\n\r\n") != std::string::npos;
  if (!whole && client.request.size() <= kMaxRequest) return true;
  client.answer = whole ? answer_to(client.request)
                        : response({"431 Request Header Fields Too Large", "too long\n"}, false);
  return send(id, client);
}

std::string HttpServer::answer_to(const std::string& request) const {
  const std::string line = request.substr(0, request.find("\r\n"));
  const bool head = line.starts_with("HEAD ");
  if (!head && !line.starts_with("GET "))
    return response({"405 Method Not Allowed", "only GET\n"}, false);
  const size_t begin = line.find(' ') + 1;
  return response(handler_(line.substr(begin, line.find_first_of(" ?", begin) - begin)), head);
}

// False: all is sent, or the connection has ended.
bool HttpServer::send(uint64_t id, Client& client) {
  while (client.sent < client.answer.size()) {
    const ssize_t sent = ::send(client.fd.get(), client.answer.data() + client.sent,
                                client.answer.size() - client.sent, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return watch(id, client, EPOLLOUT);
    if (sent < 0) return false;
    client.sent += static_cast<size_t>(sent);
  }
  return false;
}

}  // namespace vrdma::cli::kubernetes
