// A small HTTP server on an event loop, for scrapers and probes.
//
// Clients are not trusted: one request per connection, of at most 8 KiB in at most 5 s, which begin
// with its encryption, and 5 s for its answer. Only GET and HEAD. At most 16 connections at a time;
// on the network 64, of which a peer has a few (peers.h). If all of these are in use, a new
// connection takes the place of one that has not asked yet, the oldest of the peer that has most,
// so that silent ones do not lock others out.
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
#include "core/serve/guard.h"
#include "core/serve/peers.h"

namespace vrdma::serve {

struct HttpRequest {
  std::string path;                 // without a query
  std::string host, authorization;  // headers; empty: it has none, or more than one
};
struct HttpAnswer {
  const char* status = "200 OK";
  std::string body;
  const char* type = "text/plain; version=0.0.4; charset=utf-8";
  const char* headers = "";  // further ones, each with its CRLF
};

// Connections that got no answer of the handler's.
struct HttpRefusals {
  uint64_t crowded = 0;       // there were too many, or too many of this peer
  uint64_t late = 0;          // the request did not come, or the answer was not taken, in time
  uint64_t unproven = 0;      // plain text where TLS was expected, or no valid client certificate
  uint64_t unauthorized = 0;  // without the token
  uint64_t malformed = 0;     // not GET or HEAD, or too long
};

class HttpServer {
 public:
  // Calls its second argument once with the answer, now or later, both on the loop.
  using Answer = std::function<void(const HttpAnswer&)>;
  using Handler = std::function<void(const HttpRequest& request, Answer answer)>;
  enum class Reach { kHost, kNetwork };  // kHost: no address but 127.0.0.1 and [::1]

  // EINVAL: listen() would refuse this address.
  [[nodiscard]] static base::Result<void> check(const std::string& address, Reach reach);
  struct Listener {
    base::Fd fd;
    std::string path;         // of a unix socket; otherwise empty
    bool on_network = false;  // other hosts may reach it
  };
  // `address`: "unix:PATH" (the socket gets mode 0600; a stale socket is replaced), or
  // "ADDRESS:PORT", with an IPv6 address in brackets.
  [[nodiscard]] static base::Result<Listener> listen(const std::string& address, Reach reach);
  // `loop` must outlive the server. Each connection passes through the guard, if there is one.
  [[nodiscard]] static base::Result<std::unique_ptr<HttpServer>> start(
      base::EventLoop& loop, Listener listener, Handler handler, std::shared_ptr<Guard> guard = {});
  // Both.
  [[nodiscard]] static base::Result<std::unique_ptr<HttpServer>> start(base::EventLoop& loop,
                                                                       const std::string& address,
                                                                       Reach reach,
                                                                       Handler handler);
  // The path in an address of the first form.
  [[nodiscard]] static std::optional<std::string> path_of(const std::string& address);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();  // removes the socket's path

  // May outlive the server.
  [[nodiscard]] std::shared_ptr<const HttpRefusals> refusals() const { return refusals_; }

 private:
  struct Client {
    base::Fd fd;
    Peers::Peer peer;  // empty: it does not count as one
    std::unique_ptr<Channel> channel;
    std::string request, answer;
    bool asked = false;
    size_t sent = 0;
    uint32_t events = 0;  // that `watch` waits for
    base::EventLoop::Watch watch;
    base::EventLoop::Timer deadline;
  };
  using Clients = std::map<uint64_t, Client>;  // the oldest first

  HttpServer(base::EventLoop& loop, Handler handler, std::string path, bool on_network,
             std::shared_ptr<Guard> guard);
  void admit(base::Fd fd);
  bool make_room();
  void end(Clients::iterator client);
  void wait_for_it(uint64_t id, Client& client);
  bool watch(uint64_t id, Client& client);
  bool receive(uint64_t id, Client& client);
  bool ask(uint64_t id, Client& client);
  bool answer(uint64_t id, Client& client, std::string text);
  bool send(uint64_t id, Client& client);

  base::EventLoop& loop_;
  const Handler handler_;
  const std::string path_;  // of a unix socket; otherwise empty
  const bool on_network_;
  const std::shared_ptr<Guard> guard_;  // may be null
  const std::shared_ptr<HttpRefusals> refusals_ = std::make_shared<HttpRefusals>();
  Peers peers_;
  uint64_t next_id_ = 1;
  Clients clients_;
  std::unique_ptr<Acceptor> acceptor_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for answers that come later
};

}  // namespace vrdma::serve
