#include <gtest/gtest.h>

#include "cli/top_rows.h"

namespace vrdma::cli {
namespace {

v1::Activity& add(uint64_t id, v1::ListActivityResponse* to) {
  v1::Activity& made = *to->add_vdevs();
  made.set_vdev_id(id);
  return made;
}

void refuse(const std::string& reason, uint64_t count, v1::Activity* of) {
  auto& refused = *of->add_refused();
  refused.set_reason(reason);
  refused.set_count(count);
}

TEST(Top, rates_by_who_executes_the_busiest_first) {
  v1::ListActivityResponse before, now;
  add(1, &before).mutable_direct()->set_bytes(1000);
  refuse("request", 5, &add(2, &before));
  auto& one = add(1, &now);
  one.mutable_direct()->set_bytes(3000);
  one.set_queue_pairs(3);
  one.set_sessions(4);
  auto& other = add(2, &now);
  other.mutable_worker()->set_bytes(9000);
  other.mutable_worker()->set_requests(8);
  refuse("request", 7, &other);
  refuse("quota:qp", 2, &other);
  auto rows = top_rows(before, now, 2);
  sort_rows("bytes", &rows);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].id, 2U);
  EXPECT_EQ(rows[0].worker.bytes, 4500);
  EXPECT_EQ(rows[0].worker.requests, 4);
  EXPECT_EQ(rows[0].refused, 2);
  EXPECT_EQ(rows[1].id, 1U);
  EXPECT_EQ(rows[1].direct.bytes, 1000);
  EXPECT_EQ(rows[1].qps, 3U);
  EXPECT_EQ(rows[1].sessions, 4U);
}

TEST(Top, the_same_vdevice_of_another_daemon_begins_at_nothing) {
  v1::ListActivityResponse before, now;
  add(1, &before).mutable_direct()->set_requests(1000);
  add(1, &now).mutable_direct()->set_requests(10);
  add(2, &now).mutable_direct()->set_requests(7);
  const auto rows = top_rows(before, now, 1);
  EXPECT_EQ(rows[0].direct.requests, 10);
  EXPECT_EQ(rows[1].direct.requests, 7) << "it was created between the readings";
}

TEST(Top, says_why_it_is_refused) {
  v1::ListActivityResponse before, now;
  refuse("request", 10, &add(1, &before));
  auto& vdev = add(1, &now);
  refuse("request", 14, &vdev);
  refuse("quota:qp", 4, &vdev);
  refuse("work:flushed", 2, &vdev);
  const auto rows = top_rows(before, now, 2);
  EXPECT_EQ(rows[0].refused, 5);
  EXPECT_EQ(rows[0].reason, "quota:qp") << "a request that a quota refuses is counted by both";
  EXPECT_EQ(rows[0].refused_by,
            (std::map<std::string, double>{{"request", 2}, {"quota:qp", 2}, {"work:flushed", 1}}));
}

TopRow row(uint64_t id, const std::string& name, double bytes) {
  TopRow made;
  made.id = id;
  made.name = name;
  made.direct.bytes = bytes;
  return made;
}

TEST(Top, sorts_by_each_key) {
  std::vector<TopRow> rows{row(1, "b", 5), row(2, "a", 5), row(3, "c", 9)};
  rows[0].tenant = rows[2].tenant = "red";
  rows[1].tenant = "tan";
  rows[0].refused = rows[0].worker.requests = 1;
  rows[1].sessions = rows[1].qps = 2;
  const auto order = [&](const std::string& key) {
    std::string names;
    sort_rows(key, &rows);
    for (const auto& one : rows) names += one.name;
    return names;
  };
  const std::map<std::string, std::string> wanted{
      {"bytes", "cab"}, {"requests", "bac"}, {"refused", "bac"}, {"sessions", "abc"},
      {"qps", "abc"},   {"name", "abc"},     {"tenant", "bca"}};
  for (const auto& key : top_sort_keys()) EXPECT_EQ(order(key), wanted.at(key)) << key;
}

v1::QueuePair queue_pair_of(int pid, uint32_t qpn, uint64_t direct, uint64_t worker) {
  v1::QueuePair made;
  made.set_vdev("a");
  made.set_vdev_id(1);
  made.set_pid(pid);
  made.set_qpn(qpn);
  made.set_direct_bytes(direct);
  made.set_worker_bytes(worker);
  return made;
}

TEST(Top, sums_up_the_queue_pairs_of_a_process) {
  auto rows = process_rows(
      {queue_pair_of(7, 1, 100, 10), queue_pair_of(8, 2, 100, 0), queue_pair_of(7, 4, 900, 0)},
      {queue_pair_of(7, 1, 300, 10), queue_pair_of(8, 2, 50, 6), queue_pair_of(7, 3, 40, 8)}, 2);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].pid, 7);
  EXPECT_EQ(rows[0].qps, 2U);
  EXPECT_EQ(rows[0].direct.bytes, 120) << "the new queue pair from 0, the old one not any more";
  EXPECT_EQ(rows[0].worker.bytes, 4);
  EXPECT_EQ(rows[1].direct.bytes, 25) << "another worker has begun at 0";
}

TEST(Top, a_minute_is_twenty_bars) {
  TopHistory history(false);
  const TopHistory::Clock::time_point begin{};
  std::vector<TopRow> rows{row(1, "a", 0)};
  const auto at = [&](int seconds, double bytes, const std::string& reason = "") {
    rows[0].direct.bytes = bytes;
    rows[0].reason = reason;
    history.add(begin + std::chrono::seconds(seconds), &rows);
    return rows[0].minute;
  };
  EXPECT_EQ(at(0, 0), ".");
  EXPECT_EQ(at(1, 700, "quota:qp"), "#") << "in proportion to the highest";
  EXPECT_EQ(at(3, 100), "#_");
  EXPECT_EQ(at(9, 350), "#__=") << "a pause looks like what was before";
  EXPECT_EQ(rows[0].reason, "quota:qp") << "of the last minute";
  EXPECT_EQ(at(60, 0).size(), 20U);
  EXPECT_EQ(rows[0].reason, "quota:qp");
  EXPECT_EQ(at(62, 0), "--" + std::string(17, '#') + ".") << "350 is the highest now";
  EXPECT_EQ(rows[0].reason, "");
  rows.clear();
  history.add(begin + std::chrono::seconds(63), &rows);
  rows = {row(1, "a", 0)};
  EXPECT_EQ(at(64, 5), "#") << "a row that was gone begins anew";
  TopHistory blocks(true);
  blocks.add(begin, &rows);
  EXPECT_EQ(rows[0].minute, "█");
}

TEST(Top, keeps_the_rows_of_vdevices) {
  v1::Vdev vdev;
  vdev.set_id(2);
  vdev.set_name("c");
  vdev.set_netns("n");
  vdev.set_tenant("tan");
  vdev.mutable_owner()->set_pid(5);
  std::vector<TopRow> rows{row(1, "b", 5), row(2, "a", 5)};
  keep_vdevices({vdev}, &rows);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].who, "pid:5");
  EXPECT_EQ(rows[0].tenant, "tan");
  EXPECT_EQ(rows[0].netns + "/" + rows[0].name, "n/c");
}

}  // namespace
}  // namespace vrdma::cli
