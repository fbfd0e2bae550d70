#include "vrdmad/control/quarantine.h"

#include <gtest/gtest.h>

namespace vrdma::vrdmad {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

struct Quarantines : testing::Test {
  Quarantine quarantine;
  base::TimePoint now = base::Clock::steady().now();
  void crash(const std::string& domain, uint32_t session) {
    quarantine.crashed(domain, session, now);
  }
  [[nodiscard]] bool ends(const std::string& domain, uint32_t session) const {
    return !quarantine.reason_to_end(session, now).empty() ||
           !quarantine.reason_to_end(domain, now).empty();
  }
};

TEST_F(Quarantines, EndsASessionThatWasInHandTwice) {
  crash("red", 7);
  EXPECT_FALSE(ends("red", 7));
  now += minutes(10);
  crash("red", 7);
  EXPECT_TRUE(ends("red", 7));
  EXPECT_FALSE(ends("red", 8)) << "its neighbour";
  now += minutes(61);
  EXPECT_FALSE(ends("red", 7)) << "that was long ago";
}

TEST_F(Quarantines, EndsAllOfADomainThatCrashesThreeTimesInAMinute) {
  crash("red", 1);
  crash("red", 2);
  EXPECT_FALSE(ends("red", 3));
  now += seconds(50);
  crash("red", 0);
  EXPECT_TRUE(ends("red", 3));
  EXPECT_FALSE(ends("blue", 4)) << "another tenant's";
}

TEST_F(Quarantines, LetsRareCrashesPass) {
  for (int i = 0; i < 10; ++i) {
    crash("red", 0);
    now += seconds(31);
    EXPECT_FALSE(ends("red", 3)) << i;
  }
}

TEST_F(Quarantines, DoesNotCountWhatIsInNoSession) {
  crash("red", 0);
  crash("red", 0);
  EXPECT_FALSE(ends("red", 0));
}

}  // namespace
}  // namespace vrdma::vrdmad
