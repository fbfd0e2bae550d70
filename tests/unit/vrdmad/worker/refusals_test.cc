#include "vrdmad/worker/refusals.h"

#include <gtest/gtest.h>

#include "tests/unit/core/base/run_until.h"

namespace vrdma::vrdmad {
namespace {

TEST(Refusals, many_are_told_in_one_message) {
  const auto loop = *base::EventLoop::create();
  std::vector<Refused> told;
  const std::function<void(ToControl)> tell = [&](const ToControl& message) {
    told.push_back(std::get<Refused>(message));
  };
  Refusals refusals(*loop, tell);
  const Refused qp{7, 42, Refused::Why::kQuota, provisioning::Kind::kQp, 1};
  Refused other = qp;
  other.pid = 43;
  refusals.note(qp);
  ASSERT_EQ(told.size(), 1u);  // its program may end now
  for (int i = 0; i < 1000; ++i) refusals.note(qp);
  refusals.note(other);
  EXPECT_EQ(told.size(), 1u);
  ASSERT_TRUE(test::run_until(*loop, [&] { return told.size() > 1; }));
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[1].count, 1000u);
  EXPECT_EQ(told[2].pid, 43);
  for (int pid = 1; pid <= 1000; ++pid) {
    other.pid = pid;
    refusals.note(other);
  }
  EXPECT_EQ(told.size(), 3u);
  told.clear();
  ASSERT_TRUE(test::run_until(*loop, [&] { return !told.empty(); }));
  EXPECT_EQ(told.size(), Refusals::kMost);
}

}  // namespace
}  // namespace vrdma::vrdmad
