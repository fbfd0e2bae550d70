#include "cli/who.h"

#include <gtest/gtest.h>

#include "cli/filter.h"
#include "cli/size_text.h"

namespace vrdma::cli {
namespace {

v1::Vdev vdev_of(uint64_t id, const std::string& name, const std::string& netns,
                 const std::string& pod = "") {
  v1::Vdev vdev;
  vdev.set_id(id);
  vdev.set_name(name);
  vdev.set_netns(netns);
  if (pod.empty()) return vdev;
  (*vdev.mutable_labels())["pod_namespace"] = "shop";
  (*vdev.mutable_labels())["pod_name"] = pod;
  return vdev;
}

TEST(Who, is_the_pod_else_the_container_else_the_process) {
  v1::Vdev vdev = vdev_of(1, "a", "red");
  EXPECT_EQ(who_of(vdev), "");
  vdev.set_netns("pid:119");
  EXPECT_EQ(who_of(vdev), "pid:119");
  vdev.mutable_owner()->set_pid(4711);
  EXPECT_EQ(who_of(vdev), "pid:4711");
  (*vdev.mutable_labels())["container"] = "0123456789abcdef";
  EXPECT_EQ(who_of(vdev), "0123456789ab");
  vdev.add_containers()->set_id("fedcba9876543210");
  EXPECT_EQ(who_of(vdev), "fedcba987654") << "what the hook says, not a label";
  (*vdev.mutable_labels())["pod_name"] = "web-0";
  EXPECT_EQ(who_of(vdev), "fedcba987654") << "half of a pod's name is none";
  (*vdev.mutable_labels())["pod_namespace"] = "shop";
  EXPECT_EQ(who_of(vdev), "shop/web-0");
}

TEST(References, are_as_short_as_the_daemon_allows) {
  const std::vector<v1::Vdev> all{
      vdev_of(1, "only", "red"),     vdev_of(2, "mlx5_0", "red"),
      vdev_of(3, "mlx5_0", "blue"),  vdev_of(4, "mlx5_0", "pid:7"),
      vdev_of(5, "mlx5_0", "pid:7"),  // which was another process
      vdev_of(6, "web-0", "shop"),   vdev_of(7, "web-0", "red", "web-0")};
  const References references(all);
  const std::vector<std::string> wanted{"only", "red/mlx5_0", "blue/mlx5_0", "id:4",
                                        "id:5", "id:6",       "red/web-0"};
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(references.of(all[i]), wanted[i]);
}

TEST(Filter, asks_for_all_of_it) {
  v1::Vdev vdev = vdev_of(1, "a", "red");
  vdev.set_tenant("shop");
  vdev.set_fabric("shared");
  vdev.set_port_state("DOWN");
  (*vdev.mutable_labels())["class"] = "small";
  EXPECT_TRUE(Filter().fits(vdev, true));
  EXPECT_FALSE(Filter().is_set(true));
  EXPECT_TRUE((Filter{.tenant = "shop", .netns = "red", .fabric = "shared"}.fits(vdev, true)));
  EXPECT_TRUE(Filter{.netns = "/run/netns/red"}.fits(vdev, true));
  for (const Filter& other : {Filter{.tenant = "other"}, Filter{.netns = "re"},
                              Filter{.fabric = "shop"}, Filter{.labels = {"class=big"}},
                              Filter{.labels = {"class", "rack"}}, Filter{.labels = {"class="}}}) {
    EXPECT_FALSE(other.fits(vdev, true));
    EXPECT_TRUE(other.is_set(false));
  }
  EXPECT_TRUE((Filter{.labels = {"class", "class=small"}}.fits(vdev, true)));
  const Filter active{.state = "ACTIVE"};
  EXPECT_FALSE(active.fits(vdev, true));
  EXPECT_TRUE(active.fits(vdev, false));
  EXPECT_FALSE(active.is_set(false));
}

TEST(Sizes, are_short_and_in_units_that_quota_set_accepts) {
  EXPECT_EQ(amount_text("qp", 1024, false), "1024");
  EXPECT_EQ(amount_text("mr_bytes", uint64_t{16} << 30, false), "16G");
  EXPECT_EQ(amount_text("mr_bytes", uint64_t{16} << 30, true), "17179869184");
  EXPECT_EQ(amount_text("mr_bytes", 1536, false), "1.5K");
  EXPECT_EQ(amount_text("mr_bytes", 0, false), "0");
  EXPECT_EQ(amount_text("bandwidth", 1'250'000'000, false), "10gbit");
  EXPECT_EQ(amount_text("bandwidth", UINT64_MAX, false), "max");
  EXPECT_EQ(amount_text("newer_kind", uint64_t{16} << 30, false), "17179869184");
  EXPECT_EQ(size_text(1023, false), "1023");
}

TEST(Sizes, numbers_are_short) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(999), "999");
  EXPECT_EQ(short_number(1000), "1.0k");
  EXPECT_EQ(short_number(9949), "9.9k");
  EXPECT_EQ(short_number(123'456), "123k");
  EXPECT_EQ(short_number(2.5e9), "2.5G");
}

}  // namespace
}  // namespace vrdma::cli
