#include "vrdmad/control/same_spec.h"

#include <gtest/gtest.h>

namespace vrdma::vrdmad {
namespace {

VdevSpec spec() {
  VdevSpec spec;
  spec.name = "mlx5_0";
  spec.netns = "red";
  spec.netdev = "eth0";
  spec.tenant = "shop";
  spec.fabric = "f";
  spec.quota = {{"qp", 64}, {"mr", UINT64_MAX}};
  spec.allow = {"qp1", "raw-packet"};
  spec.addresses = {"10.0.0.1/24", "fd00::/64"};
  spec.owner = {42, 7, "b"};
  spec.end_with_owner = true;
  spec.labels = {{"pod", "a"}};
  return spec;
}

// The difference after `change` is applied to the request.
template <class Change>
std::string after(Change change) {
  VdevSpec wanted = spec();
  change(wanted);
  const auto made = canonical(spec()), asked = canonical(wanted);
  EXPECT_TRUE(made && asked);
  return difference(*made, *asked).value_or("");
}

TEST(SameSpec, what_says_the_same_is_the_same) {
  EXPECT_EQ(after([](VdevSpec&) {}), "");
  EXPECT_EQ(after([](VdevSpec& s) {
              s.quota = {{"mr", UINT64_MAX}, {"qp", 64}};
              s.allow = {"raw-packet", "qp1"};
              s.addresses = {"fd00::/64", "10.0.0.0/24"};
              s.netns = "/run/netns/red";
            }),
            "");
}

TEST(SameSpec, each_difference_is_named) {
  EXPECT_EQ(after([](VdevSpec& s) { s.netdev = "eth1"; }), "netdev eth0, not eth1");
  EXPECT_EQ(after([](VdevSpec& s) { s.parent = "mlx5_9"; }), "parent soft, not mlx5_9");
  EXPECT_EQ(after([](VdevSpec& s) { s.tenant = ""; }), "tenant shop, not none");
  EXPECT_EQ(after([](VdevSpec& s) { s.fabric = "g"; }), "fabric f, not g");
  EXPECT_EQ(after([](VdevSpec& s) { s.quota[0].limit = 65; }), "quota qp=64, not qp=65");
  EXPECT_EQ(after([](VdevSpec& s) { s.quota.pop_back(); }), "quota mr=max, not no mr");
  EXPECT_EQ(after([](VdevSpec& s) { s.quota.push_back({"cq", 1}); }), "quota no cq, not cq=1");
  EXPECT_EQ(after([](VdevSpec& s) { s.allow = {}; }), "permissions raw-packet,qp1, not none");
  EXPECT_EQ(after([](VdevSpec& s) { s.no_direct = true; }), "direct links, not without");
  EXPECT_EQ(after([](VdevSpec& s) { s.addresses.pop_back(); }),
            "addresses 10.0.0.0/24,fd00::/64, not 10.0.0.0/24");
  EXPECT_EQ(after([](VdevSpec& s) { s.owner.start_time = 8; }),
            "owner 42 (start time 7), not 42 (start time 8)");
  EXPECT_EQ(after([](VdevSpec& s) {
              s.owner = {};
              s.end_with_owner = false;
            }),
            "owner 42 (start time 7), not none");
  EXPECT_EQ(after([](VdevSpec& s) { s.end_with_owner = false; }),
            "an end with its owner, not without one");
  EXPECT_EQ(after([](VdevSpec& s) { s.labels["pod"] = "b"; }), "label pod=a, not pod=b");
  EXPECT_EQ(after([](VdevSpec& s) { s.labels["x"] = "y"; }), "label no x, not x=y");
}

TEST(SameSpec, nothing_ends_with_an_owner_that_it_does_not_have) {
  VdevSpec without = spec();
  without.owner = {};
  EXPECT_FALSE(canonical(without));
  VdevSpec odd = spec();
  odd.addresses = {"10.0.0.0/99"};
  EXPECT_FALSE(canonical(odd));
  odd.addresses = {};
  odd.allow = {"frogs"};
  EXPECT_FALSE(canonical(odd));
}

}  // namespace
}  // namespace vrdma::vrdmad
