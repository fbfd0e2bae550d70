#include "vrdmad/broker/entrance.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

namespace vrdma::vrdmad {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Entering : public testing::Test {
 protected:
  Entering() { entrance->set_rate(now, 10); }
  [[nodiscard]] bool is_open() { return entrance->closed_for(now).count() == 0; }
  size_t enter_all() {
    size_t entered = 0;
    for (; is_open() && entered < 1000; ++entered) entrance->entered(now);
    return entered;
  }
  std::shared_ptr<Entrance> entrance = std::make_shared<Entrance>();
  base::TimePoint now{seconds(1000)};
};

TEST_F(Entering, IsBoundedByTheRate) {
  EXPECT_EQ(enter_all(), 10u);
  EXPECT_EQ(entrance->used(now), 10u);
  EXPECT_EQ(entrance->closed(), 1u);
  const base::Duration wait = entrance->closed_for(now);
  EXPECT_GT(wait, milliseconds(0));
  EXPECT_LE(wait, milliseconds(101));
  now += milliseconds(500);
  EXPECT_EQ(enter_all(), 5u);
  now += seconds(60);
  EXPECT_EQ(enter_all(), 10u) << "at most one second of unused rate is saved";
  EXPECT_EQ(entrance->closed(), 4u);
  entrance->set_rate(now, 0);
  EXPECT_EQ(enter_all(), 1000u) << "without a limit";
}

TEST_F(Entering, IsBoundedByWhatTheWorkerHasNotTaken) {
  entrance->set_rate(now, 0);
  std::vector<std::unique_ptr<Entrance::Waiting>> waiting;
  while (is_open() && waiting.size() < 1000)
    waiting.push_back(std::make_unique<Entrance::Waiting>(entrance));
  EXPECT_EQ(waiting.size(), Entrance::kMostWaiting);
  EXPECT_EQ(entrance->closed(), 0u) << "not refused because of the rate";
  waiting.pop_back();
  EXPECT_TRUE(is_open());
}

}  // namespace
}  // namespace vrdma::vrdmad
