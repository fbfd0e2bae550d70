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
    return answers.expect(limit, [this](const ToControl* answer) {
      came.push_back(answer != nullptr);
      loop->stop();
    });
  }
};

TEST_F(AnswersTest, belong_to_their_tickets) {
  const uint64_t first = expect(hours(1)), second = expect(hours(1));
  EXPECT_NE(first, second);
  answers.came(Done{second, 0, {}});
  EXPECT_EQ(came, std::vector{true});
  answers.came(Done{second, 0, {}});
  answers.came(Done{second + 1, 0, {}});
  EXPECT_EQ(came, std::vector{true}) << "nobody expects these";
  answers.came(Done{first, 0, {}});
  EXPECT_EQ(came, (std::vector{true, true}));
}

TEST_F(AnswersTest, have_a_time_limit) {
  const uint64_t ticket = expect(milliseconds(20));
  const auto begun = base::EventLoop::now();
  loop->run();
  EXPECT_GE(base::EventLoop::now() - begun, milliseconds(20));
  EXPECT_EQ(came, std::vector{false});
  answers.came(Done{ticket, 0, {}});
  EXPECT_EQ(came, std::vector{false}) << "it is too late";
}

}  // namespace
}  // namespace vrdma::vrdmad
