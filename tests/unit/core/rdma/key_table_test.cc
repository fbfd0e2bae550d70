#include "core/rdma/key_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace vrdma::rdma {
namespace {

struct Keys : testing::Test {
  std::vector<ipc::KeyEntry> storage{4096};
  ipc::KeyEntry* table = storage.data();
  Region found;

  static Region region(uint64_t n) {
    Region made;
    made.pd = static_cast<uint32_t>(n);
    made.access = static_cast<uint32_t>(n);
    made.addr = made.length = made.iova = n;
    made.way = ipc::Way::kInPlace;
    return made;
  }
};

TEST_F(Keys, AreFoundAsWritten) {
  const Region wanted{3, verbs::kRemoteRead, 0x1000, 0x2000, 0x9000, ipc::Way::kInPlace};
  write_key(table, 17 << 8 | 5, &wanted);
  ASSERT_TRUE(find_region(table, 17 << 8 | 5, &found));
  EXPECT_EQ(found.pd, 3u);
  EXPECT_EQ(found.access, verbs::kRemoteRead);
  EXPECT_EQ(found.addr, 0x1000u);
  EXPECT_EQ(found.length, 0x2000u);
  EXPECT_EQ(found.iova, 0x9000u);
  EXPECT_EQ(found.way, ipc::Way::kInPlace);
}

TEST_F(Keys, KnownOnesAreForgottenWhenTheyChange) {
  constexpr uint32_t kKey = 17 << 8 | 5;
  KnownRegion known;
  EXPECT_EQ(known.find(table, kKey), nullptr);
  Region wanted = region(1);
  write_key(table, kKey, &wanted);
  ASSERT_NE(known.find(table, kKey), nullptr);
  EXPECT_EQ(known.find(table, kKey)->addr, 1u);
  EXPECT_EQ(known.find(table, kKey + 1), nullptr);
  wanted = region(2);
  write_key(table, kKey, &wanted);
  ASSERT_NE(known.find(table, kKey), nullptr);
  EXPECT_EQ(known.find(table, kKey)->addr, 2u);
  table[17].sequence.store(table[17].sequence.load() | 1);  // being changed
  EXPECT_EQ(known.find(table, kKey), nullptr);
  write_key(table, kKey, nullptr);
  EXPECT_EQ(known.find(table, kKey), nullptr);
  EXPECT_EQ(known.find(table, 5), nullptr);
  EXPECT_EQ(known.find(table, ipc::kMaxKeys << 8), nullptr);  // slot 0
}

TEST_F(Keys, NeedTheirTag) {
  const Region wanted = region(1);
  write_key(table, 17 << 8 | 5, &wanted);
  EXPECT_FALSE(find_region(table, 17 << 8 | 4, &found));
  EXPECT_FALSE(find_region(table, 18 << 8 | 5, &found));
  EXPECT_FALSE(find_region(table, ipc::kMaxKeys << 8 | 17 << 8 | 5, &found));
}

TEST_F(Keys, OfSlotZeroAreNone) {
  const Region wanted = region(1);
  write_key(table, 5, &wanted);  // forged
  EXPECT_FALSE(find_region(table, 0, &found));
  EXPECT_FALSE(find_region(table, 5, &found));
  EXPECT_FALSE(find_region(table, ipc::kMaxKeys << 8, &found));
}

TEST_F(Keys, AreGoneWhenFreed) {
  const Region wanted = region(1);
  write_key(table, 17 << 8, &wanted);
  EXPECT_TRUE(find_region(table, 17 << 8, &found));
  write_key(table, 17 << 8, nullptr);
  EXPECT_FALSE(find_region(table, 17 << 8, &found));
  EXPECT_EQ(table[17].length, 0u);
}

TEST_F(Keys, BeingChangedAreNone) {
  const Region wanted = region(1);
  write_key(table, 17 << 8, &wanted);
  table[17].sequence.fetch_add(1);
  EXPECT_FALSE(find_region(table, 17 << 8, &found));
  // A count left odd by a scribbler is even after the next lawful change.
  write_key(table, 17 << 8, &wanted);
  EXPECT_TRUE(find_region(table, 17 << 8, &found));
}

TEST_F(Keys, AreNeverFoundHalfWritten) {
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    Region seen;
    while (!stop) {
      if (!find_region(table, 9 << 8, &seen)) continue;
      ASSERT_TRUE(seen.pd != 0 && seen.access == seen.pd && seen.addr == seen.pd &&
                  seen.length == seen.pd && seen.iova == seen.pd);
    }
  });
  for (uint32_t i = 1; i < 50'000; ++i) {
    const Region next = region(i);
    write_key(table, 9 << 8, i % 7 == 0 ? nullptr : &next);
  }
  stop = true;
  reader.join();
}

TEST(Region, LocatesWhatLiesInside) {
  const Region region{1, 0, 0x10000, 0x100, 0x500, ipc::Way::kInPlace};
  uint64_t va = 0;
  EXPECT_TRUE(region.locate(0x500, 0x100, &va));
  EXPECT_EQ(va, 0x10000u);
  EXPECT_TRUE(region.locate(0x5ff, 1, &va));
  EXPECT_EQ(va, 0x100ffu);
  EXPECT_TRUE(region.locate(0x600, 0, &va));  // nothing, at the end
  EXPECT_FALSE(region.locate(0x4ff, 1, &va));
  EXPECT_FALSE(region.locate(0x600, 1, &va));
  EXPECT_FALSE(region.locate(0x500, 0x101, &va));
  EXPECT_FALSE(region.locate(0x601, 0, &va));
}

TEST(Region, DoesNotWrapAround) {
  Region region{1, 0, 0x10000, 0x1000, 0, ipc::Way::kInPlace};
  uint64_t va = 0;
  EXPECT_FALSE(region.locate(~uint64_t{0}, 2, &va));
  EXPECT_FALSE(region.locate(0x800, ~uint64_t{0}, &va));
  EXPECT_FALSE(region.locate(0x800, ~uint64_t{0} - 0x7ff, &va));
  region.iova = ~uint64_t{0} - 0xfff;
  EXPECT_TRUE(region.locate(region.iova + 0xfff, 1, &va));
  EXPECT_EQ(va, 0x10fffu);
  EXPECT_FALSE(region.locate(0, 1, &va));
  EXPECT_FALSE(region.locate(region.iova + 0xfff, 2, &va));
}

}  // namespace
}  // namespace vrdma::rdma
