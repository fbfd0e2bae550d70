#include "client/device/memory/maps.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "core/base/fd.h"

namespace vrdma::client {
namespace {

constexpr uint64_t kPage = 4096;

// Each test runs with both implementations.
class MemoryMaps : public ::testing::TestWithParam<bool (*)(uint64_t, uint64_t, SeeMapped, void*)> {
 protected:
  void SetUp() override {
    if (!GetParam()(0, UINT64_MAX, &append, &all_)) GTEST_SKIP() << "not with this kernel";
  }
  static void append(const Mapped& one, void* all) {
    static_cast<std::vector<Mapped>*>(all)->push_back(one);
  }
  static std::vector<Mapped> read(uint64_t start, uint64_t end) {
    std::vector<Mapped> mapped;
    EXPECT_TRUE(GetParam()(start, end, &append, &mapped));
    return mapped;
  }
  // The only mapping at the address of an object.
  static Mapped at(const void* object) {
    const auto address = reinterpret_cast<uint64_t>(object);
    const auto mapped = read(address, address + 1);
    EXPECT_EQ(mapped.size(), 1U);
    return mapped.empty() ? Mapped{} : mapped.front();
  }

  std::vector<Mapped> all_;
};

// Four pages: private and writable, a hole, read-only, inaccessible.
TEST_P(MemoryMaps, cut_to_the_range_asked_for) {
  auto* memory =
      static_cast<char*>(::mmap(nullptr, 5 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::mprotect(memory, 2 * kPage, PROT_READ | PROT_WRITE), 0);
  ASSERT_EQ(::munmap(memory + 2 * kPage, kPage), 0);
  ASSERT_EQ(::mprotect(memory + 3 * kPage, kPage, PROT_READ), 0);
  const auto start = reinterpret_cast<uint64_t>(memory);
  const auto mapped = read(start + kPage, start + 4 * kPage + 10);
  ASSERT_EQ(mapped.size(), 3U);
  const uint64_t starts[] = {start + kPage, start + 3 * kPage, start + 4 * kPage};
  const uint64_t ends[] = {start + 2 * kPage, start + 4 * kPage, start + 4 * kPage + 10};
  const int prots[] = {PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(mapped[i].start, starts[i]);
    EXPECT_EQ(mapped[i].end, ends[i]);
    EXPECT_EQ(mapped[i].prot, prots[i]);
    EXPECT_TRUE(mapped[i].anonymous);
    EXPECT_FALSE(mapped[i].shared);
  }
  EXPECT_TRUE(mapped[0].holds(start));
  EXPECT_FALSE(mapped[0].holds(start + 2 * kPage));
  EXPECT_TRUE(read(start + 2 * kPage, start + 3 * kPage).empty());
  ::munmap(memory, 5 * kPage);
}

TEST_P(MemoryMaps, tell_files_from_memory) {
  const base::Fd file(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 16 * kPage), 0);
  struct stat status {};
  ASSERT_EQ(::fstat(file.get(), &status), 0);
  for (const int kind : {MAP_SHARED, MAP_PRIVATE}) {
    auto* memory = static_cast<char*>(
        ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, kind, file.get(), 3 * kPage));
    ASSERT_NE(memory, MAP_FAILED);
    const Mapped one = at(memory + kPage);
    EXPECT_EQ(one.offset, 4 * kPage);
    EXPECT_EQ(one.inode, status.st_ino);
    EXPECT_EQ(one.shared, kind == MAP_SHARED);
    EXPECT_FALSE(one.anonymous);
    ::munmap(memory, 4 * kPage);
  }
  void* shared = ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_TRUE(at(shared).shared);
  EXPECT_FALSE(at(shared).anonymous);
  ::munmap(shared, kPage);
  const auto* const small = static_cast<char*>(std::malloc(8));
  EXPECT_TRUE(at(small).anonymous);
  std::free(const_cast<char*>(small));
  const int on_the_stack = 0;
  EXPECT_FALSE(at(&on_the_stack).anonymous);
  EXPECT_FALSE(at(reinterpret_cast<const void*>(&::getpid)).anonymous);
}

INSTANTIATE_TEST_SUITE_P(Ways, MemoryMaps, ::testing::Values(&query_mappings, &parse_mappings),
                         [](const auto& way) { return way.index == 0 ? "query" : "parse"; });

}  // namespace
}  // namespace vrdma::client
