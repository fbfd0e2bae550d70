// A listening socket on a loop: takes who comes, a few at a time, and looks away while there are no
// descriptors, or while its owner wants nobody.
#pragma once

#include <functional>
#include <memory>

#include "core/base/event_loop.h"
#include "core/base/fd.h"

namespace vrdma::vrdmad {

class Acceptor {
 public:
  // `listener` listens and does not block. `accepted` gets each connection, non-blocking, on the
  // loop, and does not destroy this. `closed_for`, which may be empty, is asked before each: nobody
  // is taken for as long as it says.
  [[nodiscard]] static base::Result<std::unique_ptr<Acceptor>> start(
      base::EventLoop& loop, base::Fd listener, std::function<void(base::Fd)> accepted,
      std::function<base::Duration()> closed_for = {});
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Takes nobody any more. The listener, with those who wait.
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
  base::EventLoop::Timer retry_;  // active instead of incoming_ while it looks away
};

}  // namespace vrdma::vrdmad
