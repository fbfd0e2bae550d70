#include "gid/interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/gid/gid_text.h"

namespace vrdma::gid {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Interface interface_with(std::initializer_list<const char*> addresses) {
  Interface interface;
  interface.mac = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
  for (const auto& gid : gids_of(addresses)) interface.addresses.push_back(gid.bytes);
  return interface;
}

TEST(DeriveGids, BeginsWithTheLinkLocalOfTheMac) {
  EXPECT_THAT(texts_of(derive_gids(interface_with({})).gids),
              ElementsAre("fe80::11:22ff:fe33:4455"));
  EXPECT_EQ(link_local({0x00, 0x11, 0x22, 0x33, 0x44, 0x55}).text(), "fe80::211:22ff:fe33:4455");
}

TEST(DeriveGids, MapsIpv4AndKeepsTheOrder) {
  EXPECT_THAT(
      texts_of(derive_gids(interface_with({"10.0.0.2", "10.0.0.1", "fd00::7"})).gids),
      ElementsAre("fe80::11:22ff:fe33:4455", "::ffff:10.0.0.2", "::ffff:10.0.0.1", "fd00::7"));
}

TEST(DeriveGids, NamesNoGidTwice) {
  EXPECT_THAT(texts_of(derive_gids(interface_with({"10.0.0.1", "fe80::11:22ff:fe33:4455",
                                                   "10.0.0.1", "fe80::5"}))
                           .gids),
              ElementsAre("fe80::11:22ff:fe33:4455", "::ffff:10.0.0.1", "fe80::5"));
}

TEST(DeriveGids, LeavesOutWhatNobodyElseCanReach) {
  auto interface = interface_with({"127.0.0.1", "127.8.9.1", "::1", "::", "0.0.0.0", "ff02::1",
                                   "224.0.0.1", "239.1.2.3", "10.127.0.1", "::2"});
  interface.mac.reset();
  EXPECT_THAT(texts_of(derive_gids(interface).gids), ElementsAre("::ffff:10.127.0.1", "::2"));
}

TEST(DeriveGids, KeepsLoopbackAddressesOfTheLoopback) {
  auto interface = interface_with({"127.0.0.1", "::1"});
  interface.mac = {0, 0, 0, 0, 0, 0};
  interface.loopback = true;
  EXPECT_THAT(texts_of(derive_gids(interface).gids),
              ElementsAre("fe80::200:ff:fe00:0", "::ffff:127.0.0.1", "::1"));
}

TEST(DeriveGids, PutsThoseThatAreHeldFirstInTheirOrder) {
  const auto held = gids_of({"fd00::9", "fd00::7", "10.0.0.1", "fe80::11:22ff:fe33:4455"});
  EXPECT_THAT(
      texts_of(derive_gids(interface_with({"10.0.0.2", "10.0.0.1", "fd00::7"}), held).gids),
      ElementsAre("fe80::11:22ff:fe33:4455", "::ffff:10.0.0.1", "fd00::7", "::ffff:10.0.0.2"));
}

std::array<uint8_t, 16> numbered(size_t i) {
  return {0xfd,
          0,
          0,
          0,
          0,
          0,
          0,
          0,
          0,
          0,
          0,
          0,
          0,
          0,
          static_cast<uint8_t>(i >> 8),
          static_cast<uint8_t>(i)};
}

TEST(DeriveGids, GivesNoMoreThanATableHoldsAndTakesNoneAwayForNewOnes) {
  Interface interface = interface_with({});
  for (size_t i = 0; i < verbs::kMaxGids - 1; ++i) interface.addresses.push_back(numbered(i));
  const auto full = derive_gids(interface);
  EXPECT_EQ(full.gids.size(), verbs::kMaxGids);
  EXPECT_EQ(full.left_out, 0U);

  Interface crowd = interface_with({});  // the newest first, as the kernel lists IPv6
  for (size_t i = 20'000; i-- > 0;) crowd.addresses.push_back(numbered(i));
  const auto crowded = derive_gids(crowd, full.gids);
  EXPECT_EQ(crowded.gids, full.gids);
  EXPECT_EQ(crowded.left_out, 20'001 - verbs::kMaxGids);
  EXPECT_EQ(derive_gids(crowd).gids.at(1).bytes, numbered(19'999)) << "no GID is held yet";

  crowd.addresses.pop_back();  // numbered(0), which had a GID
  const auto next = derive_gids(crowd, full.gids);
  EXPECT_EQ(next.gids.size(), verbs::kMaxGids);
  EXPECT_EQ(next.gids.back().bytes, numbered(19'999));
}

TEST(DeriveGids, GivesNoneForNothing) { EXPECT_THAT(derive_gids(Interface{}).gids, IsEmpty()); }

}  // namespace
}  // namespace vrdma::gid
