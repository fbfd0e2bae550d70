#include "core/serve/http.h"

#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/option_check.h"
#include "core/serve/unix_path.h"

namespace vrdma::serve {

namespace {

constexpr size_t kMaxRequest = 8192;
constexpr size_t kMaxClients = 16;
constexpr size_t kMaxOnNetwork = 64;
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
  if (::listen(fd.get(), kMaxOnNetwork) != 0) return base::fail_errno("listen on " + name);
  return fd;
}

std::string response(const HttpAnswer& answer, bool without_body) {
  return "HTTP/1.1 " + std::string(answer.status) + "\r\nContent-Type: " + answer.type +
         "\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\n" + answer.headers +
         "Connection: close\r\nCache-Control: no-store\r\n\r\n" + (without_body ? "" : answer.body);
}

bool is_name(std::string_view text, std::string_view lower) {
  return std::ranges::equal(text, lower, [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  });
}

// The value of the header `name` (in lower case); empty if there is none, or more than one.
std::string value_of(std::string_view request, std::string_view name) {
  std::string value;
  bool found = false;
  for (size_t begin = request.find("\r\n"); begin < request.size();) {
    begin += 2;
    const size_t end = std::min(request.find("\r\n", begin), request.size());
    const std::string_view line = request.substr(begin, end - begin);
    begin = end;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_name(line.substr(0, colon), name)) continue;
    if (std::exchange(found, true)) return {};
    const size_t first = line.find_first_not_of(" \t", colon + 1);
    if (first == std::string_view::npos) continue;
    value = line.substr(first, line.find_last_not_of(" \t") - first + 1);
  }
  return value;
}

class Plain : public Channel {
 public:
  explicit Plain(int socket) : socket_(socket) {}
  ssize_t receive(char* buffer, size_t size) override {
    waits_for_ = EPOLLIN;
    return ::recv(socket_, buffer, size, 0);
  }
  ssize_t send(const char* bytes, size_t size) override {
    waits_for_ = EPOLLOUT;
    return ::send(socket_, bytes, size, MSG_NOSIGNAL);
  }
  uint32_t waits_for() const override { return waits_for_; }
  bool refused() const override { return false; }
  void finish() override {}

 private:
  const int socket_;
  uint32_t waits_for_ = EPOLLIN;
};

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

base::Result<HttpServer::Listener> HttpServer::listen(const std::string& address, Reach reach) {
  const auto place = parse(address, reach);
  if (!place) return base::pass(place.error());
  auto fd = listen_on(*place, address);
  if (!fd) return base::pass(std::move(fd).error());
  return Listener{std::move(*fd), place->path, reach == Reach::kNetwork && place->path.empty()};
}

base::Result<std::unique_ptr<HttpServer>> HttpServer::start(base::EventLoop& loop,
                                                            Listener listener, Handler handler,
                                                            std::shared_ptr<Guard> guard) {
  std::unique_ptr<HttpServer> server(new HttpServer(loop, std::move(handler), listener.path,
                                                    listener.on_network, std::move(guard)));
  auto acceptor = Acceptor::start(
      loop, std::move(listener.fd),
      Acceptor::accept([raw = server.get()](base::Fd client) { raw->admit(std::move(client)); }));
  if (!acceptor) return base::pass(std::move(acceptor).error());
  server->acceptor_ = std::move(*acceptor);
  return server;
}

base::Result<std::unique_ptr<HttpServer>> HttpServer::start(base::EventLoop& loop,
                                                            const std::string& address, Reach reach,
                                                            Handler handler) {
  auto listener = listen(address, reach);
  if (!listener) return base::pass(std::move(listener).error());
  return start(loop, std::move(*listener), std::move(handler));
}

// A handshake costs processor time, a plain connection next to nothing.
HttpServer::HttpServer(base::EventLoop& loop, Handler handler, std::string path, bool on_network,
                       std::shared_ptr<Guard> guard)
    : loop_(loop),
      handler_(std::move(handler)),
      path_(std::move(path)),
      on_network_(on_network),
      guard_(std::move(guard)),
      peers_(guard_ != nullptr ? PeerLimits() : PeerLimits{.begun = UINT_MAX}) {}

HttpServer::~HttpServer() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void HttpServer::admit(base::Fd fd) {
  Peers::Peer peer;
  if (on_network_) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return;
    peer = Peers::of(address);
    if (!peers_.enter(peer, loop_.now())) {
      ++refusals_->crowded;
      return;
    }
  }
  if (!make_room()) {
    if (!peer.empty()) peers_.left(peer);
    ++refusals_->crowded;
    return;
  }
  const uint64_t id = next_id_++;
  const auto entry = clients_.try_emplace(id).first;
  Client& client = entry->second;
  client.peer = std::move(peer);
  client.channel = guard_ != nullptr ? guard_->open(fd.get()) : std::make_unique<Plain>(fd.get());
  client.fd = std::move(fd);
  wait_for_it(id, client);
  if (client.channel == nullptr || !watch(id, client)) end(entry);
}

// False: all connections have asked, and wait for their answers.
bool HttpServer::make_room() {
  if (clients_.size() < (on_network_ ? kMaxOnNetwork : kMaxClients)) return true;
  if (!on_network_) return false;
  auto silent = clients_.end();
  unsigned most = 0;
  for (auto each = clients_.begin(); each != clients_.end(); ++each)
    if (const unsigned open = peers_.open(each->second.peer); !each->second.asked && open > most) {
      silent = each;
      most = open;
    }
  if (silent == clients_.end()) return false;
  ++refusals_->late;
  end(silent);
  return true;
}

void HttpServer::end(Clients::iterator client) {
  if (!client->second.peer.empty()) peers_.left(client->second.peer);
  clients_.erase(client);
}

void HttpServer::wait_for_it(uint64_t id, Client& client) {
  client.deadline = loop_.after(kPatience, [this, id] {
    ++refusals_->late;
    end(clients_.find(id));
  });
}

bool HttpServer::watch(uint64_t id, Client& client) {
  const uint32_t events = client.channel->waits_for();
  if (client.watch.active() && client.events == events) return true;
  client.watch.reset();
  auto watch = loop_.watch(client.fd.get(), events, [this, id](uint32_t) {
    const auto ready = clients_.find(id);
    Client& its = ready->second;
    if (!(its.answer.empty() ? receive(id, its) : send(id, its)))
      if (const auto ended = clients_.find(id); ended != clients_.end()) end(ended);
  });
  if (!watch) return false;
  client.watch = std::move(*watch);
  client.events = events;
  return true;
}

// False: the connection has ended.
bool HttpServer::receive(uint64_t id, Client& client) {
  for (;;) {
    char buffer[4096];
    const ssize_t got = client.channel->receive(buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return watch(id, client);
    if (got <= 0) {
      if (client.channel->refused()) ++refusals_->unproven;
      return false;
    }
    client.request.append(buffer, static_cast<size_t>(got));
    if (client.request.find("\r\n\r\n") != std::string::npos) return ask(id, client);
    if (client.request.size() <= kMaxRequest) continue;
    ++refusals_->malformed;
    return answer(id, client,
                  response({"431 Request Header Fields Too Large", "too long\n"}, false));
  }
}

bool HttpServer::ask(uint64_t id, Client& client) {
  client.asked = true;
  const std::string line = client.request.substr(0, client.request.find("\r\n"));
  const bool head = line.starts_with("HEAD ");
  const std::string authorization = value_of(client.request, "authorization");
  if (guard_ != nullptr && !guard_->admits(authorization)) {
    ++refusals_->unauthorized;
    return answer(id, client,
                  response({.status = "401 Unauthorized",
                            .body = "a bearer token is needed\n",
                            .headers = "WWW-Authenticate: Bearer\r\n"},
                           head));
  }
  if (!head && !line.starts_with("GET ")) {
    ++refusals_->malformed;
    return answer(id, client, response({"405 Method Not Allowed", "only GET\n"}, false));
  }
  const size_t begin = line.find(' ') + 1;
  client.watch.reset();  // what else it sends is not read
  wait_for_it(id, client);
  handler_({line.substr(begin, line.find_first_of(" ?", begin) - begin),
            value_of(client.request, "host"), authorization},
           [this, id, head, alive = std::weak_ptr(alive_)](const HttpAnswer& its) {
             if (alive.expired()) return;
             const auto asker = clients_.find(id);
             if (asker != clients_.end() && !answer(id, asker->second, response(its, head)))
               end(asker);
           });
  return clients_.contains(id);  // it may have got its answer at once
}

bool HttpServer::answer(uint64_t id, Client& client, std::string text) {
  client.answer = std::move(text);
  wait_for_it(id, client);
  return send(id, client);
}

// False: all is sent, or the connection has ended.
bool HttpServer::send(uint64_t id, Client& client) {
  while (client.sent < client.answer.size()) {
    const ssize_t sent = client.channel->send(client.answer.data() + client.sent,
                                              client.answer.size() - client.sent);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return watch(id, client);
    if (sent <= 0) return false;
    client.sent += static_cast<size_t>(sent);
  }
  client.channel->finish();
  return false;
}

}  // namespace vrdma::serve
