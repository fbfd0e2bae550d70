// Tests without privileges: queries into our own namespace. tests/integration/netns_monitor_test.cc
// tests the rest with real namespaces.
#include "netns/route_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/rtnetlink.h>

#include <cerrno>

#include "netns/netns.h"

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
