#include "vrdmad/control/answers.h"

#include <gtest/gtest.h>

#include <vector>

namespace vrdma::vrdmad {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

struct AnswersTest : testing::Test {
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  Answers answers{*loop};
  std::vector<bool> came;
  uint64_t expect(base::Duration limit) {
    return answers.expect("red", limit, [this](const ToControl* answer) {
      came.push_back(answer != nullptr);
      loop->stop();
    });
  }
};

TEST_F(AnswersTest, belong_to_their_tickets) {
  const uint64_t first = expect(hours(1)), second = expect(hours(1));
  EXPECT_NE(first, second);
  answers.came("red", Done{second, 0, {}});
  EXPECT_EQ(came, std::vector{true});
  answers.came("red", Done{second, 0, {}});
  answers.came("red", Done{second + 1, 0, {}});
  EXPECT_EQ(came, std::vector{true}) << "nobody expects these";
  answers.came("red", Done{first, 0, {}});
  EXPECT_EQ(came, (std::vector{true, true}));
}

TEST_F(AnswersTest, have_a_time_limit) {
  const uint64_t ticket = expect(milliseconds(20));
  const auto begun = base::Clock::steady().now();
  loop->run();
  EXPECT_GE(base::Clock::steady().now() - begun, milliseconds(20));
  EXPECT_EQ(came, std::vector{false});
  answers.came("red", Done{ticket, 0, {}});
  EXPECT_EQ(came, std::vector{false}) << "it is too late";
}

TEST_F(AnswersTest, come_from_the_worker_that_was_asked) {
  const uint64_t ticket = expect(hours(1));
  answers.came("blue", Done{ticket, 0, {}});
  EXPECT_TRUE(came.empty()) << "another tenant's worker answers";
  answers.ended("blue", nullptr);
  EXPECT_TRUE(came.empty());
  answers.ended("red", nullptr);
  EXPECT_EQ(came, std::vector{false}) << "it was lost";
  (void)expect(hours(1));
  const ToControl none = Done{};
  answers.ended("red", &none);
  EXPECT_EQ(came, (std::vector{false, true})) << "it has ended because no program used it";
}

}  // namespace
}  // namespace vrdma::vrdmad
