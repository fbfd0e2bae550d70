#include "core/serve/acceptor.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace vrdma::serve {

namespace {
constexpr int kAtOnce = 8;
constexpr std::chrono::seconds kRetry(1);
}  // namespace

Acceptor::Accept Acceptor::accept(std::function<void(base::Fd)> accepted) {
  return [accepted = std::move(accepted)](const base::Fd& listener) {
    base::Fd client(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client.valid()) return errno;
    accepted(std::move(client));
    return 0;
  };
}

base::Result<std::unique_ptr<Acceptor>> Acceptor::start(
    base::EventLoop& loop, base::Fd listener, Accept accept,
    std::function<base::Duration()> closed_for) {
  std::unique_ptr<Acceptor> acceptor(
      new Acceptor(loop, std::move(listener), std::move(accept), std::move(closed_for)));
  if (auto watched = acceptor->watch(); !watched) return base::pass(std::move(watched).error());
  return acceptor;
}

base::Fd Acceptor::stop() {
  incoming_.reset();
  retry_.reset();
  return std::move(listener_);
}

base::Result<void> Acceptor::watch() {
  auto watch = loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_some(); });
  if (!watch) return base::pass(std::move(watch).error());
  incoming_ = std::move(*watch);
  return {};
}

// At most kAtOnce connections, so that a client that connects in a loop does not block the event
// loop.
void Acceptor::accept_some() {
  for (int i = 0; i < kAtOnce; ++i) {
    if (closed_for_)
      if (const base::Duration closed = closed_for_(); closed.count() > 0) return look_away(closed);
    const int error = accept_(listener_);
    if (error == 0 || error == EINTR || error == ECONNABORTED) continue;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM)
      look_away(kRetry);
    return;
  }
}

// Stops watching the listener: waiting clients keep it readable, so that the level-triggered loop
// would spin.
void Acceptor::look_away(base::Duration how_long) {
  incoming_.reset();
  retry_ = loop_.after(how_long, [this] {
    if (!watch()) accept_some();  // accept fails too, and the timer restarts
  });
}

}  // namespace vrdma::serve
