#include "vrdmad/broker/roce_sockets.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>

#include "core/verbs/socket_address.h"
#include "netns/route_socket.h"

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
constexpr int kDataBuffer = 4 << 20, kOtherBuffer = 256 << 10;
// What a queue pair sends at once. There are up to kMostSourcePorts for an address, and a netdev
// that does not send keeps all of it.
constexpr int kSourceBuffer = 1 << 20;
// As to one peer, of a packet that does not say it.
constexpr int kHopsToGroups = 64;

// Of a datagram with a MAD: the base and the datagram extended transport header, from the UDP
// header on, and its length (IBTA 9.2, 9.3, 13.4.3). The opcode is that of UD SEND only.
constexpr uint32_t kBth = sizeof(udphdr), kDeth = kBth + 12, kMadDatagram = kDeth + 8 + 256 + 4;
constexpr uint32_t kMadOpcode = 0x64, kMadQpn = 1, kMadQkey = 0x80010000;

enum class Use : uint8_t { kGsi, kData, kGroup, kSource };

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
// Of a datagram, from the UDP header on: all of a MAD to queue pair 1, nothing of others.
sock_filter kIfMad[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMadDatagram, 0, 8),
    BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kBth),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMadOpcode, 0, 6),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kBth + 4),
    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMadQpn, 0, 3),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kDeth),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMadQkey, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, kMadDatagram),
    BPF_STMT(BPF_RET | BPF_K, 0),
};
const sock_fprog kMadsOnly{std::size(kIfMad), kIfMad};
sock_filter kNothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
const sock_fprog kDropAll{std::size(kNothing), kNothing};

// What is sent to a group leaves there (ip(7), IP_MULTICAST_IF; ipv6(7), IPV6_MULTICAST_IF).
bool send_to_groups_by(uint32_t ifindex, const Fd& socket, bool ipv4) {
  const ip_mreqn by{{}, {}, static_cast<int>(ifindex)};
  const int index = by.imr_ifindex;
  return (ipv4 ? ::setsockopt(socket.get(), IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by)
               : ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_MULTICAST_IF, &index,
                              sizeof index)) == 0;
}

// The kernel leaves the group when the socket is closed.
bool join(const verbs::SocketAddress& group, uint32_t ifindex, const Fd& socket) {
  group_req request{};
  request.gr_interface = ifindex;
  std::memcpy(&request.gr_group, group.get(), group.size);
  const int level = request.gr_group.ss_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
  return ::setsockopt(socket.get(), level, MCAST_JOIN_GROUP, &request, sizeof request) == 0;
}

bool attach(const sock_fprog& filter, const Fd& socket) {
  return ::setsockopt(socket.get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}

// The kernel drops all packets for the socket, and its holder cannot change that.
bool receive_nothing(const Fd& socket) {
  const int on = 1;
  return attach(kDropAll, socket) &&
         ::setsockopt(socket.get(), SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on) == 0;
}

Result<Fd> make_socket(const verbs::Gid& address, uint32_t ifindex, Use use,
                       uint16_t port = verbs::kRocePort) {
  const bool ipv4 = address.is_ipv4_mapped();
  Fd socket(::socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return fail_errno("make a UDP socket");
  // Fragments are forbidden, and what ICMP says of the path's MTU is ignored: anybody can forge
  // that, and a smaller packet than the queue pair's MTU cannot be sent anyway.
  const Option of_ipv4[] = {{IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE},
                            {IPPROTO_IP, IP_MULTICAST_TTL, kHopsToGroups},
                            {IPPROTO_IP, IP_MULTICAST_LOOP, 0},
                            {IPPROTO_IP, IP_RECVTOS, 1},
                            {IPPROTO_IP, IP_RECVTTL, 1}};
  // Native peers send no UDP checksum: the invariant CRC is in its place.
  const Option of_ipv6[] = {{IPPROTO_IPV6, IPV6_V6ONLY, 1},
                            {IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE},
                            {IPPROTO_IPV6, IPV6_MULTICAST_HOPS, kHopsToGroups},
                            {IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 0},
                            {IPPROTO_IPV6, IPV6_RECVTCLASS, 1},
                            {IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1},
                            {IPPROTO_UDP, UDP_NO_CHECK6_RX, 1}};
  const Option of_both[] = {{SOL_SOCKET, use == Use::kSource ? SO_REUSEADDR : SO_REUSEPORT, 1}};
  const Option of_data[] = {{IPPROTO_UDP, UDP_GRO, 1}};
  const auto set = [&socket](const auto& options) {
    for (const Option& one : options)
      if (::setsockopt(socket.get(), one.level, one.name, &one.value, sizeof one.value) != 0)
        return false;
    return true;
  };
  if (!set(of_both) || !(ipv4 ? set(of_ipv4) : set(of_ipv6)) ||
      ((use == Use::kData || use == Use::kGroup) && !set(of_data)) ||
      (use == Use::kSource && !receive_nothing(socket)) ||
      (use != Use::kGroup && !send_to_groups_by(ifindex, socket, ipv4)))
    return fail_errno("set the options of a socket for RoCE v2");
  // The first has the filter of both; a socket with one of its own could not share the address.
  if (use == Use::kGsi && (!attach(kMadsOnly, socket) ||
                           ::setsockopt(socket.get(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF,
                                        &kChoice, sizeof kChoice) != 0))
    return fail_errno("attach a filter to a socket for RoCE v2");
  const int buffer = use == Use::kData     ? kDataBuffer
                     : use == Use::kSource ? kSourceBuffer
                                           : kOtherBuffer;
  for (const auto& [forced, plain] :
       {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}})
    if (::setsockopt(socket.get(), SOL_SOCKET, forced, &buffer, sizeof buffer) != 0)
      (void)::setsockopt(socket.get(), SOL_SOCKET, plain, &buffer, sizeof buffer);
  const verbs::SocketAddress at(address, port, ifindex);
  const int index = static_cast<int>(ifindex);
  if (use == Use::kGroup &&
      (::setsockopt(socket.get(), SOL_SOCKET, SO_BINDTOIFINDEX, &index, sizeof index) != 0 ||
       !join(at, ifindex, socket)))
    return fail_errno("join the multicast group " + address.text());
  if (::bind(socket.get(), at.get(), at.size) == 0) return socket;
  const int why = errno;
  const std::string name = "UDP port " + std::to_string(port) + " of " + address.text();
  if (why == EADDRINUSE)
    return fail(EADDRINUSE, "another program has " + name +
                                ", for example the kernel's rxe ('rmmod rdma_rxe')");
  errno = why;
  return fail_errno("bind " + name);
}

}  // namespace

Result<RoceSockets> make_roce_sockets(const verbs::Gid& address, uint32_t ifindex) {
  auto gsi = make_socket(address, ifindex, Use::kGsi);
  if (!gsi) return pass(std::move(gsi).error());
  auto data = make_socket(address, ifindex, Use::kData);
  if (!data) return pass(std::move(data).error());
  auto routes = netns::make_route_socket();
  if (!routes) return pass(std::move(routes).error());
  return RoceSockets{std::move(*gsi), std::move(*data), std::move(*routes)};
}

Result<std::vector<Fd>> make_source_sockets(const verbs::Gid& address, uint32_t ifindex,
                                            size_t count) {
  std::vector<Fd> all(std::min<size_t>(count, verbs::kMostSourcePorts));
  for (unsigned i = 0; i < all.size(); ++i) {
    auto one = make_socket(address, ifindex, Use::kSource, verbs::few_source_port(i));
    if (!one && one.error().code() != EADDRINUSE) return pass(std::move(one).error());
    if (one) all[i] = std::move(*one);
  }
  return all;
}

Result<Fd> make_group_socket(const verbs::Gid& group, uint32_t ifindex) {
  return make_socket(group, ifindex, Use::kGroup);
}

}  // namespace vrdma::vrdmad
