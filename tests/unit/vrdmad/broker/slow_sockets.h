// What tests give to the intake: connections, and sockets whose close takes long.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <utility>

#include "core/base/fd.h"
#include "tests/unit/vrdmad/broker/lingering_socket.h"

namespace vrdma::vrdmad {

using test::lingering_socket;

inline std::pair<base::Fd, base::Fd> connection() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()),
            0);
  const int on = 1;
  ::setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  return {base::Fd(ends[0]), base::Fd(ends[1])};
}

}  // namespace vrdma::vrdmad
