// A descriptor whose close takes long.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <vector>

#include "core/base/fd.h"

namespace vrdma::test {

// A TCP socket whose last close blocks until its data has been read, or for `seconds`. `other` is
// the other end: nothing reads from it, and its close ends the first close, by a reset. An invalid
// descriptor if the two cannot be connected.
inline base::Fd lingering_socket(int seconds, base::Fd* other) {
  const base::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int small = 4096;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  ::bind(listener.get(), generic, sizeof address);
  ::listen(listener.get(), 1);
  ::getsockname(listener.get(), generic, &length);
  base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  if (::connect(socket.get(), generic, sizeof address) != 0) return {};
  *other = base::Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const linger wait{1, seconds};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
  ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  const std::vector<char> data(1 << 16);
  while (::send(socket.get(), data.data(), data.size(), MSG_NOSIGNAL) > 0) {
  }
  return socket;
}

}  // namespace vrdma::test
