// Sockets as the broker makes them (vrdmad/broker/roce_sockets.h), in a network namespace of a
// test.
#pragma once

#include <arpa/inet.h>
#include <netinet/udp.h>

#include "core/base/fd.h"
#include "tests/unit/vrdmad/enter_own_netns.h"
#include "transport/roce/outgoing.h"

namespace vrdma::transport::roce {

inline verbs::Gid gid_of(const char* text) {
  verbs::Gid gid;
  EXPECT_EQ(::inet_pton(AF_INET6, text, gid.bytes.data()), 1);
  return gid;
}
inline const verbs::Gid kA = gid_of("::ffff:127.0.0.1"), kB = gid_of("::ffff:127.0.0.2");
inline const verbs::Gid kV6 = gid_of("::1");

inline base::Fd socket_at(const verbs::Gid& gid, uint16_t port = wire::kRocePort) {
  const bool ipv4 = gid.is_ipv4_mapped();
  base::Fd socket(
      ::socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1, no_fragments = IP_PMTUDISC_PROBE;
  const int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
  EXPECT_EQ(::setsockopt(socket.get(), level, ipv4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
                         &no_fragments, sizeof no_fragments),
            0);
  for (const int option :
       {ipv4 ? IP_RECVTOS : IPV6_RECVTCLASS, ipv4 ? IP_RECVTTL : IPV6_RECVHOPLIMIT})
    EXPECT_EQ(::setsockopt(socket.get(), level, option, &on, sizeof on), 0);
  EXPECT_EQ(::setsockopt(socket.get(), IPPROTO_UDP, UDP_GRO, &on, sizeof on), 0);
  const verbs::SocketAddress at(gid, port, 0);
  EXPECT_EQ(::bind(socket.get(), at.get(), at.size), 0);
  return socket;
}

class OwnNetns : public testing::Test {
 protected:
  void SetUp() override {
    if (!vrdmad::enter_own_netns()) GTEST_SKIP() << "no network namespace";
  }
};

}  // namespace vrdma::transport::roce
