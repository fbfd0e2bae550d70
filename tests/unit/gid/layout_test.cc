#include "gid/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gid/interface.h"
#include "gid/table.h"
#include "tests/unit/gid/gid_text.h"

namespace vrdma::gid {
namespace {

using testing::ElementsAre;

std::vector<std::string> laid(std::initializer_list<const char*> gids, Layout layout) {
  return texts_of(lay_out(gids_of(gids), layout));
}

TEST(Layout, DenseIsTheTableItself) {
  EXPECT_THAT(laid({"fe80::1", "10.0.0.1", "fd00::1"}, Layout::kDense),
              ElementsAre("fe80::1", "::ffff:10.0.0.1", "fd00::1"));
  EXPECT_THAT(laid({"fe80::1", "fd00::1"}, Layout::kDense), ElementsAre("fe80::1", "fd00::1"));
  EXPECT_THAT(laid({}, Layout::kDense), ElementsAre());
}

TEST(Layout, Mlx5HasTheFirstIpv4GidAtThree) {
  EXPECT_THAT(laid({"fe80::1", "10.0.0.1", "fd00::1", "10.0.0.2"}, Layout::kMlx5),
              ElementsAre("fe80::1", "::ffff:10.0.0.1", "::", "::ffff:10.0.0.1", "fd00::1",
                          "::ffff:10.0.0.2"));
  EXPECT_THAT(laid({"fe80::1", "10.0.0.1"}, Layout::kMlx5),
              ElementsAre("fe80::1", "::ffff:10.0.0.1", "::", "::ffff:10.0.0.1"));
}

TEST(Layout, Mlx5KeepsTheIndicesOfTheOthersWithoutIpv4) {
  EXPECT_THAT(laid({"fe80::1", "fd00::1"}, Layout::kMlx5),
              ElementsAre("fe80::1", "::", "::", "::", "fd00::1"));
  EXPECT_THAT(laid({"fe80::1"}, Layout::kMlx5), ElementsAre("fe80::1"));
}

TEST(Layout, WithoutADefaultGidTheFirstIpv4GidIsAtBoth) {
  EXPECT_THAT(laid({"10.0.0.1", "fd00::1"}, Layout::kDense),
              ElementsAre("::ffff:10.0.0.1", "::ffff:10.0.0.1", "fd00::1"));
  EXPECT_THAT(
      laid({"10.0.0.1", "fd00::1"}, Layout::kMlx5),
      ElementsAre("::ffff:10.0.0.1", "::ffff:10.0.0.1", "::", "::ffff:10.0.0.1", "fd00::1"));
}

TEST(Layout, NoTableIsLongerThanAByteCanName) {
  for (const bool mac : {false, true})
    for (const Layout layout : {Layout::kDense, Layout::kMlx5}) {
      Interface interface;
      if (mac) interface.mac = {2, 0, 0, 0, 0, 1};
      for (uint8_t i = 1; i < 250; ++i)
        for (const uint8_t net : {uint8_t{1}, uint8_t{2}})
          interface.addresses.push_back({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, net, i});
      const auto gids = derive_gids(interface, {}, room_of(layout)).gids;
      const auto table = lay_out(gids, layout);
      EXPECT_EQ(table.size(), verbs::kMaxGids);
      EXPECT_EQ(table.back(), gids.back()) << "each GID has an index";
    }
}

// The steps of a vdevice: derive, update, lay out.
struct Vdevice : testing::Test {
  Interface interface;
  Table table;
  std::vector<std::string> with(std::initializer_list<const char*> addresses) {
    interface.mac = {2, 0, 0, 0, 0, 1};
    interface.addresses.clear();
    for (const auto& gid : gids_of(addresses)) interface.addresses.push_back(gid.bytes);
    table.update(derive_gids(interface, table.gids()).gids);
    return texts_of(table.gids());
  }
};

TEST_F(Vdevice, IndexOneIsTheFirstIpv4AddressWheneverThereIsOne) {
  EXPECT_THAT(with({"fd00::1", "10.0.0.1"}),
              ElementsAre("fe80::ff:fe00:1", "::ffff:10.0.0.1", "fd00::1"));
  EXPECT_THAT(with({"fd00::1"}), ElementsAre("fe80::ff:fe00:1", "fd00::1"));
  EXPECT_THAT(with({"fd00::1", "fd00::2", "10.0.0.1"}),
              ElementsAre("fe80::ff:fe00:1", "::ffff:10.0.0.1", "fd00::1", "fd00::2"));
}

TEST_F(Vdevice, IndexOneStaysUntilItsAddressGoes) {
  with({"10.0.0.1"});
  EXPECT_THAT(with({"10.0.0.9", "10.0.0.1"}),
              ElementsAre("fe80::ff:fe00:1", "::ffff:10.0.0.1", "::ffff:10.0.0.9"));
  EXPECT_THAT(with({"fd00::1", "10.0.0.9"}),
              ElementsAre("fe80::ff:fe00:1", "::ffff:10.0.0.9", "fd00::1"));
  EXPECT_THAT(with({"10.0.0.1", "fd00::1", "10.0.0.9"}),
              ElementsAre("fe80::ff:fe00:1", "::ffff:10.0.0.9", "fd00::1", "::ffff:10.0.0.1"));
}

TEST_F(Vdevice, AFullTableMakesRoomForTheFirstIpv4Address) {
  for (size_t i = 0; i < 2 * verbs::kMaxGids; ++i)
    interface.addresses.push_back({0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
                                   static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)});
  interface.mac = {2, 0, 0, 0, 0, 1};
  table.update(derive_gids(interface, table.gids()).gids);
  interface.addresses.push_back(gid_of("10.0.0.1").bytes);
  table.update(derive_gids(interface, table.gids()).gids);
  EXPECT_EQ(table.gids().size(), verbs::kMaxGids);
  EXPECT_EQ(table.gids()[1], gid_of("10.0.0.1"));
}

TEST(Layout, IsReadFromItsName) {
  for (const Layout layout : {Layout::kDense, Layout::kMlx5}) {
    const auto parsed = parse_layout(text_of(layout));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, layout);
  }
  EXPECT_EQ(parse_layout("").value(), Layout::kDense);
  const auto wrong = parse_layout("mlx4");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code(), EINVAL);
  EXPECT_EQ(wrong.error().message(),
            "'mlx4' is not a layout of a GID table: use 'dense' or 'mlx5'");
}

}  // namespace
}  // namespace vrdma::gid
