// The identity of a network namespace: a number that the kernel gives to one namespace only, until
// the next boot (SO_NETNS_COOKIE, Linux 5.14).
#pragma once

#include <cstdint>

#include "core/base/error.h"

namespace vrdma::base {

// Of the namespace in which a socket was made; of an accepted unix socket, that in which the
// connecting side's was made, wherever its process is now. ENOTSOCK: it is no socket, and whoever
// serves the file is not asked. ENOPROTOOPT: the kernel has no such number.
[[nodiscard]] Result<uint64_t> netns_cookie(int socket);

// Of the calling thread's namespace.
[[nodiscard]] Result<uint64_t> own_netns_cookie();

}  // namespace vrdma::base
