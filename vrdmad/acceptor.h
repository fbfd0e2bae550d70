// A listening socket on a loop: takes who comes, a few at a time, and looks away while there are no
// descriptors.
#pragma once

#include <functional>
#include <memory>

#include "core/base/event_loop.h"
#include "core/base/fd.h"

namespace vrdma::vrdmad {

class Acceptor {
 public:
  // `listener` listens and does not block. `accepted` gets each connection, non-blocking, on the
  // loop, and does not destroy this.
  [[nodiscard]] static base::Result<std::unique_ptr<Acceptor>> start(
      base::EventLoop& loop, base::Fd listener, std::function<void(base::Fd)> accepted);
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Takes nobody any more. The listener, with those who wait.
  [[nodiscard]] base::Fd stop();

 private:
  Acceptor(base::EventLoop& loop, base::Fd listener, std::function<void(base::Fd)> accepted)
      : loop_(loop), accepted_(std::move(accepted)), listener_(std::move(listener)) {}
  [[nodiscard]] base::Result<void> watch();
  void accept_some();

  base::EventLoop& loop_;
  const std::function<void(base::Fd)> accepted_;
  base::Fd listener_;
  base::EventLoop::Watch incoming_;
  base::EventLoop::Timer retry_;  // active instead of incoming_ while descriptors are short
};

}  // namespace vrdma::vrdmad
