#include "core/ipc/bell.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace vrdma::ipc {
namespace {

std::vector<uint32_t> take(CqBell& bell, uint32_t group) {
  std::vector<uint32_t> found;
  take_news(bell, group, [&](uint32_t place) { found.push_back(place); });
  return found;
}

TEST(News, NobodyIsMarkedWhereNobodyLooks) {
  CqBell bell{};
  announce(bell, 5);
  EXPECT_FALSE(has_news(bell));
  EXPECT_TRUE(take(bell, 0).empty());
}

TEST(News, AMarkIsFoundOnce) {
  CqBell bell{};
  bell.many = 1;
  announce(bell, kNews + kNewsGroup + 3);
  announce(bell, kNewsGroup + 3);
  EXPECT_TRUE(has_news(bell));
  EXPECT_EQ(take(bell, 1), std::vector<uint32_t>{kNewsGroup + 3});
  EXPECT_FALSE(has_news(bell));
  EXPECT_TRUE(take(bell, 1).empty());
}

TEST(News, EachGroupIsItsOwn) {
  CqBell bell{};
  bell.many = 1;
  for (uint32_t group = 0; group < kNewsGroups; ++group) announce(bell, group * kNewsGroup + group);
  for (uint32_t group = 0; group < kNewsGroups; ++group) {
    EXPECT_TRUE(has_news(bell));
    EXPECT_EQ(take(bell, group), std::vector<uint32_t>{group * kNewsGroup + group});
  }
  EXPECT_FALSE(has_news(bell));
}

TEST(News, WhoLooksLeavesTheMarks) {
  CqBell bell{};
  bell.many = 1;
  for (uint32_t place : {3u, kNewsGroup + 9}) announce(bell, place);
  std::vector<uint32_t> seen;
  look_at_news(bell, [&](uint32_t place) { seen.push_back(place); });
  EXPECT_EQ(seen, (std::vector<uint32_t>{3, kNewsGroup + 9}));
  EXPECT_EQ(take(bell, 0), std::vector<uint32_t>{3});
  seen.clear();
  look_at_news(bell, [&](uint32_t place) { seen.push_back(place); });
  EXPECT_EQ(seen, std::vector<uint32_t>{kNewsGroup + 9});
}

// An entry that is published before its announcement is found, in every interleaving.
TEST(News, NothingIsMissed) {
  constexpr uint32_t kProducers = 2, kTimes = 20'000;
  CqBell bell{};
  bell.many = 1;
  std::atomic<uint32_t> published[kProducers] = {};
  std::atomic<uint32_t> seen[kProducers] = {};
  std::vector<std::thread> producers;
  for (uint32_t each = 0; each < kProducers; ++each)
    producers.emplace_back([&, each] {
      for (uint32_t n = 1; n <= kTimes; ++n) {
        published[each].store(n, std::memory_order_release);
        announce(bell, each);
        // Every second announcement is awaited; if one were missed, this would never end.
        if (n % 2 == 0)
          while (seen[each].load(std::memory_order_acquire) != n) std::this_thread::yield();
      }
    });
  for (uint32_t left = kProducers; left > 0;) {
    if (!has_news(bell)) std::this_thread::yield();
    take_news(bell, 0, [&](uint32_t place) {
      const uint32_t now = published[place].load(std::memory_order_acquire);
      if (now == kTimes && seen[place].load() != kTimes) --left;
      seen[place].store(now, std::memory_order_release);
    });
  }
  for (std::thread& each : producers) each.join();
}

// What there is no room for stays asked for; also of a CQ that asked for less.
TEST(Telling, LeavesTheCqArmedWithoutRoom) {
  const EventEnds ends = make_event_ends(8).value();
  CqBell bell{};
  ChannelMessage message{};
  while (put_event(ends.write.get(), &message, sizeof message)) continue;
  for (const Arm arm : {Arm::kNext, Arm::kSolicited}) {
    bell.arm = arm_word(arm);
    tell(bell, ends.write.get(), 5, true, 7);
    EXPECT_EQ(bell.arm, arm_word(Arm::kNext));
  }
  ASSERT_EQ(::read(ends.read.get(), &message, sizeof message), ssize_t{sizeof message});
  tell(bell, ends.write.get(), 5, false, 7);
  EXPECT_EQ(bell.arm, arm_word(Arm::kNone));
}

TEST(Telling, LeavesTheCqArmedWithoutAReader) {
  EventEnds ends = make_event_ends(8).value();
  ends.read.reset();
  CqBell bell{};
  bell.arm = arm_word(Arm::kNext);
  tell(bell, ends.write.get(), 5, true, 7);
  EXPECT_EQ(bell.arm, arm_word(Arm::kNext));
}

// As the library does: after the last message the reader tells of the CQs that are still armed and
// in which something stands.
TEST(Telling, LosesNothingWhereTheReaderLooksAfterTheLastMessage) {
  constexpr uint32_t kCqs = 40, kRounds = 500;
  EventEnds ends = make_event_ends(1).value();
  const int least = 1;
  ASSERT_EQ(::setsockopt(ends.write.get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
  std::vector<CqBell> bells(kCqs);
  std::vector<std::atomic<bool>> published(kCqs);
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (CqBell& bell : bells) bell.arm = arm_word(Arm::kNext);
    for (auto& one : published) one = false;
    std::thread teller([&] {
      for (uint32_t i = 0; i < kCqs; ++i) {
        published[i] = true;
        tell(bells[i], ends.write.get(), i, false, 7);
      }
    });
    std::vector<bool> heard(kCqs);
    const auto read_all = [&] {
      ChannelMessage message{};
      while (::recv(ends.read.get(), &message, sizeof message, MSG_DONTWAIT) > 0) {
        heard[message.cq] = true;
        int left = 0;
        ::ioctl(ends.read.get(), FIONREAD, &left);
        for (uint32_t i = 0; i < kCqs && left == 0; ++i)
          if (published[i] && is_armed(bells[i].arm)) tell(bells[i], ends.write.get(), i, false, 8);
      }
    };
    for (int i = 0; i < 100; ++i) read_all();
    teller.join();
    read_all();
    EXPECT_EQ(std::count(heard.begin(), heard.end(), false), 0) << round;
  }
}

}  // namespace
}  // namespace vrdma::ipc
