#include "core/rdma/arena_heap.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "core/base/mapping.h"
#include "core/ipc/layout.h"

namespace {
bool swapped_out = false;  // as if every page were
}  // namespace

// In the place of the C library's.
extern "C" int mincore(void* at, size_t length, unsigned char* there) noexcept {
  if (!swapped_out) return static_cast<int>(::syscall(SYS_mincore, at, length, there));
  std::fill_n(there, length / 4096, static_cast<unsigned char>(0));
  return 0;
}

namespace vrdma::rdma {
namespace {

struct Heaps : testing::Test {
  base::Fd arena = base::make_memfd("test", ipc::kQueueArenaSize).value();
  base::Mapping mapped =
      base::Mapping::shared(arena, ipc::kQueueArenaSize, 0, PROT_READ | PROT_WRITE).value();
  std::shared_ptr<ArenaHeap> heap = make(nullptr);

  std::shared_ptr<ArenaHeap> make(std::shared_ptr<ReachThreads> threads) {
    return std::make_shared<ArenaHeap>(arena.duplicate().value(), mapped.bytes(), ipc::kHeapOffset,
                                       ipc::kQueueArenaSize, std::move(threads));
  }

  ArenaHeap::Range allocate(uint64_t size) { return heap->allocate(size).value(); }
  int64_t blocks() const {
    struct stat status {};
    ::fstat(arena.get(), &status);
    return status.st_blocks;
  }
};

constexpr uint64_t kWhole = ipc::kQueueArenaSize - ipc::kHeapOffset;

TEST_F(Heaps, GiveWholePages) {
  const auto first = allocate(1), second = allocate(4097), third = allocate(4096);
  EXPECT_EQ(first.offset(), ipc::kHeapOffset);
  EXPECT_EQ(first.size(), 4096u);
  EXPECT_EQ(second.offset(), first.offset() + 4096);
  EXPECT_EQ(second.size(), 8192u);
  EXPECT_EQ(third.offset(), second.offset() + 8192);
}

TEST_F(Heaps, EndWhenFull) {
  EXPECT_EQ(heap->allocate(kWhole + 1).error().code(), ENOMEM);
  auto whole = allocate(kWhole);
  EXPECT_EQ(heap->allocate(1).error().code(), ENOMEM);
  whole.reset();
  EXPECT_TRUE(heap->allocate(kWhole));
}

TEST_F(Heaps, JoinNeighbours) {
  // Freed in every order, three neighbours become one again.
  for (const std::array order : {std::array{0, 1, 2}, std::array{0, 2, 1}, std::array{1, 0, 2},
                                 std::array{1, 2, 0}, std::array{2, 0, 1}, std::array{2, 1, 0}}) {
    std::array ranges{allocate(4096), allocate(8192), allocate(kWhole - 12288)};
    EXPECT_FALSE(heap->allocate(1));
    for (const int which : order) ranges.at(static_cast<size_t>(which)).reset();
    EXPECT_TRUE(heap->allocate(kWhole)) << order[0] << order[1] << order[2];
  }
}

TEST_F(Heaps, PunchOutWhatIsFreed) {
  auto range = allocate(1 << 20);
  const auto map =
      base::Mapping::shared(arena, range.size(), range.offset(), PROT_READ | PROT_WRITE);
  ASSERT_TRUE(map);
  std::memset(map->bytes(), 0xff, map->size());
  const int64_t before = blocks();
  EXPECT_GE(before, (1 << 20) / 512);
  range.reset();
  EXPECT_LT(blocks(), 8);
  EXPECT_EQ(*map->at<uint8_t>(12345), 0);  // and so the next owner finds zeros
}

TEST_F(Heaps, KeepAFewSmallOnesAndWipeThem) {
  constexpr uint64_t kEach = 16 << 10, kMany = 2 * ArenaHeap::kKept / kEach;
  const auto map =
      base::Mapping::shared(arena, kMany * kEach, ipc::kHeapOffset, PROT_READ | PROT_WRITE);
  ASSERT_TRUE(map);
  std::vector<ArenaHeap::Range> held;
  for (uint64_t i = 0; i < kMany; ++i) held.push_back(allocate(kEach));
  std::memset(map->bytes(), 0xff, map->size());
  held.clear();
  EXPECT_EQ(blocks(), static_cast<int64_t>(ArenaHeap::kKept / 512));
  for (uint64_t i = 0; i < kMany; ++i) held.push_back(allocate(kEach));
  const std::vector<uint8_t> zeros(map->size());
  EXPECT_EQ(std::memcmp(map->bytes(), zeros.data(), zeros.size()), 0);
}

TEST_F(Heaps, WipeWhatIsSwappedOut) {
  auto range = allocate(4096);
  uint8_t* const byte = mapped.bytes() + range.offset();
  *byte = 7;
  range.reset();
  swapped_out = true;
  range = allocate(4096);
  swapped_out = false;
  EXPECT_EQ(mapped.bytes() + range.offset(), byte);
  EXPECT_EQ(*byte, 0);
}

TEST_F(Heaps, GiveWhatIsKeptToOthersWhenFull) {
  auto small = allocate(4096), large = allocate(kWhole - 4096);
  small.reset();  // kept
  large.reset();
  EXPECT_TRUE(heap->allocate(kWhole));
}

TEST_F(Heaps, LiveAsLongAsTheirRanges) {
  auto range = allocate(4096);
  heap.reset();
  auto moved = std::move(range);
  range.reset();
  EXPECT_EQ(moved.offset(), ipc::kHeapOffset);
  moved.reset();
}

TEST_F(Heaps, NeverGiveTheSameTwice) {
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  std::vector<ArenaHeap::Range> held;
  for (int i = 0; i < 3000; ++i) {
    if (random() % 2 == 0 || held.empty()) {
      held.push_back(allocate(random() % 100'000 + 1));
    } else {
      std::swap(held[random() % held.size()], held.back());
      held.pop_back();
    }
  }
  std::sort(held.begin(), held.end(),
            [](const auto& a, const auto& b) { return a.offset() < b.offset(); });
  for (size_t i = 1; i < held.size(); ++i)
    ASSERT_LE(held[i - 1].offset() + held[i - 1].size(), held[i].offset());
  held.clear();
  EXPECT_TRUE(heap->allocate(kWhole));
}

}  // namespace
}  // namespace vrdma::rdma
