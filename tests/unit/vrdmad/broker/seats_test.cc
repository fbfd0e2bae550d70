#include "vrdmad/broker/seats.h"

#include <gtest/gtest.h>

#include <vector>

namespace vrdma::vrdmad {
namespace {

constexpr Seats::Limits kLimits{.all = 400, .of_netns = 10, .of_user = 30};

using Held = std::vector<Seats::Seat>;

// Takes all that the user gets in that namespace.
uint32_t take_all(Seats& seats, uint64_t netns, uid_t user, Held* held) {
  uint32_t got = 0;
  for (auto seat = seats.take(netns, user); seat; seat = seats.take(netns, user), ++got)
    held->push_back(std::move(*seat));
  return got;
}

TEST(Seats, OneNamespaceGetsHalf) {
  Seats seats(kLimits);
  Held held;
  EXPECT_EQ(take_all(seats, 1, 1000, &held), 200u);
  EXPECT_FALSE(seats.has_room(1));
  EXPECT_TRUE(seats.has_room(2));
  EXPECT_TRUE(seats.take(2, 1000));
}

// However many namespaces a user has, others find room.
TEST(Seats, OneUserLeavesAQuarter) {
  Seats seats(kLimits);
  Held held;
  uint32_t got = 0;
  for (uint64_t netns = 1; netns <= 100; ++netns) got += take_all(seats, netns, 1000, &held);
  EXPECT_EQ(got, 300u);
  EXPECT_FALSE(seats.take(101, 1000));
  Held of_others;
  EXPECT_EQ(take_all(seats, 200, 1001, &of_others), kLimits.of_netns);
  for (uint64_t netns = 201; netns < 210; ++netns) take_all(seats, netns, 1001, &of_others);
  EXPECT_EQ(of_others.size(), kLimits.of_user);
  EXPECT_TRUE(seats.take(300, 1002));
}

TEST(Seats, NobodyGetsMoreThanThereAre) {
  Seats seats(kLimits);
  Held held;
  for (uid_t user = 1; user <= 1000; ++user) take_all(seats, user, user, &held);
  EXPECT_EQ(held.size(), kLimits.all);
  EXPECT_FALSE(seats.has_room(5000));
  EXPECT_FALSE(seats.take(5000, 5000, true));
}

// Processes that a broker before had admitted have no order in which they come to the next one.
TEST(Seats, WhoHadOneGetsItAgain) {
  Seats seats(kLimits);
  Held held;
  for (uint32_t i = 0; i < kLimits.all; ++i) {
    auto seat = seats.take(1, 1000, true);
    ASSERT_TRUE(seat) << i;
    held.push_back(std::move(*seat));
  }
}

TEST(Seats, AllComeBack) {
  Seats seats(kLimits);
  for (int round = 0; round < 3; ++round) {
    Held held;
    EXPECT_EQ(take_all(seats, 1, 1000, &held), 200u);
    EXPECT_EQ(take_all(seats, 2, 1000, &held), kLimits.of_netns);
  }
}

TEST(Seats, DescriptorsBoundThem) {
  EXPECT_EQ(Seats::limits_for(1u << 20).all, Seats::kMost);
  const Seats::Limits few = Seats::limits_for(20'000);
  EXPECT_EQ(few.all, 20'000 - Seats::kReserve);
  EXPECT_GT(Seats::limits_for(256).all, 64u);
}

}  // namespace
}  // namespace vrdma::vrdmad
