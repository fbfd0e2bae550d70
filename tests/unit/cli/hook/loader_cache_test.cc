#include "cli/hook/loader_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

namespace vrdma::cli::hook {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kHostCache[] = "/etc/ld.so.cache";
constexpr int32_t kForeign = 0x0803;  // x32
#if defined(__x86_64__)
constexpr int32_t kOwn = 0x0303;
#elif defined(__aarch64__)
constexpr int32_t kOwn = 0x0a03;
#endif

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What glibc's own program reads in a cache: "name (kind) => path", in the order of the file.
std::vector<std::string> listed(const std::string& cache) {
  std::string path = (std::filesystem::temp_directory_path() / "cache.XXXXXX").string();
  const int fd = ::mkstemp(path.data());
  EXPECT_EQ(::write(fd, cache.data(), cache.size()), static_cast<ssize_t>(cache.size()));
  ::close(fd);
  const std::string command = "/sbin/ldconfig -p -C " + path;
  const std::unique_ptr<FILE, int (*)(FILE*)> program(::popen(command.c_str(), "r"), ::pclose);
  std::vector<std::string> lines;
  char line[8192];
  while (std::fgets(line, sizeof line, program.get()) != nullptr)
    if (std::strstr(line, " => ") != nullptr) lines.emplace_back(line + 1, std::strlen(line) - 2);
  std::filesystem::remove(path);
  return lines;
}

// As glibc before 2.32 writes it: a file of the older format comes first.
std::string behind_old_format(const std::string& cache, uint32_t entries) {
  std::string old = "ld.so-1.7.0";
  old.resize(16 + entries * 12);
  std::memcpy(old.data() + 12, &entries, sizeof entries);
  old.resize((old.size() + 7) / 8 * 8);
  return old + cache;
}

LoaderCache small_cache() {
  LoaderCache cache;
  cache.entries = {{kOwn, "libz.so.1", "/lib/libz.so.1", 0, 0},
                   {kOwn, "libibverbs.so.1", "/lib/x86-64-v3/libibverbs.so.1", 0, 1ULL << 62 | 1},
                   {kOwn, "libibverbs.so.1", "/lib/libibverbs.so.1", 0, 0},
                   {kForeign, "libibverbs.so.1", "/libx32/libibverbs.so.1", 0, 0},
                   {kOwn, "liba.so.10", "/lib/liba.so.10", 0x30200, 0},
                   {kOwn, "liba.so.9", "/lib/liba.so.9", 0, 1ULL << 62}};
  cache.hwcaps = {"x86-64-v2", "x86-64-v3"};
  return cache;
}

TEST(LoaderCache, the_hosts_cache_is_copied_so_that_ldconfig_reads_the_same) {
  const std::string bytes = content_of(kHostCache);
  const auto read = read_loader_cache(bytes);
  ASSERT_TRUE(read) << read.error().message();
  ASSERT_FALSE(read->entries.empty());
  EXPECT_EQ(listed(write_loader_cache(*read)), listed(bytes));
  const auto again = read_loader_cache(write_loader_cache(*read));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->entries, read->entries);
}

TEST(LoaderCache, a_redirected_name_has_one_entry_of_this_architecture_in_its_place) {
  auto cache = read_loader_cache(content_of(kHostCache));
  ASSERT_TRUE(cache);
  const auto before = listed(write_loader_cache(*cache));
  cache->redirect("libc.so.6", "/run/vrdma/lib/libc.so.6");
  cache->redirect("libnew.so.1", "/run/vrdma/lib/libnew.so.1");
  const auto after = listed(write_loader_cache(*cache));
  const auto with = [&after](const std::string& text) {
    return std::count_if(after.begin(), after.end(), [&text](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  };
  EXPECT_EQ(with("=> /run/vrdma/lib/libc.so.6"), 1);
  EXPECT_EQ(with("=> /run/vrdma/lib/libnew.so.1"), 1);
  EXPECT_EQ(after.size(), before.size() + 1);
}

TEST(LoaderCache, entries_are_in_the_order_in_which_the_loader_searches) {
  const auto read = read_loader_cache(write_loader_cache(small_cache()));
  ASSERT_TRUE(read) << read.error().message();
  std::vector<std::string> paths;
  for (const auto& entry : read->entries) paths.push_back(entry.path);
  EXPECT_THAT(paths, ElementsAre("/lib/libz.so.1", "/libx32/libibverbs.so.1",
                                 "/lib/x86-64-v3/libibverbs.so.1", "/lib/libibverbs.so.1",
                                 "/lib/liba.so.10", "/lib/liba.so.9"));
}

TEST(LoaderCache, subdirectories_of_hwcaps_are_copied) {
  const std::string bytes = write_loader_cache(small_cache());
  const auto read = read_loader_cache(bytes);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_THAT(read->hwcaps, ElementsAre("x86-64-v2", "x86-64-v3"));
  EXPECT_EQ(read->entries.back().hwcap, 1ULL << 62);
  EXPECT_THAT(listed(bytes),
              testing::Contains(testing::AllOf(HasSubstr("\"x86-64-v3\""),
                                               HasSubstr("/lib/x86-64-v3/libibverbs.so.1"))));
}

TEST(LoaderCache, a_file_with_the_older_format_in_front_is_read) {
  for (const uint32_t entries : {0U, 1U, 2U, 3U}) {
    const auto read =
        read_loader_cache(behind_old_format(write_loader_cache(small_cache()), entries));
    ASSERT_TRUE(read) << entries << ": " << read.error().message();
    EXPECT_EQ(read->entries.size(), 6U);
  }
}

TEST(LoaderCache, the_paths_of_libraries_are_those_of_this_architecture) {
  EXPECT_THAT(small_cache().paths_of({"libibverbs.so.1", "libibverbs.so"}),
              ElementsAre("/lib/x86-64-v3/libibverbs.so.1", "/lib/libibverbs.so.1"));
}

TEST(LoaderCache, an_empty_one_can_be_written) {
  LoaderCache cache;
  cache.redirect("libibverbs.so.1", "/run/vrdma/lib/libibverbs.so.1");
  EXPECT_THAT(listed(write_loader_cache(cache)),
              ElementsAre(HasSubstr("=> /run/vrdma/lib/libibverbs.so.1")));
}

TEST(LoaderCache, every_shorter_file_is_refused) {
  const std::string bytes = write_loader_cache(small_cache());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(read_loader_cache(bytes.substr(0, size))) << size;
  EXPECT_FALSE(read_loader_cache("ld.so-1.7.0"));
  EXPECT_FALSE(read_loader_cache(std::string(kMostCache + 1, 'x')));
}

// A place in the file's header or first entry, and a value that it must not have.
struct Damage {
  const char* what;
  size_t offset;
  uint32_t value;
};

TEST(LoaderCache, damaged_fields_are_refused) {
  const std::string bytes = write_loader_cache(small_cache());
  for (const auto& [what, offset, value] : {Damage{"magic", 0, 0},
                                            {"entries", 20, 0x10000000},
                                            {"big-endian", 28, 3},
                                            {"extensions", 32, 0xfffffff0},
                                            {"name", 52, 0xffffffff},
                                            {"path", 56, static_cast<uint32_t>(bytes.size())},
                                            {"hwcap", 48 + 2 * 24 + 16, 7}}) {
    std::string damaged = bytes;
    std::memcpy(damaged.data() + offset, &value, sizeof value);
    EXPECT_FALSE(read_loader_cache(damaged)) << what;
  }
}

TEST(LoaderCache, entries_that_share_a_long_name_do_not_multiply_it) {
  LoaderCache cache;
  cache.entries.assign(50000, {kOwn, "", "", 0, 0});
  cache.entries[0].name = std::string(4000, 'x');
  std::string bytes = write_loader_cache(cache);
  uint32_t name = 0;
  std::memcpy(&name, bytes.data() + 52, sizeof name);
  for (size_t i = 0; i < cache.entries.size(); ++i)
    std::memcpy(bytes.data() + 52 + i * 24, &name, sizeof name);
  EXPECT_FALSE(read_loader_cache(bytes));
}

}  // namespace
}  // namespace vrdma::cli::hook
