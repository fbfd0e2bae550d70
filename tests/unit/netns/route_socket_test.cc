// Tests without privileges: queries into our own namespace. tests/integration/netns_monitor_test.cc
// tests the rest with real namespaces.
#include "netns/route_socket.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include <cerrno>
#include <cstdlib>

#include "netns/netns.h"
#include "tests/unit/vrdmad/enter_own_netns.h"

namespace vrdma::netns {
namespace {

TEST(RouteQueries, ReadALink) {
  auto queries = RouteQueries::open();
  ASSERT_TRUE(queries) << queries.error().message();
  const auto link = queries->link(kOwnNetns, "lo", 0);
  ASSERT_TRUE(link) << link.error().message();
  EXPECT_EQ(link->name, "lo");
  EXPECT_EQ(link->ifindex, 1u);
  EXPECT_TRUE(link->loopback);
  EXPECT_EQ(link->mac, Mac{});
  EXPECT_GT(link->mtu, 0u);
  EXPECT_EQ(*queries->link(kOwnNetns, "", link->ifindex), *link);
}

TEST(RouteQueries, PassTheKernelsErrorOnAndStayUsable) {
  auto queries = RouteQueries::open();
  ASSERT_TRUE(queries);
  for (int i = 0; i < 3; ++i) {
    const auto link = queries->link(kOwnNetns, "nosuchdev", 0);
    ASSERT_FALSE(link);
    EXPECT_EQ(link.error().code(), ENODEV) << link.error().message();
    EXPECT_FALSE(queries->link(kOwnNetns, "", 0x7ffffff0));
    EXPECT_TRUE(queries->link(kOwnNetns, "lo", 0));
  }
}

TEST(RouteQueries, AskForTheNsidOfOurOwnNetns) {
  auto queries = RouteQueries::open();
  const auto own = current();
  ASSERT_TRUE(queries && own);
  EXPECT_TRUE(queries->nsid_of(own->fd, false));
}

Address address(const char* text) {
  Address bytes;
  EXPECT_EQ(::inet_pton(AF_INET6, text, bytes.data()), 1);
  return bytes;
}

// In a namespace of its own: 10.0.0.1/24 and fd00::1/64 at v0, 10.0.0.7 as a gateway that is known.
void ask_about_ways() {
  constexpr const char* kMake =
      "ip link add v0 type veth peer name v1 && ip address add 10.0.0.1/24 dev v0 && "
      "ip address add fd00::1/64 dev v0 nodad && ip link set v0 up && ip link set v1 up && "
      "ip neighbour add 10.0.0.7 lladdr 02:00:00:00:00:07 dev v0 nud permanent && "
      "ip route add 10.9.0.0/16 via 10.0.0.7 && "
      "ip address add 10.1.0.1/24 dev v1 && ip route add 10.7.0.0/16 via 10.1.0.7 && "
      "ip route add 10.9.2.0/24 via 10.0.0.7 mtu 1400 hoplimit 9 && ip route add unreachable "
      "10.8.0.0/16";
  if (std::system(kMake) != 0) GTEST_SKIP() << "no veth";
  auto socket = make_route_socket();
  ASSERT_TRUE(socket) << socket.error().message();
  auto queries = RouteQueries::by(std::move(*socket));
  ASSERT_TRUE(queries) << queries.error().message();
  const uint32_t v0 = ::if_nametoindex("v0");
  const Address own = address("::ffff:10.0.0.1"), own6 = address("fd00::1");

  const auto near = queries->next_hop(own, address("::ffff:10.0.0.2"), v0);
  ASSERT_TRUE(near) << near.error().message();
  EXPECT_EQ(near->ifindex, v0);
  EXPECT_EQ(near->address, address("::ffff:10.0.0.2"));
  EXPECT_EQ(queries->neighbour(*near), 0);
  const auto far = queries->next_hop(own, address("::ffff:10.9.1.1"), v0);
  ASSERT_TRUE(far) << far.error().message();
  EXPECT_EQ(far->address, address("::ffff:10.0.0.7"));
  EXPECT_EQ(queries->neighbour(*far), NUD_PERMANENT);
  EXPECT_EQ(far->mtu, 0u);
  EXPECT_EQ(far->hop_limit, 0);
  const auto narrow = queries->next_hop(own, address("::ffff:10.9.2.1"), v0);
  ASSERT_TRUE(narrow) << narrow.error().message();
  EXPECT_EQ(narrow->mtu, 1400u);
  EXPECT_EQ(narrow->hop_limit, 9);
  const auto here = queries->next_hop(own, own, v0);
  ASSERT_TRUE(here) << here.error().message();
  EXPECT_EQ(here->ifindex, 0u);
  // Each address of the kernel's choice.
  for (const auto& [to, from] :
       {std::pair("::ffff:10.0.0.2", "::ffff:10.0.0.1"),
        std::pair("::ffff:10.9.1.1", "::ffff:10.0.0.1"),
        std::pair("::ffff:10.7.1.1", "::ffff:10.1.0.1"), std::pair("fd00::9", "fd00::1")}) {
    const auto chosen = queries->next_hop(address(to));
    ASSERT_TRUE(chosen) << chosen.error().message();
    EXPECT_EQ(chosen->source, address(from)) << to;
  }
  EXPECT_EQ(queries->next_hop(address("::ffff:172.16.0.1")).error().code(), ENETUNREACH);
  const auto of_link = queries->next_hop(own6, address("fe80::7"), v0);
  ASSERT_TRUE(of_link) << of_link.error().message();
  EXPECT_EQ(of_link->ifindex, v0);
  EXPECT_EQ(queries->next_hop(own, address("::ffff:10.8.1.1"), v0).error().code(), EHOSTUNREACH);
  EXPECT_EQ(queries->next_hop(own, address("::ffff:172.16.0.1"), v0).error().code(), ENETUNREACH);
  EXPECT_EQ(queries->next_hop(own6, address("fd77::1"), v0).error().code(), ENETUNREACH);
}

TEST(RouteQueries, KnowTheWayToAnAddress) { vrdmad::in_own_netns(ask_about_ways); }

// A tenant may have any number of them.
TEST(RouteQueries, ReadNoMoreThanSoManyAddresses) {
  vrdmad::in_own_netns([] {
    constexpr const char* kMake =
        "ip link add v0 type veth peer name v1 && ip link set v0 up && for i in $(seq 300); do "
        "echo address add 10.0.$((i / 250)).$((i % 250 + 1))/32 dev v0; done | ip -batch -";
    if (std::system(kMake) != 0) GTEST_SKIP() << "no veth";
    auto queries = RouteQueries::open();
    ASSERT_TRUE(queries) << queries.error().message();
    for (int i = 0; i < 2; ++i) {  // what was not read does not disturb the next query
      const auto link = queries->link(kOwnNetns, "v0", 0);
      ASSERT_TRUE(link) << link.error().message();
      EXPECT_EQ(link->name, "v0");
      EXPECT_EQ(link->addresses.size(), Link::kMostAddresses);
    }
  });
}

TEST(RouteEvents, AreNoneWhereNothingHappens) {
  auto events = RouteEvents::open({RTNLGRP_NSID}, false, 65536);
  ASSERT_TRUE(events) << events.error().message();
  EXPECT_TRUE(events->receive([](int, nlmsghdr*) {}));
}

TEST(GoneText, IsASentenceForEach) {
  for (const Gone gone : {Gone::kDeleted, Gone::kMoved, Gone::kNetns, Gone::kVanished})
    EXPECT_STRNE(text(gone), "");
}

}  // namespace
}  // namespace vrdma::netns
