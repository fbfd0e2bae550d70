// Connections and sockets whose close takes long, for tests of the intake.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <utility>
#include <vector>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

inline std::pair<base::Fd, base::Fd> connection() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()),
            0);
  const int on = 1;
  ::setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  return {base::Fd(ends[0]), base::Fd(ends[1])};
}

// A TCP socket whose last close blocks until its data is read, or `limit`. `other` keeps the other
// end open.
inline base::Fd lingering_socket(int limit, base::Fd* other) {
  const base::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  ::listen(listener.get(), 1);
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  *other = base::Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const linger wait{1, limit};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
  ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  const std::vector<char> data(1 << 20);
  while (::send(socket.get(), data.data(), data.size(), MSG_NOSIGNAL) > 0) {
  }
  return socket;
}

}  // namespace vrdma::vrdmad
