// Accepts connections of a listening socket on an event loop, a few per wake-up. Pauses while the
// process has no free descriptors, or while the owner refuses connections.
#pragma once

#include <functional>
#include <memory>

#include "core/base/event_loop.h"
#include "core/base/fd.h"

namespace vrdma::vrdmad {

class Acceptor {
 public:
  // `listener` is a listening, non-blocking socket. `accepted` gets each connection, non-blocking,
  // on the loop, and must not destroy the Acceptor. `closed_for` may be empty; it is called before
  // each accept and returns how long to accept nothing.
  [[nodiscard]] static base::Result<std::unique_ptr<Acceptor>> start(
      base::EventLoop& loop, base::Fd listener, std::function<void(base::Fd)> accepted,
      std::function<base::Duration()> closed_for = {});
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Stops accepting. Returns the listener with its queue of waiting connections.
  [[nodiscard]] base::Fd stop();

 private:
  Acceptor(base::EventLoop& loop, base::Fd listener, std::function<void(base::Fd)> accepted,
           std::function<base::Duration()> closed_for)
      : loop_(loop),
        accepted_(std::move(accepted)),
        closed_for_(std::move(closed_for)),
        listener_(std::move(listener)) {}
  [[nodiscard]] base::Result<void> watch();
  void accept_some();
  void look_away(base::Duration how_long);

  base::EventLoop& loop_;
  const std::function<void(base::Fd)> accepted_;
  const std::function<base::Duration()> closed_for_;
  base::Fd listener_;
  base::EventLoop::Watch incoming_;
  base::EventLoop::Timer retry_;  // active instead of incoming_ during a pause
};

}  // namespace vrdma::vrdmad
