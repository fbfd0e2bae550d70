#include "provisioning/pace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace vrdma::provisioning {
namespace {

using std::chrono::seconds;

// Users that always want more, each with its own piece size, on a simulated clock.
struct Paces : testing::Test {
  struct User {
    Pace pace;
    uint64_t piece = 65536;
    uint64_t spent = 0;
    base::TimePoint next{};
  };
  std::vector<User> users;
  base::TimePoint now{seconds(1000)};

  void saturate(base::Duration time) {
    const base::TimePoint end = now + time;
    for (; now < end; now += std::chrono::microseconds(20)) {
      for (User& user : users) {
        if (now < user.next) continue;
        if (const auto wait = user.pace.wait(now); wait.count() > 0) {
          user.next = now + wait;
          continue;
        }
        user.pace.spend(now, user.piece);
        user.spent += user.piece;
      }
    }
  }
};

TEST_F(Paces, KeepTheMost) {
  users.resize(2);
  users[0].pace.set(now, 0, 10'000'000);
  users[1].pace.set(now, 0, 20'000'000);
  users[1].piece = 1 << 20;
  saturate(seconds(5));
  EXPECT_NEAR(static_cast<double>(users[0].spent), 50e6, 1e6);
  EXPECT_NEAR(static_cast<double>(users[1].spent), 100e6, 2.2e6);
  EXPECT_GT(users[0].pace.use().waits, 0u);
}

// Two tenants of one parent, with very different piece sizes, share within 5 %.
TEST_F(Paces, AreFairBetweenTwoThatSaturate) {
  const auto parent = std::make_shared<Shares>();
  parent->set_capacity(100'000'000);
  users.resize(2);
  for (auto& user : users) user.pace.join(*parent);
  users[0].piece = 4096;
  users[1].piece = 1 << 20;
  saturate(seconds(5));
  const auto a = static_cast<double>(users[0].spent), b = static_cast<double>(users[1].spent);
  EXPECT_NEAR(a / b, 1, 0.05);
  EXPECT_NEAR(a + b, 500e6, 25e6);
}

TEST_F(Paces, GuaranteeTheLeast) {
  const auto parent = std::make_shared<Shares>();
  parent->set_capacity(100'000'000);
  users.resize(6);
  for (auto& user : users) user.pace.join(*parent);
  users[0].pace.set(now, 70'000'000, kUnbounded);
  saturate(seconds(5));
  EXPECT_GE(static_cast<double>(users[0].spent), 0.97 * 350e6);
  for (size_t i = 1; i < users.size(); ++i)
    EXPECT_NEAR(static_cast<double>(users[i].spent), 30e6, 3e6);
}

TEST_F(Paces, AreBoundByTheNarrowestOfAll) {
  const auto parent = std::make_shared<Shares>(), tenant = std::make_shared<Shares>();
  parent->set_capacity(100'000'000);
  tenant->set_capacity(10'000'000);
  users.resize(3);
  for (auto& user : users) user.pace.join(*parent);
  users[0].pace.join(*tenant);
  users[1].pace.join(*tenant);
  saturate(seconds(5));
  EXPECT_NEAR(static_cast<double>(users[0].spent + users[1].spent), 50e6, 3e6);
  EXPECT_GE(static_cast<double>(users[2].spent), 0.9 * 450e6);  // what the others leave
}

TEST_F(Paces, ChangeAndEndWhileInUse) {
  users.resize(1);
  users[0].pace.set(now, 0, 1'000'000);
  saturate(seconds(2));
  const uint64_t slow = users[0].spent;
  EXPECT_NEAR(static_cast<double>(slow), 2e6, 0.2e6);
  users[0].pace.set(now, 0, 50'000'000);
  saturate(seconds(2));
  EXPECT_NEAR(static_cast<double>(users[0].spent - slow), 100e6, 4e6);
  EXPECT_NEAR(static_cast<double>(users[0].pace.use().rate(now)), 50e6, 4e6);
  users[0].pace.set(now, 0, kUnbounded);
  EXPECT_EQ(users[0].pace.wait(now).count(), 0);
}

TEST_F(Paces, ShowNothingOfWhatIsLongAgo) {
  Pace pace;
  pace.spend(now, 5'000'000);
  now += seconds(1);
  pace.spend(now, 1);
  EXPECT_EQ(pace.use().rate(now + seconds(60)), 0u);
}

// In second k it spends 1000 * k, so the rate before says which second it is.
TEST_F(Paces, ShowWhatAgreesToOtherThreads) {
  constexpr uint64_t kSeconds = 200'000;
  const auto begin = base::TimePoint(seconds(100));
  const auto shown = std::make_shared<RateUse>();
  std::atomic<bool> over = false;
  std::thread writer([&] {
    Pace pace(shown);
    for (uint64_t k = 1; k <= kSeconds; ++k)
      for (const auto half : {0, 500})
        pace.spend(begin + seconds(k) + std::chrono::milliseconds(half), 500 * k);
    over = true;
  });
  bool seen = false;
  while (!over && !HasFailure()) {
    const RateUse copy(*shown);
    const uint64_t last = copy.rate(base::TimePoint());
    const auto measured = begin + seconds(last / 1000 + 1);
    if (last == 0) continue;  // nothing was spent yet, or the writer is not scheduled in the middle
    seen = true;
    EXPECT_EQ(copy.rate(measured + std::chrono::milliseconds(999)), last);
    EXPECT_EQ(copy.rate(measured + std::chrono::milliseconds(2001)), 0u);
  }
  writer.join();
  EXPECT_TRUE(seen);
  EXPECT_EQ(shown->spent, 1000 * kSeconds * (kSeconds + 1) / 2);
}

}  // namespace
}  // namespace vrdma::provisioning
