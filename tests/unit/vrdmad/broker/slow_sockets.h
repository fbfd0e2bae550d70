// What tests give to the intake: connections, and sockets whose close takes long.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <utility>

#include "core/base/fd.h"
#include "core/ipc/socket.h"
#include "tests/unit/vrdmad/broker/lingering_socket.h"

namespace vrdma::vrdmad {

using test::lingering_socket;

inline std::pair<base::Fd, base::Fd> connection() {
  auto ends = ipc::make_socket_pair(SOCK_NONBLOCK).value();
  const int on = 1;
  ::setsockopt(ends.first.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  return ends;
}

}  // namespace vrdma::vrdmad
