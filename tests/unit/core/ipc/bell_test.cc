#include "core/ipc/bell.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace vrdma::ipc
