#include "cli/kubernetes/sockets/acceptor.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>

namespace vrdma::cli::kubernetes {

namespace {
constexpr int kAtOnce = 8;
constexpr auto kPause = std::chrono::seconds(1);
}  // namespace

Acceptor::Acceptor(base::EventLoop& loop, int listener, OnClient on_client)
    : loop_(loop), listener_(listener), on_client_(std::move(on_client)) {
  watch();
}

void Acceptor::watch() {
  auto watch = loop_.watch(listener_, EPOLLIN, [this](uint32_t) { accept_some(); });
  if (watch)
    watch_ = std::move(*watch);
  else
    retry_ = loop_.after(kPause, [this] { this->watch(); });
}

void Acceptor::accept_some() {
  for (int i = 0; i < kAtOnce; ++i) {
    base::Fd client(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.valid()) {
      on_client_(std::move(client));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN) {
      // No descriptor or memory. Clients that wait keep the listener readable, so that the
      // level-triggered loop would spin.
      watch_.reset();
      retry_ = loop_.after(kPause, [this] { this->watch(); });
    }
    return;
  }
}

}  // namespace vrdma::cli::kubernetes
