#include "core/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/core/base/manual_clock.h"

namespace vrdma::base {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Log : testing::Test {
  test::ManualClock clock;
  std::vector<std::string> got;
  Log() {
    set_log([this](LogLevel, const std::string& sentence) { got.push_back(sentence); });
  }
  ~Log() override {
    limit_log(0);
    set_log(nullptr);
  }
};

TEST_F(Log, IsNotLimitedByItself) {
  for (int i = 0; i < 1000; ++i) log_info("a");
  EXPECT_EQ(got.size(), 1000u);
}

TEST_F(Log, SaysHowManySentencesItLeavesOut) {
  limit_log(2, clock);
  for (int i = 0; i < 7; ++i) log_info(std::to_string(i));
  EXPECT_THAT(got, ElementsAre("0", "1"));
  clock.advance(std::chrono::seconds(1));
  got.clear();
  log_info("7");
  log_info("8");
  log_info("9");
  EXPECT_THAT(got, ElementsAre(HasSubstr("5 sentences were left out"), "7", "8"));
}

}  // namespace
}  // namespace vrdma::base
