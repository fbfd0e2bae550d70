#include "cli/web_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace vrdma::cli {
namespace {

using nlohmann::json;

v1::Vdev vdev_with(uint64_t id, const std::string& name, const std::string& fabric,
                   const std::string& gid) {
  v1::Vdev vdev;
  vdev.set_id(id);
  vdev.set_name(name);
  vdev.set_tenant("shop");
  vdev.set_fabric(fabric);
  vdev.set_port_state("ACTIVE");
  vdev.add_gids()->set_gid(gid);
  return vdev;
}

v1::QueuePair queue_pair(uint64_t vdev, uint32_t qpn, const std::string& remote, uint64_t direct,
                         const std::string& transport = "direct") {
  v1::QueuePair one;
  one.set_vdev_id(vdev);
  one.set_qpn(qpn);
  one.set_pid(42);
  one.set_remote(remote);
  one.set_transport(transport);
  one.set_direct_bytes(direct);
  return one;
}

class WebState : public testing::Test {
 protected:
  WebState() {
    before_.vdevs = {vdev_with(1, "a", "f", "::1"), vdev_with(2, "b", "f", "::2"),
                     vdev_with(3, "c", "other", "::2")};
    now_.vdevs = before_.vdevs;
    before_.time = WebReading::Clock::time_point(std::chrono::seconds(1));
    now_.time = before_.time + std::chrono::seconds(2);
  }
  json state(const WebBounds& bounds = {}) { return json::parse(web_state(before_, now_, bounds)); }
  static v1::Activity& activity(uint64_t id, WebReading* of) {
    v1::Activity& one = *of->activity.add_vdevs();
    one.set_vdev_id(id);
    return one;
  }
  WebReading before_, now_;
};

TEST_F(WebState, both_ends_of_a_connection_are_one_link) {
  before_.queue_pairs = {queue_pair(1, 7, "::2", 1000)};
  now_.queue_pairs = {queue_pair(1, 7, "::2", 5000), queue_pair(1, 9, "::2", 200),
                      queue_pair(2, 8, "::1", 600)};
  const auto links = web_links(before_, now_);
  ASSERT_EQ(links.size(), 1u);
  EXPECT_EQ(links[0].from, 1u);
  EXPECT_EQ(links[0].to, 2u);  // of the same fabric, not the third
  EXPECT_EQ(links[0].queue_pairs, 3u);
  EXPECT_EQ(links[0].sent, 2100);
  EXPECT_EQ(links[0].returned, 300);
  const json shown = state();
  EXPECT_EQ(shown["vdevices"][0]["by_peers"], 300);
  EXPECT_EQ(shown["vdevices"][1]["by_peers"], 2100);
  EXPECT_EQ(state({.vdevices = 1})["vdevices"][0]["name"], "b");  // whose peer moves most
}

TEST_F(WebState, transports_and_hosts_are_links_of_their_own_and_the_busiest_comes_first) {
  now_.queue_pairs = {queue_pair(1, 1, "::2", 10), queue_pair(1, 2, "::2", 20, "mediated"),
                      queue_pair(1, 3, "::99", 30, "network"), queue_pair(1, 4, "", 99)};
  const auto links = web_links(before_, now_);
  ASSERT_EQ(links.size(), 3u);
  EXPECT_EQ(links[0].transport, "network");
  EXPECT_EQ(links[0].to, 0u);
  EXPECT_EQ(links[0].peer, "::99");
  EXPECT_EQ(links[1].transport, "mediated");
  EXPECT_EQ(links[2].transport, "direct");
}

TEST_F(WebState, another_daemon_counts_from_the_beginning) {
  before_.queue_pairs = {queue_pair(1, 7, "::2", 9000)};
  now_.queue_pairs = {queue_pair(1, 7, "::2", 400)};
  EXPECT_EQ(web_links(before_, now_)[0].sent, 200);
}

TEST_F(WebState, nothing_is_known_of_rates_without_an_earlier_reading) {
  before_ = {};
  now_.queue_pairs = {queue_pair(1, 7, "::2", 9000)};
  activity(1, &now_).mutable_direct()->set_bytes(9000);
  EXPECT_EQ(web_links(before_, now_)[0].sent, 0);
  EXPECT_EQ(state()["bytes"], 0);
}

TEST_F(WebState, what_is_wrong_or_busy_stays_when_others_are_left_out) {
  now_.vdevs[1].set_port_state("LOST");
  now_.vdevs[1].set_lost("its netns is missing");
  activity(3, &before_);
  activity(3, &now_).mutable_direct()->set_bytes(8000);
  const json shown = state({.vdevices = 2});
  ASSERT_EQ(shown["vdevices"].size(), 2u);
  EXPECT_EQ(shown["vdevices"][0]["name"], "b");
  EXPECT_EQ(shown["vdevices"][0]["why"], "its netns is missing");
  EXPECT_EQ(shown["vdevices"][1]["name"], "c");
  EXPECT_EQ(shown["vdevices"][1]["bytes"], 4000);
  EXPECT_EQ(shown["all_vdevices"], 3);
  EXPECT_EQ(shown["bytes"], 4000);
  EXPECT_EQ(shown["seconds"], 2);
}

TEST_F(WebState, links_of_those_that_are_left_out_are_left_out) {
  now_.vdevs[0].set_port_state("DOWN");
  now_.queue_pairs = {queue_pair(1, 7, "::2", 10)};
  EXPECT_EQ(state()["links"].size(), 1u);
  EXPECT_TRUE(state({.vdevices = 1})["links"].empty());
  EXPECT_TRUE(state({.links = 0})["links"].empty());
}

TEST_F(WebState, quotas_are_bars_and_the_fullest_come_first) {
  auto& vdev = activity(1, &now_);
  auto add = [&](const std::string& kind, uint64_t used, uint64_t limit) {
    auto& quota = *vdev.add_usage();
    quota.set_kind(kind);
    quota.set_used(used);
    quota.set_limit(limit);
  };
  add("mr_bytes", uint64_t{1} << 30, uint64_t{16} << 30);
  add("qp", 9, 10);
  add("pd", 1, 1024);  // little
  auto& budget = now_.tenants.emplace_back();
  budget.set_name("shop");
  budget.set_vdevices(3);
  auto& row = *budget.add_rows();
  row.set_kind("qp");
  row.set_ceiling(20);
  row.set_used(9);
  now_.tenants.emplace_back().set_name("vdev/3");
  now_.tenants.back().set_vdevices(1);
  const json shown = state();
  const json& bars = shown["vdevices"][0]["quota"];
  ASSERT_EQ(bars.size(), 2u);
  EXPECT_EQ(bars[0], (json{{"kind", "qp"}, {"used", "9"}, {"limit", "10"}, {"part", 0.9}}));
  EXPECT_EQ(bars[1]["used"], "1G");
  ASSERT_EQ(shown["tenants"].size(), 1u);  // one of a vdevice without a tenant is none
  EXPECT_EQ(shown["tenants"][0]["quota"][0]["part"], 0.45);
}

TEST_F(WebState, the_newest_events_stay) {
  for (int i = 0; i < 5; ++i) now_.events.emplace_back().set_reason(std::to_string(i));
  const json events = state({.events = 2})["events"];
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1]["reason"], "4");
  EXPECT_EQ(json::parse(web_state(base::Error(ECONNREFUSED, "it is silent")))["error"],
            "it is silent");
}

}  // namespace
}  // namespace vrdma::cli
