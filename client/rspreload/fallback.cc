// Replaces sockets by kernel sockets when no vdevice leads to the destination.
//
// For streams, connecting shows that. Datagrams would be lost, so the first message decides: the
// socket stays over RDMA if an address in the fabric matches. A socket also becomes a kernel socket
// when the program uses what sockets over RDMA lack, such as multicast.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

#include "client/rsocket/address.h"
#include "client/rspreload/preload.h"

namespace vrdma::rspreload {

int integer_option(int fd, int level, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  return rgetsockopt(fd, level, name, &value, &length) == 0 ? value : 0;
}

namespace {

void copy_option(int from, int to, int level, int name) {
  const int value = integer_option(from, level, name);
  if (value != 0) (void)NEXT(setsockopt)(to, level, name, &value, sizeof value);
}

// True if a vdevice of the fabric has the address.
bool is_somebodys(const sockaddr* address) {
  if (client::RsAddress::from(address)->is_multicast()) return false;
  constexpr int kTimeout = 2000;  // ms
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(nullptr, &id, nullptr, RDMA_PS_UDP) != 0) return false;
  const bool is = rdma_resolve_addr(id, nullptr, const_cast<sockaddr*>(address), kTimeout) == 0;
  (void)rdma_destroy_id(id);
  return is;
}

bool is_internet(const sockaddr* address, socklen_t length) {
  if (address == nullptr || length < sizeof address->sa_family) return false;
  return (address->sa_family == AF_INET && length >= sizeof(sockaddr_in)) ||
         (address->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6));
}

}  // namespace

bool become_plain(int fd) {
  const int domain = integer_option(fd, SOL_SOCKET, SO_DOMAIN);
  const int type = integer_option(fd, SOL_SOCKET, SO_TYPE);
  const int socket = NEXT(socket)(domain, type | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  copy_option(fd, socket, SOL_SOCKET, SO_REUSEADDR);
  copy_option(fd, socket, SOL_SOCKET, SO_REUSEPORT);
  copy_option(fd, socket, SOL_SOCKET, SO_KEEPALIVE);
  copy_option(fd, socket, IPPROTO_TCP, TCP_NODELAY);
  copy_option(fd, socket, IPPROTO_IPV6, IPV6_V6ONLY);
  copy_option(fd, socket, IPPROTO_IPV6, IPV6_TCLASS);
  copy_option(fd, socket, IPPROTO_IP, IP_TOS);
  copy_option(fd, socket, SOL_SOCKET, SO_PRIORITY);
  if (type == SOCK_DGRAM)  // for a stream they would disable the kernel's auto-tuning
    for (const int name : {SO_RCVBUF, SO_SNDBUF}) copy_option(fd, socket, SOL_SOCKET, name);
  for (const int name : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    timeval limit{};
    socklen_t length = sizeof limit;
    if (rgetsockopt(fd, SOL_SOCKET, name, &limit, &length) == 0)
      (void)NEXT(setsockopt)(socket, SOL_SOCKET, name, &limit, length);
  }
  const int flags = rfcntl(fd, F_GETFL);
  const bool closes = (rfcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
  (void)::fcntl(socket, F_SETFL, flags & O_NONBLOCK);
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  auto* const local = reinterpret_cast<sockaddr*>(&name);
  const bool bound = rgetsockname(fd, local, &length) == 0 &&
                     reinterpret_cast<const sockaddr_in*>(local)->sin_port != 0;
  set_way(fd, Way::kKernel);
  (void)rclose(fd);
  bool placed = !bound || NEXT(bind)(socket, local, length) == 0;
  if (placed) {
    // Another thread may have got the number meanwhile.
    const int at = ::fcntl(socket, closes ? F_DUPFD_CLOEXEC : F_DUPFD, fd);
    placed = at == fd;
    if (at >= 0 && !placed) {
      NEXT(close)(at);
      errno = EBUSY;
    }
  }
  const int why = errno;
  NEXT(close)(socket);
  errno = why;
  if (placed) become_plain_in_sets(fd);
  return placed;
}

bool become_plain_if_open(int fd) {
  const int saved = errno;
  if (way_of(fd) == Way::kOpen && become_plain(fd)) return true;
  errno = saved;
  return false;
}

void choose_way(int fd, const sockaddr* to, socklen_t length) {
  if (way_of(fd) != Way::kOpen || !is_internet(to, length)) return;
  const int saved = errno;
  if (!is_loopback(to, length) && is_somebodys(to))
    set_way(fd, Way::kRdma);
  else
    (void)become_plain(fd);
  errno = saved;
}

bool leads_nowhere(int error) {
  return error == EADDRNOTAVAIL || error == ENETUNREACH || error == EHOSTUNREACH ||
         error == ENODEV || error == ECONNREFUSED;
}

// rdma_cm binds to loopback addresses, but no vdevice has one.
bool is_loopback(const sockaddr* address, socklen_t length) {
  return is_internet(address, length) && client::RsAddress::from(address)->is_loopback();
}

}  // namespace vrdma::rspreload
