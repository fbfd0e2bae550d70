#include "core/base/netns_cookie.h"

#include <sys/socket.h>

#include <cerrno>

#include "core/base/fd.h"

namespace vrdma::base {

namespace {
constexpr int kNetnsCookie = 71;  // SO_NETNS_COOKIE; older headers lack it
}  // namespace

Result<uint64_t> netns_cookie(int socket) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (::getsockopt(socket, SOL_SOCKET, kNetnsCookie, &cookie, &size) == 0) return cookie;
  if (errno == ENOPROTOOPT)
    return fail(ENOPROTOOPT,
                "the kernel cannot identify network namespaces: it lacks SO_NETNS_COOKIE "
                "(since Linux 5.14)");
  return fail_errno("get the netns of a socket");
}

Result<uint64_t> own_netns_cookie() {
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return fail_errno("create a socket");
  return netns_cookie(socket.get());
}

}  // namespace vrdma::base
