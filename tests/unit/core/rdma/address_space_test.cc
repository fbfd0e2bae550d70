#include "core/rdma/address_space.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "core/base/mapping.h"
#include "core/ipc/layout.h"

namespace vrdma::rdma {
namespace {

struct Spaces : testing::Test {
  base::Fd arena = base::make_memfd("test-space", ipc::kMemoryArenaSize).value();
  std::unique_ptr<AddressSpace> space = AddressSpace::of_arena(arena.duplicate().value()).value();
  uint64_t run = 0;

  static size_t mapped() {
    std::ifstream maps("/proc/self/maps");
    size_t bytes = 0;
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:test-space") == std::string::npos) continue;
      const size_t dash = line.find('-');
      bytes += std::stoull(line.substr(dash + 1), nullptr, 16) - std::stoull(line, nullptr, 16);
    }
    return bytes;
  }
};

TEST(OwnSpace, IsItsOwnPointers) {
  const auto own = AddressSpace::own();
  uint64_t run = 0;
  int object = 0;
  EXPECT_TRUE(own->is_own());
  EXPECT_EQ(own->at(reinterpret_cast<uint64_t>(&object), 1u << 30, &run),
            reinterpret_cast<uint8_t*>(&object));
  EXPECT_EQ(run, 1u << 30);
}

TEST_F(Spaces, HaveOffsetsForAddresses) {
  const auto map = base::Mapping::shared(arena, 4096, 7 * ipc::kWindowSize, PROT_READ | PROT_WRITE);
  ASSERT_TRUE(map);
  *map->at<uint32_t>(8) = 0xfeed;
  uint8_t* at = space->at(7 * ipc::kWindowSize + 8, 4, &run);
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(run, 4u);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(at), 0xfeedu);
  EXPECT_FALSE(space->is_own());
}

TEST_F(Spaces, EndTheirRunsAtWindows) {
  const uint64_t border = 3 * ipc::kWindowSize;
  uint8_t* before = space->at(border - 10, 100, &run);
  ASSERT_NE(before, nullptr);
  EXPECT_EQ(run, 10u);
  EXPECT_NE(space->at(border, 100, &run), nullptr);
  EXPECT_EQ(run, 100u);
  EXPECT_NE(space->at(border, 5 * ipc::kWindowSize, &run), nullptr);
  EXPECT_EQ(run, ipc::kWindowSize);
  EXPECT_EQ(space->at(border - 10, 100, &run), before);
}

TEST_F(Spaces, EndWithUserSpace) {
  EXPECT_NE(space->at(ipc::kMemoryArenaSize - 1, 1, &run), nullptr);
  EXPECT_EQ(run, 1u);
  EXPECT_NE(space->at(ipc::kMemoryArenaSize - 1, 100, &run), nullptr);
  EXPECT_EQ(run, 1u);
  EXPECT_EQ(space->at(ipc::kMemoryArenaSize, 1, &run), nullptr);
  EXPECT_EQ(space->at(~uint64_t{0}, 1, &run), nullptr);
}

TEST_F(Spaces, MapEachWindowOnceAndUnmapAll) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      uint64_t length = 0;
      for (uint64_t i = 0; i < 20; ++i) (void)space->at(i * ipc::kWindowSize + i, 1, &length);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(mapped(), 20 * ipc::kWindowSize);
  space.reset();
  EXPECT_EQ(mapped(), 0u);
}

TEST_F(Spaces, KeepToTheirLimitOfWindows) {
  space = AddressSpace::of_arena(arena.duplicate().value(), {.max = 4}).value();
  uint8_t* kept = nullptr;
  for (uint64_t i = 0; i < 100; ++i) {
    uint8_t* fresh = space->at(i * ipc::kWindowSize, 8, &run);
    ASSERT_NE(fresh, nullptr);
    *fresh = static_cast<uint8_t>(i);
    if (kept != nullptr) {
      EXPECT_EQ(*kept, static_cast<uint8_t>(i - 1));  // the last but one is good
    }
    kept = fresh;
    EXPECT_LE(mapped(), 4 * ipc::kWindowSize);
  }
  for (uint64_t i = 0; i < 100; ++i)
    EXPECT_EQ(*space->at(i * ipc::kWindowSize, 8, &run), static_cast<uint8_t>(i));
  space.reset();
  EXPECT_EQ(mapped(), 0u);
}

TEST_F(Spaces, CannotBeOfAFileThatCannotBeMapped) {
  const auto bad = AddressSpace::of_arena(base::Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)));
  ASSERT_TRUE(bad);
  EXPECT_EQ((*bad)->at(0, 1, &run), nullptr);
}

}  // namespace
}  // namespace vrdma::rdma
