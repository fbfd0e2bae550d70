// What an HTTP server can put between itself and its clients: encryption, and a proof of who asks.
// tls.h implements it; this header keeps OpenSSL out of programs that serve their own host alone.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace vrdma::serve {

// The bytes of one connection. Never waits.
class Channel {
 public:
  virtual ~Channel() = default;
  // As recv(2) and send(2) without flags. A call that returned -1 with EAGAIN is repeated with the
  // same bytes, which may have moved, when the socket has the events of waits_for() (epoll's).
  [[nodiscard]] virtual ssize_t receive(char* buffer, size_t size) = 0;
  [[nodiscard]] virtual ssize_t send(const char* bytes, size_t size) = 0;
  [[nodiscard]] virtual uint32_t waits_for() const = 0;
  // Whether it ended because the peer speaks no TLS, or did not prove who it is.
  [[nodiscard]] virtual bool refused() const = 0;
  // All is sent.
  virtual void finish() = 0;
};

class Guard {
 public:
  virtual ~Guard() = default;
  // `socket` is connected and non-blocking, and outlives the channel. nullptr: it cannot be had.
  [[nodiscard]] virtual std::unique_ptr<Channel> open(int socket) = 0;
  // `authorization`: the value of the request's header, or empty if it has none.
  [[nodiscard]] virtual bool admits(const std::string& authorization) = 0;
};

}  // namespace vrdma::serve
