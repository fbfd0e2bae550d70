// Accepts the clients of a listening socket on an event loop.
#pragma once

#include <functional>

#include "core/base/event_loop.h"
#include "core/base/fd.h"

namespace vrdma::cli::kubernetes {

class Acceptor {
 public:
  using OnClient = std::function<void(base::Fd client)>;  // non-blocking

  // `listener`: non-blocking; it and `loop` must outlive the object.
  Acceptor(base::EventLoop& loop, int listener, OnClient on_client);
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  void watch();
  void accept_some();

  base::EventLoop& loop_;
  const int listener_;
  const OnClient on_client_;
  base::EventLoop::Watch watch_;
  base::EventLoop::Timer retry_;
};

}  // namespace vrdma::cli::kubernetes
