#include "core/rdma/address_space.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <array>
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

TEST(ExtentSpaces, ShowEachExtentAtItsAddress) {
  constexpr uint64_t kPage = 4096, kBorder = 3 * ipc::kWindowSize;
  base::Fd low = base::make_memfd("test-low", 4 * kPage).value();
  base::Fd high = base::make_memfd("test-high", 4 * kPage).value();
  const auto write = [](const base::Fd& file, uint64_t page, char byte) {
    ASSERT_EQ(::pwrite(file.get(), &byte, 1, static_cast<off_t>(page * kPage)), 1);
  };
  write(low, 3, 'a');
  write(low, 0, 'b');
  write(high, 2, 'c');
  std::vector<Extent> extents(3);
  extents[0] = {kPage, kPage, low.duplicate().value(), 3 * kPage};
  extents[1] = {kBorder - 2 * kPage, 4 * kPage, low.duplicate().value(), 0};
  extents[2] = {kBorder + 2 * kPage, 2 * kPage, high.duplicate().value(), 2 * kPage};
  auto space = AddressSpace::of_extents(std::move(extents), {}).value();
  uint64_t run = 0;
  EXPECT_EQ(*space->at(kPage, 1, &run), 'a');
  EXPECT_EQ(*space->at(kBorder - 2 * kPage, 8 * kPage, &run), 'b');
  EXPECT_EQ(run, 2 * kPage);
  *space->at(kBorder + kPage, 1, &run) = 'd';  // behind the border of the window
  char byte = 0;
  ASSERT_EQ(::pread(low.get(), &byte, 1, 3 * kPage), 1);
  EXPECT_EQ(byte, 'd');
  EXPECT_EQ(*space->at(kPage, 1, &run), 'd') << "two addresses of one page";
  EXPECT_EQ(*space->at(kBorder + 2 * kPage, 1, &run), 'c');
}

sigjmp_buf back;

TEST(ExtentSpaces, RaiseSigbusBetweenExtents) {
  std::vector<Extent> extents(1);
  extents[0] = {4096, 4096, base::make_memfd("test-low", 4096).value(), 0};
  auto space = AddressSpace::of_extents(std::move(extents), {}).value();
  uint64_t run = 0;
  uint8_t* const between = space->at(8192, 1, &run);
  ASSERT_NE(between, nullptr);
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { ::siglongjmp(back, 1); };
  ASSERT_EQ(::sigaction(SIGBUS, &action, &before), 0);
  const bool raised = sigsetjmp(back, 1) != 0;
  if (!raised) __atomic_store_n(between, uint8_t{1}, __ATOMIC_RELAXED);
  ::sigaction(SIGBUS, &before, nullptr);
  EXPECT_TRUE(raised);
}

TEST(ExtentSpaces, RefuseWhatIsNoMemory) {
  const auto refused = [](std::vector<std::array<uint64_t, 3>> all) {
    std::vector<Extent> extents;
    for (const auto& [addr, length, offset] : all)
      extents.push_back({addr, length, base::make_memfd("test-low", 4096).value(), offset});
    const auto space = AddressSpace::of_extents(std::move(extents), {});
    return space ? 0 : space.error().code();
  };
  EXPECT_EQ(refused({{0, 4096, 0}, {4096, 4096, 0}}), 0);
  EXPECT_EQ(refused({{0, 4096, 1}}), EINVAL);
  EXPECT_EQ(refused({{0, 100, 0}}), EINVAL);
  EXPECT_EQ(refused({{0, 0, 0}}), EINVAL);
  EXPECT_EQ(refused({{0, 8192, 0}, {4096, 4096, 0}}), EINVAL) << "overlap";
  EXPECT_EQ(refused({{4096, 4096, 0}, {0, 4096, 0}}), EINVAL) << "order";
  EXPECT_EQ(refused({{ipc::kMemoryArenaSize - 4096, 8192, 0}}), EINVAL);
  EXPECT_EQ(refused({{~uint64_t{4095}, 4096, 0}}), EINVAL);
  EXPECT_EQ(refused({{4096, ~uint64_t{4095}, 0}}), EINVAL);
  EXPECT_EQ(refused({{0, 4096, ~uint64_t{4095}}}), EINVAL);
  EXPECT_EQ(refused(std::vector<std::array<uint64_t, 3>>(65, {0, 4096, 0})), E2BIG);
}

}  // namespace
}  // namespace vrdma::rdma
