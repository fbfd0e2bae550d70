#include "vrdmad/broker/roce_sockets.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>
#include <iterator>
#include <string>

#include "core/verbs/socket_address.h"

#ifndef UDP_NO_CHECK6_RX  // linux/udp.h, which does not go with netinet/udp.h
#define UDP_NO_CHECK6_RX 102
#endif

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;

namespace {

// What is on its way from the kernel to a worker that does something else, or has just been killed.
constexpr int kDataBuffer = 4 << 20, kGsiBuffer = 256 << 10;

struct Option {
  int level, name, value;
};

// Of a packet, from the base transport header on: 0 of queue pair 1, 1 of others. Sockets count in
// the order in which they were bound; a packet for one that is not there goes to any.
sock_filter kToGsiOrData[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),  // a reserved byte, and the destination queue pair
    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, 0),
    BPF_STMT(BPF_RET | BPF_K, 1),
};
const sock_fprog kChoice{std::size(kToGsiOrData), kToGsiOrData};

Result<Fd> make_socket(const verbs::Gid& address, uint32_t ifindex, bool data) {
  const bool ipv4 = address.is_ipv4_mapped();
  Fd socket(::socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return fail_errno("make a UDP socket");
  const Option of_ipv4[] = {{IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO},
                            {IPPROTO_IP, IP_RECVTOS, 1},
                            {IPPROTO_IP, IP_RECVTTL, 1}};
  // Native peers send no UDP checksum: the invariant CRC is in its place.
  const Option of_ipv6[] = {{IPPROTO_IPV6, IPV6_V6ONLY, 1},
                            {IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO},
                            {IPPROTO_IPV6, IPV6_RECVTCLASS, 1},
                            {IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1},
                            {IPPROTO_UDP, UDP_NO_CHECK6_RX, 1}};
  const Option of_both[] = {{SOL_SOCKET, SO_REUSEPORT, 1}};
  const Option of_data[] = {{IPPROTO_UDP, UDP_GRO, 1}};
  const auto set = [&socket](const auto& options) {
    for (const Option& one : options)
      if (::setsockopt(socket.get(), one.level, one.name, &one.value, sizeof one.value) != 0)
        return false;
    return true;
  };
  if (!set(of_both) || !(ipv4 ? set(of_ipv4) : set(of_ipv6)) || (data && !set(of_data)))
    return fail_errno("set the options of a socket for RoCE v2");
  // The first has the filter of both; a socket with one of its own could not share the address.
  if (!data && ::setsockopt(socket.get(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &kChoice,
                            sizeof kChoice) != 0)
    return fail_errno("attach a filter to a socket for RoCE v2");
  const int buffer = data ? kDataBuffer : kGsiBuffer;
  for (const auto& [forced, plain] :
       {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}})
    if (::setsockopt(socket.get(), SOL_SOCKET, forced, &buffer, sizeof buffer) != 0)
      (void)::setsockopt(socket.get(), SOL_SOCKET, plain, &buffer, sizeof buffer);
  const verbs::SocketAddress at(address, verbs::kRocePort, ifindex);
  const int bound = ::bind(socket.get(), at.get(), at.size);
  if (bound != 0 && errno == EADDRINUSE)
    return fail(EADDRINUSE, "another program has UDP port 4791 of " + address.text() +
                                ", for example the kernel's rxe");
  if (bound != 0) return fail_errno("bind UDP port 4791 of " + address.text());
  return socket;
}

}  // namespace

Result<RoceSockets> make_roce_sockets(const verbs::Gid& address, uint32_t ifindex) {
  auto gsi = make_socket(address, ifindex, false);
  if (!gsi) return pass(std::move(gsi).error());
  auto data = make_socket(address, ifindex, true);
  if (!data) return pass(std::move(data).error());
  return RoceSockets{std::move(*gsi), std::move(*data)};
}

}  // namespace vrdma::vrdmad
