#include "core/rdma/address_space.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

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

// Pages of a program that lie in files of others.
struct ShownSpaces : Spaces {
  static constexpr uint64_t kPage = ipc::kShownPage, kBase = 0x7f0123456000;
  static constexpr uint64_t kPages[] = {5, 40, 17};

  ShownSpaces() {
    for (const uint64_t pages : kPages) {
      files.push_back(base::make_memfd("test-shown", pages * kPage).value());
      sizes.push_back(pages * kPage);
    }
    table = base::make_memfd("test-table", ipc::kPageTableSize).value();
    entries = base::Mapping::shared(table, ipc::kPageTableSize, 0, PROT_READ | PROT_WRITE).value();
  }
  void set(uint64_t addr, ipc::PageEntry entry) {
    entries.at<ipc::PageEntry>(0)[addr / kPage] = entry;
  }
  [[nodiscard]] base::Result<void> show() {
    std::vector<AddressSpace::File> all;
    for (size_t i = 0; i < files.size(); ++i) all.push_back({&files[i], sizes[i]});
    return space->show(&table, all);
  }
  // What is there, as pread(2) tells.
  [[nodiscard]] static int byte_of(const base::Fd& file, uint64_t offset) {
    uint8_t byte = 0;
    return ::pread(file.get(), &byte, 1, static_cast<off_t>(offset)) == 1 ? byte : -1;
  }

  std::vector<base::Fd> files;
  std::vector<uint64_t> sizes;
  base::Fd table;
  base::Mapping entries;
};

// Beside a model: random entries, also such as no correct program writes, looked up at random.
TEST_F(ShownSpaces, FindEachPageWhereTheTableSays) {
  std::mt19937 random(20261129);
  const auto below = [&](uint64_t n) { return random() % n; };
  constexpr uint64_t kRange = 64;  // pages
  for (size_t i = 0; i < files.size(); ++i)
    for (uint64_t at = 0; at < sizes[i]; at += 64) {
      const auto byte = static_cast<uint8_t>(random());
      ASSERT_EQ(::pwrite(files[i].get(), &byte, 1, static_cast<off_t>(at)), 1);
    }
  ASSERT_TRUE(show());
  ASSERT_TRUE(space->shows());
  std::array<ipc::PageEntry, kRange> model{};
  // The file and the page there, if the entry names one.
  const auto where = [&](uint64_t page) -> std::optional<std::pair<size_t, uint64_t>> {
    const uint64_t file = model[page] >> 29, in_file = model[page] & 0x1fffffff;
    if (file == 0 || file > files.size() || in_file >= kPages[file - 1]) return std::nullopt;
    return std::pair(static_cast<size_t>(file - 1), in_file);
  };
  size_t shown = 0, long_runs = 0;
  for (int step = 0; step < 200'000; ++step) {
    const uint64_t page = below(kRange);
    if (below(4) == 0) {
      const size_t file = below(files.size());
      const uint64_t first = below(kPages[file]), count = 1 + below(8);
      for (uint64_t i = 0; i < count && page + i < kRange; ++i) {
        model[page + i] = ipc::page_entry(static_cast<uint32_t>(file), first + i);
        if (below(16) == 0) model[page + i] = static_cast<ipc::PageEntry>(random());
        if (below(16) == 0) model[page + i] = 0;
        set(kBase + (page + i) * kPage, model[page + i]);
      }
      continue;
    }
    const uint64_t offset = below(kPage), addr = kBase + page * kPage + offset;
    const uint64_t length = 1 + below((kRange - page) * kPage - offset);
    uint8_t* const at = space->at(addr, length, &run);
    ASSERT_NE(at, nullptr);
    const auto first = where(page);
    if (!first) {
      EXPECT_EQ(run, std::min(length, ipc::kWindowSize - addr % ipc::kWindowSize));
      continue;
    }
    ++shown;
    uint64_t expected = kPage - offset;
    for (uint64_t i = page + 1; i < kRange && expected < length; ++i, expected += kPage) {
      const auto next = where(i);
      if (!next || next->first != first->first || next->second != first->second + (i - page)) break;
    }
    ASSERT_EQ(run, std::min(expected, length));
    if (run > kPage) ++long_runs;
    for (const uint64_t there : {uint64_t{0}, run - 1, below(run)})
      ASSERT_EQ(at[there], byte_of(files[first->first], first->second * kPage + offset + there));
  }
  EXPECT_GT(shown, 10'000u);
  EXPECT_GT(long_runs, 1'000u);
}

TEST_F(ShownSpaces, StoreInTheFile) {
  ASSERT_TRUE(show());
  set(kBase, ipc::page_entry(1, 39));
  *space->at(kBase + 7, 1, &run) = 'x';
  EXPECT_EQ(byte_of(files[1], 39 * kPage + 7), 'x');
  EXPECT_EQ(byte_of(arena, kBase + 7), 0) << "not in the arena, too";
  set(kBase, ipc::page_entry(1, 40));
  *space->at(kBase + 7, 1, &run) = 'y';
  EXPECT_EQ(byte_of(arena, kBase + 7), 'y') << "the file is shorter";
  EXPECT_EQ(byte_of(files[1], 39 * kPage + 7), 'x');
}

TEST_F(ShownSpaces, ReplaceWhatTheyShow) {
  const auto mapped_files = [] {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);)
      count += line.find("memfd:test-shown") != std::string::npos ? 1 : 0;
    return count;
  };
  ASSERT_TRUE(show());
  EXPECT_EQ(mapped_files(), 3u);
  set(kBase, ipc::page_entry(0, 2));
  *space->at(kBase, 1, &run) = 'a';
  std::swap(files[0], files[2]);
  std::swap(sizes[0], sizes[2]);
  ASSERT_TRUE(show());
  *space->at(kBase, 1, &run) = 'b';
  EXPECT_EQ(byte_of(files[0], 2 * kPage), 'b');
  EXPECT_EQ(byte_of(files[2], 2 * kPage), 'a');
  sizes[1] = ipc::kMostShownBytes;
  EXPECT_EQ(show().error().code(), E2BIG);
  *space->at(kBase, 1, &run) = 'c';
  EXPECT_EQ(byte_of(files[0], 2 * kPage), 'c') << "all is as before";
  ASSERT_TRUE(space->show(nullptr, {}));
  EXPECT_FALSE(space->shows());
  EXPECT_EQ(mapped_files(), 0u);
  *space->at(kBase, 1, &run) = 'd';
  EXPECT_EQ(byte_of(files[0], 2 * kPage), 'c');
  EXPECT_EQ(byte_of(arena, kBase), 'd');
}

TEST_F(ShownSpaces, RefuseWhatIsNoMemory) {
  const auto error = [&] {
    const auto done = show();
    return done ? 0 : done.error().code();
  };
  sizes[2] = 100;
  EXPECT_EQ(error(), EINVAL);
  sizes[2] = 0;
  EXPECT_EQ(error(), EINVAL);
  sizes[2] = ipc::kMostShownBytes;
  EXPECT_EQ(error(), E2BIG) << "with the others it is too large";
  sizes[2] = kPages[2] * kPage;
  EXPECT_EQ(error(), 0);
  while (files.size() <= ipc::kMostShownFiles) {
    files.push_back(base::make_memfd("test-shown", kPage).value());
    sizes.push_back(kPage);
  }
  EXPECT_EQ(error(), E2BIG);
  files.pop_back();
  sizes.pop_back();
  EXPECT_EQ(error(), 0);
  space = AddressSpace::of_arena(arena.duplicate().value(), {.none = true}).value();
  EXPECT_EQ(error(), ENOTSUP);
  space = AddressSpace::of_arena(arena.duplicate().value(),
                                 {.watch = [](uint8_t*, size_t) { return false; }})
              .value();
  EXPECT_EQ(error(), ENOTSUP) << "the kernel cannot tell of missing pages";
}

}  // namespace
}  // namespace vrdma::rdma
