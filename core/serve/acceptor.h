// Accepts connections of a listening socket on an event loop, a few per wake-up. Pauses while the
// process has no free descriptors, or while the owner refuses connections.
#pragma once

#include <functional>
#include <memory>

#include "core/base/event_loop.h"
#include "core/base/fd.h"

namespace vrdma::serve {

class Acceptor {
 public:
  // Accepts one connection, on the loop, and must not destroy the Acceptor. Returns 0 or the errno
  // of accept(2).
  using Accept = std::function<int(const base::Fd& listener)>;
  // By accept4(2): `accepted` gets each connection, non-blocking.
  [[nodiscard]] static Accept accept(std::function<void(base::Fd)> accepted);

  // `listener` is a listening, non-blocking socket. `closed_for` may be empty; it is called before
  // each accept and returns how long to accept nothing.
  [[nodiscard]] static base::Result<std::unique_ptr<Acceptor>> start(
      base::EventLoop& loop, base::Fd listener, Accept accept,
      std::function<base::Duration()> closed_for = {});
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Stops accepting. Returns the listener with its queue of waiting connections.
  [[nodiscard]] base::Fd stop();

 private:
  Acceptor(base::EventLoop& loop, base::Fd listener, Accept accept,
           std::function<base::Duration()> closed_for)
      : loop_(loop),
        accept_(std::move(accept)),
        closed_for_(std::move(closed_for)),
        listener_(std::move(listener)) {}
  [[nodiscard]] base::Result<void> watch();
  void accept_some();
  void look_away(base::Duration how_long);

  base::EventLoop& loop_;
  const Accept accept_;
  const std::function<base::Duration()> closed_for_;
  base::Fd listener_;
  base::EventLoop::Watch incoming_;
  base::EventLoop::Timer retry_;  // active instead of incoming_ during a pause
};

}  // namespace vrdma::serve
