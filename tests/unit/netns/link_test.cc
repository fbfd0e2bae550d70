#include "netns/link.h"

#include <gtest/gtest.h>

#include <functional>

namespace vrdma::netns {
namespace {

Link up_link() {
  Link link;
  link.name = "eth0";
  link.mac = Mac{2};
  link.mtu = 1500;
  link.up = true;
  return link;
}
const Link kLink = up_link();

Link with(const std::function<void(Link&)>& change) {
  Link link = kLink;
  change(link);
  return link;
}

TEST(ChangeOf, NamesOneChange) {
  EXPECT_EQ(change_of(kLink, with([](Link& l) { l.up = false; })), "link down");
  EXPECT_EQ(change_of(with([](Link& l) { l.up = false; }), kLink), "link up");
  EXPECT_EQ(change_of(kLink, with([](Link& l) { l.name = "wire0"; })), "netdev renamed to wire0");
  EXPECT_EQ(change_of(kLink, with([](Link& l) { l.mtu = 9000; })), "MTU 9000");
  EXPECT_EQ(change_of(kLink, with([](Link& l) { l.addresses.push_back({}); })),
            "addresses changed");
  EXPECT_EQ(change_of(kLink, with([](Link& l) { l.mac = Mac{4}; })), "addresses changed");
}

TEST(ChangeOf, NamesAllChangesThatWereReadAtOnce) {
  EXPECT_EQ(change_of(kLink, with([](Link& l) {
                        l.up = false;
                        l.name = "wire0";
                      })),
            "link down, netdev renamed to wire0");
  EXPECT_EQ(change_of(with([](Link& l) { l.up = false; }), with([](Link& l) {
                        l.name = "wire0";
                        l.mtu = 9000;
                        l.addresses.push_back({});
                      })),
            "link up, netdev renamed to wire0, MTU 9000, addresses changed");
}

TEST(ChangeOf, NamesNothingWhereNothingDiffers) {
  EXPECT_EQ(change_of(kLink, kLink), "");
  EXPECT_EQ(change_of(kLink, with([](Link& l) { l.tentative.push_back({}); })), "");
}

}  // namespace
}  // namespace vrdma::netns
