// A small HTTP server on an event loop, for scrapers and probes.
//
// Clients are not trusted: one request per connection, of at most 8 KiB in at most 5 s, and at most
// 16 connections at a time. Only GET and HEAD.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/serve/acceptor.h"

namespace vrdma::serve {

struct HttpAnswer {
  const char* status = "200 OK";
  std::string body;
};

class HttpServer {
 public:
  // Calls its second argument once with the answer, now or later, both on the loop.
  using Answer = std::function<void(const HttpAnswer&)>;
  using Handler = std::function<void(const std::string& path, Answer answer)>;
  enum class Reach { kHost, kNetwork };  // kHost: no address but 127.0.0.1 and [::1]

  // EINVAL: start() would refuse this address.
  [[nodiscard]] static base::Result<void> check(const std::string& address, Reach reach);
  // `address`: "unix:PATH" (the socket gets mode 0600; a stale socket is replaced), or
  // "ADDRESS:PORT", with an IPv6 address in brackets. `loop` must outlive the server.
  [[nodiscard]] static base::Result<std::unique_ptr<HttpServer>> start(base::EventLoop& loop,
                                                                       const std::string& address,
                                                                       Reach reach,
                                                                       Handler handler);
  // The path in an address of the first form.
  [[nodiscard]] static std::optional<std::string> path_of(const std::string& address);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();  // removes the socket's path

 private:
  struct Client {
    base::Fd fd;
    std::string request, answer;
    size_t sent = 0;
    base::EventLoop::Watch watch;
    base::EventLoop::Timer deadline;
  };

  HttpServer(base::EventLoop& loop, Handler handler, std::string path)
      : loop_(loop), handler_(std::move(handler)), path_(std::move(path)) {}
  void admit(base::Fd fd);
  bool watch(uint64_t id, Client& client, uint32_t events);
  bool receive(uint64_t id, Client& client);
  bool ask(uint64_t id, Client& client);
  bool answer(uint64_t id, Client& client, std::string text);
  bool send(uint64_t id, Client& client);

  base::EventLoop& loop_;
  const Handler handler_;
  const std::string path_;  // of a unix socket; otherwise empty
  uint64_t next_id_ = 1;
  std::map<uint64_t, Client> clients_;
  std::unique_ptr<Acceptor> acceptor_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for answers that come later
};

}  // namespace vrdma::serve
