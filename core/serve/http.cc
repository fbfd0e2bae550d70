#include "core/serve/http.h"

#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstring>

#include "core/base/option_check.h"
#include "core/serve/unix_path.h"

namespace vrdma::serve {

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

base::Result<Place> parse(const std::string& text, HttpServer::Reach reach) {
  const bool anywhere = reach == HttpServer::Reach::kNetwork;
  const auto invalid =
      base::fail(EINVAL, base::in_quotes(text) +
                             (anywhere ? " is not unix:PATH, ADDRESS:PORT or [ADDRESS]:PORT"
                                       : " is not unix:PATH, 127.0.0.1:PORT or [::1]:PORT"));
  Place place;
  if (auto path = HttpServer::path_of(text)) {
    place.path = std::move(*path);
    const auto valid = check_path(place.path);
    return valid ? base::Result<Place>(place) : base::pass(valid.error());
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return invalid;
  std::string host = text.substr(0, colon);
  if (!anywhere && host != "127.0.0.1" && host != "[::1]") return invalid;
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

std::optional<std::string> HttpServer::path_of(const std::string& address) {
  if (!address.starts_with(kUnix)) return {};
  return address.substr(kUnix.size());
}

base::Result<void> HttpServer::check(const std::string& address, Reach reach) {
  const auto place = parse(address, reach);
  if (!place) return base::pass(place.error());
  return {};
}

base::Result<std::unique_ptr<HttpServer>> HttpServer::start(base::EventLoop& loop,
                                                            const std::string& address, Reach reach,
                                                            Handler handler) {
  const auto place = parse(address, reach);
  if (!place) return base::pass(place.error());
  auto listener = listen_on(*place, address);
  if (!listener) return base::pass(std::move(listener).error());
  std::unique_ptr<HttpServer> server(new HttpServer(loop, std::move(handler), place->path));
  auto acceptor = Acceptor::start(
      loop, std::move(*listener),
      Acceptor::accept([raw = server.get()](base::Fd client) { raw->admit(std::move(client)); }));
  if (!acceptor) return base::pass(std::move(acceptor).error());
  server->acceptor_ = std::move(*acceptor);
  return server;
}

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
    const bool goes_on = ready.answer.empty() ? receive(id, ready) : send(id, ready);
    if (!goes_on) clients_.erase(id);
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
  if (whole) return ask(id, client);
  return answer(id, client, response({"431 Request Header Fields Too Large", "too long\n"}, false));
}

bool HttpServer::ask(uint64_t id, Client& client) {
  const std::string line = client.request.substr(0, client.request.find("\r\n"));
  const bool head = line.starts_with("HEAD ");
  if (!head && !line.starts_with("GET "))
    return answer(id, client, response({"405 Method Not Allowed", "only GET\n"}, false));
  const size_t begin = line.find(' ') + 1;
  client.watch.reset();  // what else it sends is not read
  handler_(line.substr(begin, line.find_first_of(" ?", begin) - begin),
           [this, id, head, alive = std::weak_ptr(alive_)](const HttpAnswer& its) {
             if (alive.expired()) return;
             const auto asker = clients_.find(id);
             if (asker != clients_.end() && !answer(id, asker->second, response(its, head)))
               clients_.erase(asker);
           });
  return clients_.contains(id);  // it may have got its answer at once
}

bool HttpServer::answer(uint64_t id, Client& client, std::string text) {
  client.answer = std::move(text);
  return send(id, client);
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

}  // namespace vrdma::serve
