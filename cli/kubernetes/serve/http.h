// A small HTTP server on an event loop, for scrapers and probes.
//
// Clients are not trusted: one request per connection, of at most 8 KiB in at most 5 s, and at most
// 16 connections at a time. Only GET and HEAD.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "cli/kubernetes/sockets/acceptor.h"
#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/base/fd.h"

namespace vrdma::cli::kubernetes {

struct HttpAnswer {
  const char* status = "200 OK";
  std::string body;
};

class HttpServer {
 public:
  using Handler = std::function<HttpAnswer(const std::string& path)>;  // on the loop

  // EINVAL: start() would refuse this address.
  [[nodiscard]] static base::Result<void> check(const std::string& address);
  // `address`: "unix:PATH" (the socket gets mode 0600; a stale socket is replaced), or
  // "ADDRESS:PORT", with an IPv6 address in brackets. `loop` must outlive the server.
  [[nodiscard]] static base::Result<std::unique_ptr<HttpServer>> start(base::EventLoop& loop,
                                                                       const std::string& address,
                                                                       Handler handler);
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

  HttpServer(base::EventLoop& loop, Handler handler, base::Fd listener, std::string path);
  void admit(base::Fd fd);
  bool watch(uint64_t id, Client& client, uint32_t events);
  bool receive(uint64_t id, Client& client);
  bool send(uint64_t id, Client& client);
  [[nodiscard]] std::string answer_to(const std::string& request) const;

  base::EventLoop& loop_;
  const Handler handler_;
  const base::Fd listener_;
  const std::string path_;  // of a unix socket; otherwise empty
  uint64_t next_id_ = 1;
  std::map<uint64_t, Client> clients_;
  Acceptor acceptor_;
};

}  // namespace vrdma::cli::kubernetes
