#include "vrdmad/control/event_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/core/base/run_until.h"
#include "tests/unit/core/base/temp_dir.h"

namespace vrdma::vrdmad {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

class EventLogTest : public testing::Test {
 protected:
  static EventRow event(const std::string& tenant, const std::string& reason, int32_t pid = 0) {
    EventRow event;
    event.type = "quota";
    event.tenant = tenant;
    event.share = "tenant " + tenant;
    event.vdev = {1, "a", "red"};
    event.pid = pid;
    event.reason = reason;
    return event;
  }

  test::TempDir dir_;
  std::unique_ptr<base::EventLoop> loop_ = *base::EventLoop::create();
  const EventRow::Time start_{hours(500'000)};
};

TEST_F(EventLogTest, the_same_again_only_counts) {
  EventLog log(*loop_, "");
  log.add(event("t", "qp"), start_);
  log.add(event("t", "mr"), start_ + seconds(1));
  log.add(event("t", "qp"), start_ + seconds(2));
  const auto all = log.since(start_);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].reason, "mr");
  EXPECT_EQ(all[1].reason, "qp");
  EXPECT_EQ(all[1].count, 2u);
  EXPECT_EQ(all[1].first, start_);
  EXPECT_EQ(all[1].last, start_ + seconds(2));
  EXPECT_GT(all[1].number, all[0].number);
  // Of another process, or much later, it is another event.
  log.add(event("t", "qp", 7), start_ + seconds(3));
  log.add(event("t", "qp"), start_ + hours(1));
  EXPECT_EQ(log.since(start_).size(), 4u);
  EXPECT_EQ(log.since(start_ + seconds(3)).size(), 2u);
  EXPECT_EQ(log.since(start_ + seconds(3), 9).size(), 2u);
  const auto newest = log.since(start_, 1);
  ASSERT_EQ(newest.size(), 1u);
  EXPECT_EQ(newest[0].number, log.since(start_).back().number);
  EXPECT_EQ(newest[0].number, log.last());
}

TEST_F(EventLogTest, a_flood_of_a_share_pushes_out_its_own_events) {
  EventLog log(*loop_, "");
  for (int i = 0; i < 100; ++i) log.add(event("quiet", "event " + std::to_string(i)), start_);
  log.add(event("", "worker"), start_);
  for (int i = 0; i < 20'000; ++i) log.add(event("loud", std::to_string(i)), start_ + seconds(1));
  const auto all = log.since(start_);
  EXPECT_GT(all.size(), 2000u);
  EXPECT_LT(all.size(), 4000u);
  EXPECT_EQ(all[0].reason, "event 0");
  EXPECT_EQ(all[99].reason, "event 99");
  EXPECT_EQ(all[100].reason, "worker");
  EXPECT_EQ(all.back().reason, "19999");
}

// Long texts do not make a share any larger.
TEST_F(EventLogTest, its_bytes_are_bounded) {
  EventLog log(*loop_, "");
  for (int i = 0; i < 1000; ++i) log.add(event("quiet", "event " + std::to_string(i)), start_);
  for (int i = 0; i < 20'000; ++i)
    log.add(event("loud", std::to_string(i) + std::string(10'000, 'x')), start_);
  const auto all = log.since(start_);
  EXPECT_LT(all.size(), EventLog::kMostBytes / EventLog::kMostOfText);
  EXPECT_EQ(all[0].reason, "event 0");
  EXPECT_EQ(all[999].reason, "event 999");
  EXPECT_EQ(all[1000].reason.size(), EventLog::kMostOfText);
}

TEST_F(EventLogTest, a_user_has_one_share_for_all_of_its_tenants) {
  EventLog log(*loop_, "");
  for (int i = 0; i < 10; ++i) log.add(event("quiet", "event " + std::to_string(i)), start_);
  for (int i = 0; i < 20'000; ++i) {
    EventRow one = event("vdev/" + std::to_string(i), "qp");
    one.share = "user 1000";
    log.add(std::move(one), start_);
  }
  EXPECT_EQ(log.since(start_)[0].reason, "event 0");
}

TEST_F(EventLogTest, a_count_does_not_wrap) {
  EventLog log(*loop_, "");
  EventRow many = event("t", "qp");
  many.count = UINT64_MAX;
  log.add(many, start_);
  log.add(many, start_);
  EXPECT_EQ(log.since(start_)[0].count, EventLog::kMostCount);
}

TEST_F(EventLogTest, watchers_see_what_is_new_and_powers_of_two) {
  EventLog log(*loop_, "");
  std::vector<uint64_t> counts;
  auto watch = log.watch([&](const EventRow& event) { counts.push_back(event.count); });
  for (int i = 0; i < 9; ++i) log.add(event("t", "qp"), start_);
  EXPECT_EQ(counts, (std::vector<uint64_t>{1, 2, 4, 8}));
  watch.reset();
  log.add(event("t", "other"), start_);
  EXPECT_EQ(counts.size(), 4u);
}

TEST_F(EventLogTest, it_survives_in_its_file) {
  const std::string path = dir_.path() + "/events";
  EventRow whole = event("t", "qp", 7);
  whole.who = "shop/web-0";
  whole.program = "ib_\xff";
  whole.count = 3;
  {
    EventLog log(*loop_, path);
    log.add(whole, start_);
  }
  EventLog log(*loop_, path);
  log.add(event("t", "mr"), start_ + seconds(1));
  const auto all = log.since(start_);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].count, 3u);
  EXPECT_EQ(all[0].who, "shop/web-0");
  EXPECT_EQ(all[0].vdev.netns, "red");
  EXPECT_EQ(all[0].pid, 7);
  EXPECT_EQ(all[0].last, start_);
  EXPECT_GT(all[1].number, all[0].number);
}

TEST_F(EventLogTest, it_is_written_soon_also_if_the_daemon_is_killed) {
  const std::string path = dir_.path() + "/events";
  EventLog log(*loop_, path);
  log.add(event("t", "qp"), start_);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(test::run_until(*loop_, [&] { return std::filesystem::exists(path); }));
}

// Whatever a tenant does, the disk gets few bytes each second.
TEST_F(EventLogTest, a_full_log_is_seldom_written) {
  const std::string path = dir_.path() + "/events";
  EventLog log(*loop_, path);
  for (int i = 0; i < 3000; ++i) log.add(event("t", std::to_string(i)), start_);
  ASSERT_TRUE(test::run_until(*loop_, [&] { return std::filesystem::exists(path); }));
  const auto before = std::filesystem::last_write_time(path);
  log.add(event("t", "one more"), start_);
  EXPECT_FALSE(test::run_until(
      *loop_, [&] { return std::filesystem::last_write_time(path) != before; },
      EventLog::kDelay + std::chrono::seconds(1)));
}

TEST_F(EventLogTest, a_damaged_file_is_an_empty_one) {
  const std::string path = dir_.path() + "/events";
  std::ofstream(path) << std::string(100, '\xff');
  EventLog log(*loop_, path);
  EXPECT_TRUE(log.since({}).empty());
}

}  // namespace
}  // namespace vrdma::vrdmad
