#include "vrdmad/broker/roce_sockets.h"

#include <arpa/inet.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <thread>

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

// Runs `test` on a thread in a network namespace of its own.
template <class Test>
void in_own_netns(Test test) {
  bool entered = false;
  std::thread([&] {
    entered = enter_own_netns();
    if (entered) test();
  }).join();
  if (!entered) GTEST_SKIP() << "no network namespace";
}

// The first bytes of a packet to that queue pair.
std::array<uint8_t, 64> packet_to(uint32_t qpn) {
  return {0x64,
          0,
          0xff,
          0xff,
          0x80,
          static_cast<uint8_t>(qpn >> 16),
          static_cast<uint8_t>(qpn >> 8),
          static_cast<uint8_t>(qpn)};
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
  uint8_t bytes[256];
  while (::recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT) >= 0) ++many;
  return many;
}

TEST(RoceSocketsTest, ShareAnAddressByQueuePair) {
  in_own_netns([] {
    for (const Gid& gid : {kV4, kV6}) {
      auto sockets = make_roce_sockets(gid, 0);
      ASSERT_TRUE(sockets) << sockets.error().message();
      for (const uint32_t qpn : {1u, 0x010001u, 0x7fu, 0xffffffu, 0u, 1u})
        send_to(sockets->data, gid, packet_to(qpn).data(), 64);
      EXPECT_EQ(count(sockets->gsi), 2u);
      EXPECT_EQ(count(sockets->data), 4u);
      send_to(sockets->data, gid, "short", 5);
      EXPECT_EQ(count(sockets->gsi), 1u);
      EXPECT_EQ(count(sockets->data), 0u);
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
