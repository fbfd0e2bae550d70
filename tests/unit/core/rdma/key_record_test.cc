#include "core/rdma/key_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/unit/core/base/unpredictable.h"

namespace vrdma::rdma {
namespace {

Mr* const kMr = reinterpret_cast<Mr*>(8);
Mw* const kMw = reinterpret_cast<Mw*>(16);

Region region_at(uint64_t addr) {
  Region region;
  region.addr = region.iova = addr;
  region.length = 1;
  return region;
}

TEST(KeyRecord, FindsARegionByItsWholeKey) {
  KeyRecord record;
  EXPECT_EQ(record.find(0), nullptr);
  EXPECT_EQ(record.find(~0u), nullptr);
  const uint32_t key = record.take({kMr, nullptr});
  EXPECT_EQ(record.find(key), nullptr);
  const Region region = region_at(5);
  record.set(key, &region);
  ASSERT_NE(record.find(key), nullptr);
  EXPECT_EQ(record.find(key)->addr, 5u);
  for (int bit = 0; bit < 32; ++bit) EXPECT_EQ(record.find(key ^ 1u << bit), nullptr);
  record.set(key, nullptr);
  EXPECT_EQ(record.find(key), nullptr);
  EXPECT_EQ(record.object(key).mr, kMr);
}

TEST(KeyRecord, AWindowKeepsItsSlotAndChangesItsTag) {
  KeyRecord record;
  const uint32_t key = record.take({nullptr, kMw});
  const Region region = region_at(5);
  record.set(key, &region);
  record.set(key, nullptr);
  record.set(key ^ 0xff, &region);
  EXPECT_EQ(record.find(key), nullptr);
  EXPECT_NE(record.find(key ^ 0xff), nullptr);
  EXPECT_EQ(record.object(key).mw, kMw);
  record.give_back(key ^ 0xff);
  EXPECT_EQ(record.find(key ^ 0xff), nullptr);
  EXPECT_EQ(record.object(key).mw, nullptr);
}

TEST(KeyRecord, GivesAWantedKeyWhoseSlotIsFree) {
  KeyRecord record;
  const uint32_t wanted = ipc::key_of(ipc::kMaxKeys - 1, ~0u);
  EXPECT_TRUE(record.take({kMr, nullptr}, wanted));
  EXPECT_FALSE(record.take({kMr, nullptr}, wanted ^ 1));
  EXPECT_FALSE(record.take({kMr, nullptr}, 5));  // slot 0
  record.give_back(wanted);
  EXPECT_TRUE(record.take({kMr, nullptr}, wanted ^ 1));
}

TEST(KeyRecord, KeysAreUnpredictable) {
  KeyRecord one, other;
  std::vector<uint32_t> keys, others;
  for (int i = 0; i < test::kSample; ++i) {
    keys.push_back(one.take({kMr, nullptr}));
    others.push_back(other.take({kMr, nullptr}));
  }
  test::expect_unpredictable(keys, others, 32);
  test::expect_even_bits(keys, 0, 13);  // tag, and slot in its page
  test::expect_even_bits(keys, 28, 31);
}

// A region that is registered again and again has a new key each time, in pages that are open.
TEST(KeyRecord, StaysSmallAndForgetsKeys) {
  KeyRecord record;
  std::set<uint32_t> pages, keys;
  for (int i = 0; i < 10'000; ++i) {
    const uint32_t key = record.take({kMr, nullptr});
    pages.insert(ipc::slot_of(key) / (4096 / sizeof(ipc::KeyEntry)));
    keys.insert(key);
    record.give_back(key);
  }
  EXPECT_EQ(pages.size(), 1u);
  EXPECT_GT(keys.size(), 9'500u);  // of 2^18 that there are in a page
}

TEST(KeyRecord, UsesFewPagesForManyKeys) {
  KeyRecord record;
  std::set<uint32_t> pages;
  for (int i = 0; i < 4096; ++i)
    pages.insert(ipc::slot_of(record.take({kMr, nullptr})) / (4096 / sizeof(ipc::KeyEntry)));
  EXPECT_LE(pages.size(), 4096u / 32 + 1);
}

TEST(KeyRecord, EndsWhenAllSlotsAreTaken) {
  KeyRecord record;
  std::vector<bool> seen(ipc::kMaxKeys);
  for (uint32_t i = 1; i < ipc::kMaxKeys; ++i) {
    const uint32_t slot = ipc::slot_of(record.take({kMr, nullptr}));
    ASSERT_NE(slot, 0u);
    ASSERT_FALSE(seen[slot]);
    seen[slot] = true;
  }
  EXPECT_EQ(record.take({kMr, nullptr}), 0u);
}

}  // namespace
}  // namespace vrdma::rdma
