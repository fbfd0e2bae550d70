// Searches in directories of the test's own; tests/integration/oci_hook.sh has hostile images.
#include "cli/hook/copies.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/loader_directories.h"

namespace vrdma::cli::hook {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64, kOtherMachine = EM_AARCH64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64, kOtherMachine = EM_X86_64;
#endif

class FindCopies : public testing::Test {
 protected:
  FindCopies() {
    std::string name = (fs::temp_directory_path() / "copies.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    top_ = name;
  }
  ~FindCopies() override { fs::remove_all(top_); }

  void library(const std::string& path, Elf64_Half machine = kMachine) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_type = ET_DYN;
    header.e_machine = machine;
    fs::create_directories((top_ / path.substr(1)).parent_path());
    std::ofstream(top_ / path.substr(1), std::ios::binary)
        .write(reinterpret_cast<const char*>(&header), sizeof header);
  }
  void link(const std::string& path, const std::string& target) {
    fs::create_directories((top_ / path.substr(1)).parent_path());
    fs::create_symlink(target, top_ / path.substr(1));
  }
  Copies find(const LoaderCache& cache = {}, const std::vector<std::string>& library_path = {},
              size_t most_names = kMostNames) {
    const auto root = Root::open(top_);
    EXPECT_TRUE(root);
    return find_copies(*root, cache, library_path, most_names);
  }
  std::vector<std::string> found(const LoaderCache& cache = {},
                                 const std::vector<std::string>& library_path = {}) {
    std::vector<std::string> paths;
    for (const auto& copy : find(cache, library_path).found)
      paths.push_back(std::string(copy.library->stem) + " " + copy.path);
    return paths;
  }

  fs::path top_;
};

TEST(LibraryOf, names_of_copies) {
  const auto stem = [](const char* name) {
    const Library* const library = library_of(name);
    return std::string(library == nullptr ? "none" : library->stem);
  };
  for (const char* const name : {"libibverbs.so", "libibverbs.so.1", "libibverbs.so.1.14.48.0",
                                 "libibverbs-1de1263b.so.1.14.48.0"})
    EXPECT_EQ(stem(name), "libibverbs") << name;
  EXPECT_EQ(stem("librdmacm-0.so.1"), "librdmacm");
  for (const char* const name :
       {"", "libibverbs", "libibverbs.a", "libibverbsx.so", "libibverbs.conf", "xlibibverbs.so",
        "libmlx5-rdmav34.so", "libibverbs_so"})
    EXPECT_EQ(stem(name), "none") << name;
}

TEST_F(FindCopies, in_the_cache_then_the_default_directories_each_file_once) {
  library("/usr/lib64/libibverbs.so.1.14");
  link("/usr/lib64/libibverbs.so.1", "libibverbs.so.1.14");
  link("/usr/lib64/libibverbs.so", "libibverbs.so.1");
  link("/lib64", "usr/lib64");
  library("/usr/local/lib/librdmacm.so.1");
  library("/somewhere/libibverbs.so.1");
  LoaderCache cache;
  cache.redirect("libibverbs.so.1", "/somewhere/libibverbs.so.1");
  EXPECT_THAT(found(cache), ElementsAre("libibverbs /somewhere/libibverbs.so.1",
                                        "libibverbs /usr/lib64/libibverbs.so.1",
                                        "librdmacm /usr/local/lib/librdmacm.so.1"));
}

TEST_F(FindCopies, in_the_places_of_packages) {
  const std::vector<std::string> places = {
      "/opt/conda/lib/libibverbs.so.1",
      "/opt/conda/envs/a/lib/libibverbs.so.1",
      "/opt/conda/pkgs/rdma-core-44/lib/libibverbs.so.1",
      "/opt/vendor/mpi/lib/libibverbs.so",
      "/usr/lib/python3/dist-packages/a.libs/libibverbs-12.so.1",
      "/usr/local/lib/python3.11/site-packages/a.libs/libibverbs-12.so.1",
      "/usr/local/lib/python3.11/dist-packages/a.libs/libibverbs-12.so.1",
      "/venv/lib/python3.12/site-packages/a.libs/libibverbs-12.so.1",
      "/opt/venv/lib/python3.12/site-packages/a.libs/libibverbs-12.so.1",
      "/opt/conda/envs/a/lib/python3.9/site-packages/a.libs/libibverbs-12.so.1"};
  std::vector<std::string> expected;
  for (const auto& place : places) {
    library(place);
    expected.push_back("libibverbs " + place);
  }
  library("/opt/conda/lib/libibverbs/libibverbs.so.1");
  library("/usr/local/lib/python3.11/site-packages/a/libibverbs-12.so.1");
  EXPECT_THAT(found(), testing::UnorderedElementsAreArray(expected));
}

TEST_F(FindCopies, in_the_directories_of_the_library_path) {
  library("/app/libs/libibverbs.so.1");
  EXPECT_THAT(found(), IsEmpty());
  EXPECT_THAT(found({}, {"/app/libs"}), ElementsAre("libibverbs /app/libs/libibverbs.so.1"));
}

TEST_F(FindCopies, links_are_followed_within_the_root) {
  library("/elsewhere/libibverbs.so.1");
  link("/opt/a", "/elsewhere");
  link("/opt/b/lib", "../../../../../elsewhere");
  link("/opt/c/lib", top_.string() + "/elsewhere");
  EXPECT_THAT(found(), ElementsAre("libibverbs /opt/b/lib/libibverbs.so.1"));
}

TEST_F(FindCopies, what_is_no_library_of_this_architecture_stays) {
  library("/usr/lib/libibverbs.so.1", kOtherMachine);
  fs::create_directories(top_ / "opt/a/lib/libibverbs.so.1");
  std::ofstream(top_ / "opt/a/lib/libibverbs.so") << "INPUT(libibverbs.so.1)\n";
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(FindCopies, the_search_stops_at_its_limits) {
  for (int i = 0; i < 300; ++i) library("/opt/p" + std::to_string(i) + "/lib/libibverbs.so.1");
  const auto few = find({}, {}, 100);
  EXPECT_FALSE(few.complete);
  EXPECT_LE(few.found.size(), 100U);
  const auto many = find();
  EXPECT_FALSE(many.complete);
  EXPECT_EQ(many.found.size(), kMostCopies);
}

class MissingStubs : public FindCopies {
 protected:
  std::vector<std::string> missing(const LoaderCache& cache = {}) {
    const auto root = Root::open(top_);
    EXPECT_TRUE(root);
    return missing_stubs(*root, cache);
  }
};

TEST_F(MissingStubs, an_image_of_copied_files_has_none) {
  library("/lib/" VRDMA_MULTIARCH "/libc.so.6");
  EXPECT_THAT(missing(), ElementsAre("libdl.so.2", "libpthread.so.0"));
}

TEST_F(MissingStubs, each_is_found_in_a_default_directory_or_by_the_cache) {
  library("/usr/lib/" VRDMA_MULTIARCH "/libdl-2.31.so");
  link("/usr/lib/" VRDMA_MULTIARCH "/libdl.so.2", "libdl-2.31.so");
  EXPECT_THAT(missing(), ElementsAre("libpthread.so.0"));
  library("/opt/glibc/libpthread.so.0");
  LoaderCache cache;
  cache.redirect("libpthread.so.0", "/opt/glibc/libpthread.so.0");
  EXPECT_THAT(missing(cache), IsEmpty());
}

TEST_F(MissingStubs, what_the_loader_does_not_take_is_none) {
  library("/usr/lib/libdl.so.2", kOtherMachine);
  link("/usr/lib/libpthread.so.0", top_.string() + "/elsewhere");
  library("/elsewhere");
  LoaderCache cache;
  cache.redirect("libpthread.so.0", "/nonexistent/libpthread.so.0");
  EXPECT_THAT(missing(cache), ElementsAre("libdl.so.2", "libpthread.so.0"));
}

}  // namespace
}  // namespace vrdma::cli::hook
