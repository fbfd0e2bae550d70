#include "pvrdma/device/guest_ram.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <random>

#include "core/base/mapping.h"
#include "pvrdma/encoding/registers.h"
#include "tests/unit/pvrdma/fake_verbs.h"

namespace vrdma::pvrdma {
namespace {

constexpr uint64_t kSize = 256 * kPageSize, kHigh = uint64_t{4} << 30;

class GuestRamTest : public ::testing::Test {
 protected:
  GuestRamTest() {
    for (uint64_t i = 0; i < kSize / kPageSize; ++i)
      std::memset(memory_.bytes() + i * kPageSize, static_cast<int>(i), kPageSize);
    EXPECT_EQ(0, ram_->map(0, kSize / 2, file_.duplicate().value(), 0));
    EXPECT_EQ(0, ram_->map(kHigh, kSize / 2, file_.duplicate().value(), kSize / 2));
  }
  // The page of the file behind a guest-physical address.
  static uint8_t content(uint64_t address) {
    return static_cast<uint8_t>((address < kHigh ? address : address - kHigh + kSize / 2) /
                                kPageSize);
  }
  base::Fd file_ = base::make_memfd("ram", kSize).value();
  base::Mapping memory_ = base::Mapping::shared(file_, kSize, 0, PROT_READ | PROT_WRITE).value();
  std::unique_ptr<GuestRam> ram_ = GuestRam::create().value();
};

TEST_F(GuestRamTest, AnAddressIsItsMemory) {
  EXPECT_EQ(3, *ram_->at(3 * kPageSize + 5, 1));
  EXPECT_EQ(128, *ram_->at(kHigh, 1));
  EXPECT_NE(nullptr, ram_->at(0, kSize / 2));
  EXPECT_EQ(nullptr, ram_->at(0, kSize / 2 + 1));
  EXPECT_EQ(nullptr, ram_->at(kSize / 2, 1));
  EXPECT_EQ(nullptr, ram_->at(kHigh + kSize / 2 - 1, 2));
  EXPECT_EQ(nullptr, ram_->at(kHigh + 8, UINT64_MAX - 4));
  EXPECT_EQ(nullptr, ram_->at(UINT64_MAX, 1));
}

TEST_F(GuestRamTest, ScatteredPagesAreOneRange) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint64_t> list(1 + random() % 64);
    for (uint64_t& page : list) {
      page = random() % (kSize / kPageSize) * kPageSize;
      if (page >= kSize / 2) page = page - kSize / 2 + kHigh;
      if (&page != list.data() && random() % 2 == 0 && (&page)[-1] + kPageSize != kSize / 2 &&
          (&page)[-1] + kPageSize != kHigh + kSize / 2)
        page = (&page)[-1] + kPageSize;
    }
    const auto shown = ram_->show(list, Pages::After::kNothing);
    ASSERT_TRUE(shown) << shown.error().message();
    ASSERT_EQ(list.size() * kPageSize, shown->size());
    for (size_t i = 0; i < list.size(); ++i) {
      ASSERT_EQ(content(list[i]), shown->bytes()[i * kPageSize]);
      ASSERT_EQ(content(list[i]), shown->bytes()[(i + 1) * kPageSize - 1]);
    }
  }
}

TEST_F(GuestRamTest, WhatIsNoMemoryIsNotShown) {
  for (const uint64_t page : {kSize / 2, kHigh - kPageSize, kHigh + kSize / 2, kPageSize + 1,
                              UINT64_MAX - kPageSize + 1, GuestRam::kEnd}) {
    const auto shown = ram_->show(std::vector<uint64_t>{0, page}, Pages::After::kNothing);
    ASSERT_FALSE(shown);
    EXPECT_EQ(EFAULT, shown.error().code());
  }
  EXPECT_FALSE(ram_->show({}, Pages::After::kNothing));
}

TEST_F(GuestRamTest, MemoryThatIsTakenAwayShowsNothing) {
  const std::vector<uint64_t> list{kPageSize, kHigh + kPageSize, 2 * kPageSize};
  const auto zeros = ram_->show(list, Pages::After::kZeros);
  const auto nothing = ram_->show(list, Pages::After::kNothing);
  ASSERT_TRUE(zeros && nothing);
  ASSERT_EQ(0, ram_->unmap(kHigh, kSize / 2));
  EXPECT_EQ(0, zeros->bytes()[kPageSize]);
  zeros->bytes()[kPageSize] = 9;  // nobody's
  EXPECT_EQ(129, memory_.bytes()[kSize / 2 + kPageSize]);
  EXPECT_EQ(1, zeros->bytes()[0]);
  EXPECT_EQ(2, nothing->bytes()[2 * kPageSize]);
  int ends[2];  // the kernel tells, instead of a signal
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC));
  EXPECT_EQ(-1, ::write(ends[1], nothing->bytes() + kPageSize, 1));
  EXPECT_EQ(EFAULT, errno);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(nullptr, ram_->at(kHigh, 1));
  EXPECT_EQ(ENOENT, ram_->unmap(kHigh, kSize / 2));
  ram_->unmap_all();
  EXPECT_EQ(nullptr, ram_->at(0, 1));
  EXPECT_EQ(0, zeros->bytes()[0]);
}

TEST_F(GuestRamTest, OverlappingRangesAreRefused) {
  EXPECT_EQ(EEXIST, ram_->map(kSize / 2 - kPageSize, 2 * kPageSize, {}, 0));
  EXPECT_EQ(EEXIST, ram_->map(0, kPageSize, file_.duplicate().value(), 0));
  EXPECT_EQ(0, ram_->map(kSize / 2, kPageSize, {}, 0));  // firmware
  EXPECT_EQ(nullptr, ram_->at(kSize / 2, 1));
  EXPECT_EQ(0, ram_->unmap(kSize / 2, kPageSize));
}

TEST_F(GuestRamTest, RangesAreBounded) {
  for (uint64_t i = 2; i < GuestRam::kMostRanges; ++i)
    ASSERT_EQ(0, ram_->map(2 * kHigh + i * kPageSize, kPageSize, {}, 0));
  EXPECT_EQ(ENOSPC, ram_->map(3 * kHigh, kPageSize, {}, 0));
}

TEST_F(GuestRamTest, AFileThatCanShrinkIsLeftOut) {
  const base::Fd loose(::memfd_create("loose", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  ASSERT_EQ(0, ::ftruncate(loose.get(), kPageSize));
  EXPECT_EQ(0, ram_->map(2 * kHigh, kPageSize, loose.duplicate().value(), 0));
  EXPECT_EQ(nullptr, ram_->at(2 * kHigh, 1));
  ASSERT_EQ(0, ::fcntl(loose.get(), F_ADD_SEALS, F_SEAL_SHRINK));
  EXPECT_EQ(0, ram_->map(3 * kHigh, kPageSize, loose.duplicate().value(), 0));
  EXPECT_NE(nullptr, ram_->at(3 * kHigh, 1));
  // Longer than its file.
  EXPECT_EQ(0, ram_->map(4 * kHigh, 2 * kPageSize, loose.duplicate().value(), 0));
  EXPECT_EQ(nullptr, ram_->at(4 * kHigh, 1));
  EXPECT_EQ(0, ram_->map(5 * kHigh, kPageSize, loose.duplicate().value(), kPageSize));
  EXPECT_EQ(nullptr, ram_->at(5 * kHigh, 1));
  // No file of memory at all.
  EXPECT_EQ(0,
            ram_->map(6 * kHigh, kPageSize, base::Fd(::open("/dev/zero", O_RDWR | O_CLOEXEC)), 0));
  EXPECT_EQ(nullptr, ram_->at(6 * kHigh, 1));
  EXPECT_EQ(0, ram_->map(GuestRam::kEnd, kPageSize, file_.duplicate().value(), 0));
  EXPECT_EQ(nullptr, ram_->at(GuestRam::kEnd, 1));
}

TEST_F(GuestRamTest, ADirectoryHasTwoLevels) {
  auto* const top = reinterpret_cast<uint64_t*>(memory_.bytes() + 10 * kPageSize);
  auto* const first = reinterpret_cast<uint64_t*>(memory_.bytes() + 11 * kPageSize);
  auto* const second = reinterpret_cast<uint64_t*>(memory_.bytes() + 12 * kPageSize);
  top[0] = 11 * kPageSize;
  top[1] = 12 * kPageSize;
  for (uint64_t i = 0; i < 512; ++i) first[i] = i * kPageSize;
  second[0] = kHigh;
  const auto list = ram_->directory(10 * kPageSize, 513);
  ASSERT_TRUE(list);
  EXPECT_EQ(513u, list->size());
  EXPECT_EQ(511 * kPageSize, (*list)[511]);
  EXPECT_EQ(kHigh, (*list)[512]);
  EXPECT_FALSE(ram_->directory(10 * kPageSize, 1025));  // top[2] is no page
  EXPECT_FALSE(ram_->directory(10 * kPageSize, 0));
  EXPECT_FALSE(ram_->directory(10 * kPageSize, GuestRam::kMostPages + 1));
  EXPECT_FALSE(ram_->directory(10 * kPageSize, UINT64_MAX));
  EXPECT_FALSE(ram_->directory(10 * kPageSize + 8, 1));
  top[0] = 10 * kPageSize;  // names itself: a list of what it contains
  EXPECT_TRUE(ram_->directory(10 * kPageSize, 2));
}

// What workers would find by the page table and the files, after any order of events.
class ShownTest : public GuestRamTest {
 protected:
  struct Viewer final : MemoryViewer {
    int view(std::span<const int> all) override {
      if (error != 0) return error;
      ++views;
      files.clear();
      for (const int file : all) files.emplace_back(::fcntl(file, F_DUPFD_CLOEXEC, 0));
      return 0;
    }
    std::vector<base::Fd> files;
    int error = 0, views = 0;
  } viewer_;

  ShownTest() {
    ram_ = GuestRam::create(&viewer_).value();
    EXPECT_EQ(0, ram_->map(0, kSize / 2, file_.duplicate().value(), 0));
    EXPECT_EQ(0, ram_->map(kHigh, kSize / 2, file_.duplicate().value(), kSize / 2));
  }
  // The first byte of a page as a worker reads it; nothing: the table does not know the page.
  std::optional<uint8_t> find(const uint8_t* page) const {
    ipc::PageEntry entry = 0;
    EXPECT_EQ(ssize_t{sizeof entry}, ::pread(ram_->page_table().get(), &entry, sizeof entry,
                                             static_cast<off_t>(reinterpret_cast<uintptr_t>(page) /
                                                                kPageSize * sizeof entry)));
    const uint32_t file = entry >> ipc::kPageBits;
    if (file == 0) return std::nullopt;
    EXPECT_LT(file, viewer_.files.size());
    uint8_t byte = 0;
    EXPECT_EQ(1, ::pread(viewer_.files[file].get(), &byte, 1,
                         static_cast<off_t>((entry & ((1u << ipc::kPageBits) - 1)) * kPageSize)));
    return byte;
  }
};

TEST_F(ShownTest, WorkersFindEachPage) {
  const std::vector<uint64_t> list{9 * kPageSize, kHigh + kPageSize, 10 * kPageSize, kPageSize};
  EXPECT_EQ(0, viewer_.views) << "nothing is shown before it is used";
  {
    auto pages = ram_->show(list, Pages::After::kNothing);
    ASSERT_TRUE(pages);
    EXPECT_FALSE(find(pages->bytes())) << "a ring is nobody's but ours";
    ASSERT_TRUE(ram_->show_to_workers(&*pages));
    EXPECT_EQ(1, viewer_.views);
    Pages moved = std::move(*pages);
    for (size_t i = 0; i < list.size(); ++i)
      EXPECT_EQ(content(list[i]), find(moved.bytes() + i * kPageSize)) << i;
    // What is taken away they are told of, when they do not find it any more.
    ASSERT_EQ(0, ram_->unmap(kHigh, kSize / 2));
    EXPECT_EQ(2, viewer_.views);
    EXPECT_FALSE(find(moved.bytes() + kPageSize));
    EXPECT_EQ(content(list[2]), find(moved.bytes() + 2 * kPageSize));
    EXPECT_EQ(3u, fake::Verbs::entries_of(ram_->page_table()));
  }
  EXPECT_EQ(0u, fake::Verbs::entries_of(ram_->page_table()));
  EXPECT_EQ(2u, viewer_.files.size());
  ASSERT_EQ(0, ram_->unmap(0, kSize / 2));
  EXPECT_TRUE(viewer_.files.empty()) << "the last of the file";
}

TEST_F(ShownTest, FilesComeAndGo) {
  std::mt19937_64 random(7);
  constexpr uint64_t kPages = 4, kPlaces = 12;
  std::vector<base::Fd> files;
  for (uint64_t i = 0; i < kPlaces; ++i) {
    files.push_back(base::make_memfd("ram", kPages * kPageSize).value());
    const auto byte = static_cast<uint8_t>(200 + i);
    for (uint64_t page = 0; page < kPages; ++page)
      ASSERT_EQ(1, ::pwrite(files[i].get(), &byte, 1, static_cast<off_t>(page * kPageSize)));
  }
  const auto place = [&](uint64_t i) { return 2 * kHigh + i * kPages * kPageSize; };
  std::array<bool, kPlaces> is_there{};
  std::array<std::optional<Pages>, kPlaces> shown;
  size_t refused = 0;
  for (int step = 0; step < 3000; ++step) {
    const uint64_t i = random() % kPlaces;
    if (!is_there[i]) {
      ASSERT_EQ(0, ram_->map(place(i), kPages * kPageSize, files[i].duplicate().value(), 0));
    } else if (!shown[i] && random() % 2 == 0) {
      auto pages = ram_->show(std::vector<uint64_t>{place(i) + kPageSize}, Pages::After::kNothing);
      ASSERT_TRUE(pages);
      viewer_.error = random() % 8 == 0 ? EBUSY : 0;
      const bool is_shown = ram_->show_to_workers(&*pages);
      viewer_.error = 0;
      refused += is_shown ? 0 : 1;
      EXPECT_EQ(is_shown, find(pages->bytes()).has_value());
      if (is_shown) shown[i] = std::move(*pages);
      continue;
    } else {
      if (random() % 2 == 0) shown[i].reset();
      ASSERT_EQ(0, ram_->unmap(place(i), kPages * kPageSize));
      if (shown[i]) {
        EXPECT_FALSE(find(shown[i]->bytes()));
      }
      shown[i].reset();
    }
    is_there[i] = !is_there[i];
    for (uint64_t k = 0; k < kPlaces; ++k)
      if (shown[k]) {
        ASSERT_EQ(200 + k, find(shown[k]->bytes()).value_or(0));
      }
  }
  EXPECT_GT(refused, 0u) << "seven files are shown at most";
  for (auto& pages : shown) pages.reset();
  ram_->unmap_all();
  EXPECT_TRUE(viewer_.files.empty());
  EXPECT_EQ(0u, fake::Verbs::entries_of(ram_->page_table()));
}

}  // namespace
}  // namespace vrdma::pvrdma
