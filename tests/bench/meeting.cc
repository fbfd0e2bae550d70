#include "tests/bench/meeting.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tests/bench/address.h"

namespace vrdma::bench {
namespace {

constexpr uint16_t kPort = 7472;
constexpr uint8_t kTimeout = 18;  // a second: a peer that is silent is not given up soon

sockaddr_in at(const char* address) { return socket_address(address, kPort); }

ibv_gid gid_of(const sockaddr_in& address) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(&gid.raw[12], &address.sin_addr, 4);
  return gid;
}

}  // namespace

Listener::Listener(const char* address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in here = at(address);
  const int on = 1;
  setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd_, reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0 || listen(fd_, 8) != 0)
    fail("bind");
  std::puts("ready");
  std::fflush(stdout);
}
Listener::~Listener() { close(fd_); }
int Listener::accept() const {
  const int fd = ::accept(fd_, nullptr, nullptr);
  if (fd < 0) fail("accept");
  return fd;
}

int meet(const char* address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in there = at(address);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) fail("connect");
  return fd;
}

void put(int fd, const void* bytes, size_t size) {
  if (send(fd, bytes, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size))
    fail("send to the other side");
}
void take(int fd, void* bytes, size_t size) {
  if (recv(fd, bytes, size, MSG_WAITALL) != static_cast<ssize_t>(size))
    fail("the other side is gone");
}

Way way_over(int fd) {
  sockaddr_in here{}, there{};
  socklen_t size = sizeof here;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0)
    fail("the addresses");
  ibv_port_attr port{};
  if (ibv_query_port(device().context, 1, &port) != 0) fail("ibv_query_port");
  const ibv_gid wanted = gid_of(here);
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid{};
    if (ibv_query_gid(device().context, 1, i, &gid) == 0 &&
        std::memcmp(gid.raw, wanted.raw, sizeof gid.raw) == 0)
      return {gid_of(there), static_cast<uint8_t>(i), 64, port.active_mtu, kTimeout};
  }
  fail("the vdevice does not have the address");
}

}  // namespace vrdma::bench
