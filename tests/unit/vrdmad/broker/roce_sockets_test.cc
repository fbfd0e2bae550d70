#include "vrdmad/broker/roce_sockets.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "core/verbs/socket_address.h"
#include "tests/unit/vrdmad/enter_own_netns.h"

namespace vrdma::vrdmad {
namespace {

using verbs::Gid;

Gid gid_of(const char* text) {
  Gid gid;
  EXPECT_EQ(::inet_pton(AF_INET6, text, gid.bytes.data()), 1);
  return gid;
}
const Gid kV4 = gid_of("::ffff:127.0.0.1"), kV6 = gid_of("::1");

constexpr size_t kMadSize = 12 + 8 + 256 + 4;
using Bytes = std::array<uint8_t, kMadSize + 4>;

// The first bytes of a packet to that queue pair, with the Q_Key of MADs.
Bytes packet_to(uint32_t qpn) {
  return {0x64,
          0,
          0xff,
          0xff,
          0x80,
          static_cast<uint8_t>(qpn >> 16),
          static_cast<uint8_t>(qpn >> 8),
          static_cast<uint8_t>(qpn),
          0,
          0,
          0,
          0,
          0x80,
          0x01};
}

void send_to(const base::Fd& from, const Gid& gid, const void* bytes, size_t size) {
  sockaddr_in in{AF_INET, htons(4791), {htonl(INADDR_LOOPBACK)}, {}};
  sockaddr_in6 in6{AF_INET6, htons(4791), 0, IN6ADDR_LOOPBACK_INIT, 0};
  const bool ipv4 = gid.is_ipv4_mapped();
  EXPECT_EQ(::sendto(from.get(), bytes, size, 0,
                     ipv4 ? reinterpret_cast<const sockaddr*>(&in)
                          : reinterpret_cast<const sockaddr*>(&in6),
                     ipv4 ? sizeof in : sizeof in6),
            static_cast<ssize_t>(size));
}

// How many packets have come.
size_t count(const base::Fd& socket) {
  size_t many = 0;
  uint8_t bytes[512];
  while (::recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT) >= 0) ++many;
  return many;
}

TEST(RoceSocketsTest, ShareAnAddressByQueuePair) {
  in_own_netns([] {
    for (const Gid& gid : {kV4, kV6}) {
      auto sockets = make_roce_sockets(gid, 0);
      ASSERT_TRUE(sockets) << sockets.error().message();
      for (const uint32_t qpn : {1u, 0x010001u, 0x7fu, 0xffffffu, 0u, 1u})
        send_to(sockets->data, gid, packet_to(qpn).data(), kMadSize);
      EXPECT_EQ(count(sockets->gsi), 2u);
      EXPECT_EQ(count(sockets->data), 4u);
    }
  });
}

TEST(RoceSocketsTest, TakeOnlyWhatMayBeAMadForQueuePair1) {
  in_own_netns([] {
    for (const Gid& gid : {kV4, kV6}) {
      auto sockets = make_roce_sockets(gid, 0);
      ASSERT_TRUE(sockets) << sockets.error().message();
      const auto taken = [&](const Bytes& bytes, size_t size) {
        send_to(sockets->data, gid, bytes.data(), size);
        EXPECT_EQ(count(sockets->data), 0u);
        return count(sockets->gsi);
      };
      const Bytes mad = packet_to(1);
      EXPECT_EQ(taken(mad, kMadSize), 1u);
      for (const size_t size : std::initializer_list<size_t>{0, 5, 64, kMadSize - 4, kMadSize + 4})
        EXPECT_EQ(taken(mad, size), 0u) << size;
      for (const size_t at :
           std::initializer_list<size_t>{0, 12, 13, 14, 15}) {  // the operation, the Q_Key
        Bytes other = mad;
        other.at(at) ^= 1;
        EXPECT_EQ(taken(other, kMadSize), 0u) << at;
      }
    }
  });
}

// Another address, or another namespace, is another pair.
TEST(RoceSocketsTest, AreForOneAddress) {
  in_own_netns([] {
    auto sockets = make_roce_sockets(kV4, 0);
    ASSERT_TRUE(sockets) << sockets.error().message();
    EXPECT_TRUE(make_roce_sockets(gid_of("::ffff:127.0.0.2"), 0));
    const auto foreign = make_roce_sockets(gid_of("::ffff:10.1.2.3"), 0);
    ASSERT_FALSE(foreign);
    EXPECT_EQ(foreign.error().code(), EADDRNOTAVAIL);
    in_own_netns([] { EXPECT_TRUE(make_roce_sockets(kV4, 0)); });
  });
}

uint16_t port_of(const base::Fd& socket) {
  sockaddr_in6 at{};
  socklen_t size = sizeof at;
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  return ntohs(at.sin6_port);  // where sin_port is, too
}
base::Fd bound_to(uint16_t port, bool shares) {
  base::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int on = shares ? 1 : 0;
  EXPECT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  const sockaddr_in at{AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}};
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) socket.reset();
  return socket;
}

TEST(SourceSocketsTest, SendFromTheirPortsAndReceiveNothing) {
  in_own_netns([] {
    for (const Gid& gid : {kV4, kV6}) {
      auto sockets = make_roce_sockets(gid, 0);
      auto sources = make_source_sockets(gid, 0, verbs::kMostSourcePorts);
      ASSERT_TRUE(sockets && sources);
      ASSERT_EQ(sources->size(), verbs::kMostSourcePorts);
      for (unsigned i = 0; i < sources->size(); ++i) {
        const base::Fd& source = (*sources)[i];
        EXPECT_EQ(port_of(source), verbs::few_source_port(i));
        send_to(source, gid, packet_to(7).data(), 64);
        const verbs::SocketAddress back(gid, verbs::few_source_port(i), 0);
        EXPECT_EQ(::sendto(sockets->data.get(), "answer", 6, 0, back.get(), back.size), 6);
        EXPECT_EQ(count(source), 0u);
        const int nothing = 0;
        EXPECT_NE(
            ::setsockopt(source.get(), SOL_SOCKET, SO_DETACH_FILTER, &nothing, sizeof nothing), 0)
            << "a worker could let it be filled";
        EXPECT_EQ(::sendto(sockets->data.get(), "answer", 6, 0, back.get(), back.size), 6);
        EXPECT_EQ(count(source), 0u);
      }
      EXPECT_EQ(count(sockets->data), verbs::kMostSourcePorts);
    }
  });
}

TEST(SourceSocketsTest, LeavePortsToOtherPrograms) {
  in_own_netns([] {
    const base::Fd before = bound_to(verbs::few_source_port(1), false);
    auto sources = make_source_sockets(kV4, 0, 3);
    ASSERT_TRUE(sources) << sources.error().message();
    ASSERT_EQ(sources->size(), 3u);
    EXPECT_TRUE((*sources)[0].valid());
    EXPECT_FALSE((*sources)[1].valid()) << "it is another program's";
    EXPECT_TRUE((*sources)[2].valid());
    const base::Fd later = bound_to(verbs::few_source_port(2), true);
    ASSERT_TRUE(later.valid()) << "a program that shares its port cannot have it";
    sockaddr_in to{AF_INET, htons(verbs::few_source_port(2)), {htonl(INADDR_LOOPBACK)}, {}};
    EXPECT_EQ(
        ::sendto((*sources)[0].get(), "for it", 6, 0, reinterpret_cast<sockaddr*>(&to), sizeof to),
        6);
    EXPECT_EQ(count(later), 1u);
    const auto foreign = make_source_sockets(gid_of("::ffff:10.1.2.3"), 0, 3);
    ASSERT_FALSE(foreign);
    EXPECT_EQ(foreign.error().code(), EADDRNOTAVAIL);
  });
}

// The group's line in /proc/net/igmp, or in igmp6.
bool is_member(const Gid& group) {
  std::string wanted;
  const bool ipv4 = group.is_ipv4_mapped();
  for (size_t i = 0; i < (ipv4 ? 4u : 16u); ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, ipv4 ? "%02X" : "%02x", group.bytes[15 - i]);
    wanted = ipv4 ? wanted + digits : digits + wanted;
  }
  std::ifstream file(ipv4 ? "/proc/thread-self/net/igmp" : "/proc/thread-self/net/igmp6");
  const std::string all(std::istreambuf_iterator<char>(file), {});
  return all.find(wanted) != std::string::npos;
}

TEST(RoceSocketsTest, AreInAGroupWhileTheyAreOpen) {
  in_own_netns([] {
    const uint32_t lo = ::if_nametoindex("lo");
    for (const char* text : {"::ffff:239.1.2.3", "ff0e::1:7", "ff02::77"}) {
      const Gid group = gid_of(text);
      EXPECT_FALSE(is_member(group));
      {
        auto socket = make_group_socket(group, lo);
        ASSERT_TRUE(socket) << socket.error().message();
        EXPECT_TRUE(is_member(group)) << text;
        // As of two vdevices of one namespace.
        EXPECT_TRUE(make_group_socket(group, lo));
      }
      EXPECT_FALSE(is_member(group)) << text;
    }
    const auto nowhere = make_group_socket(gid_of("::ffff:239.1.2.3"), lo + 1000);
    ASSERT_FALSE(nowhere);
    EXPECT_EQ(nowhere.error().code(), ENODEV);
  });
}

TEST(RoceSocketsTest, HearAGroupButNotThisNamespace) {
  in_own_netns([] {
    // lo hears whatever is sent by it.
    if (std::system("ip link add v0 type veth peer name v1 && ip link set v0 up && "
                    "ip link set v1 up && ip address add 10.0.0.1/24 dev v0") != 0)
      GTEST_SKIP() << "no veth";
    const uint32_t v0 = ::if_nametoindex("v0");
    const Gid group = gid_of("::ffff:239.1.2.3");
    auto socket = make_group_socket(group, v0);
    auto own = make_roce_sockets(gid_of("::ffff:10.0.0.1"), v0);
    ASSERT_TRUE(socket && own);
    const base::Fd other(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const ip_mreqn by{{}, {}, static_cast<int>(v0)};
    ASSERT_EQ(::setsockopt(other.get(), IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by), 0);
    const verbs::SocketAddress to(group, verbs::kRocePort, v0);
    for (const int from : {own->data.get(), other.get()})
      EXPECT_EQ(::sendto(from, "packet", 6, 0, to.get(), to.size), 6);
    EXPECT_EQ(count(*socket), 1u) << "that of the socket that wants to be heard here";
    EXPECT_EQ(count(own->data) + count(own->gsi), 0u);
  });
}

TEST(RoceSocketsTest, SayWhenThePortIsTaken) {
  in_own_netns([] {
    const base::Fd other(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const sockaddr_in in{AF_INET, htons(4791), {htonl(INADDR_ANY)}, {}};
    ASSERT_EQ(::bind(other.get(), reinterpret_cast<const sockaddr*>(&in), sizeof in), 0);
    const auto sockets = make_roce_sockets(kV4, 0);
    ASSERT_FALSE(sockets);
    EXPECT_EQ(sockets.error().code(), EADDRINUSE);
    EXPECT_NE(sockets.error().message().find("another program has UDP port 4791"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace vrdma::vrdmad
