// The libraries of an image that the drop-in libraries replace, and those that they need.
//
// A program finds libibverbs.so.1 by the loader's cache, in a default directory, by LD_LIBRARY_PATH
// or in a directory that it names itself (RPATH), where it may have another file name: wheels of
// Python bring libibverbs-1de1263b.so.1.14.48.0. Such private copies are searched for in the places
// where packages put them. The search is limited by the number of names that it looks at.
#pragma once

#include <string>
#include <vector>

#include "cli/hook/loader_cache.h"
#include "cli/hook/root.h"

namespace vrdma::cli::hook {

constexpr size_t kMostNames = 5000;
constexpr size_t kMostCopies = 64;

struct Library {
  const char* soname;
  const char* link;  // the name that a linker and dlopen(3) look for
  const char* stem;  // names of copies begin with it
};
inline constexpr Library kLibraries[] = {
    {"libibverbs.so.1", "libibverbs.so", "libibverbs"},
    {"librdmacm.so.1", "librdmacm.so", "librdmacm"},
};

struct Copy {
  base::Fd file;  // O_PATH
  std::string path;
  const Library* library;
};

struct Copies {
  std::vector<Copy> found;  // each file once; those of the loader's cache first
  bool complete = true;     // false: the search stopped at a limit
};

// The library of which `name` is a copy; nullptr: none.
[[nodiscard]] const Library* library_of(std::string_view name);

// Omits files that are no ELF libraries of this architecture.
[[nodiscard]] Copies find_copies(const Root& root, const LoaderCache& cache,
                                 const std::vector<std::string>& library_path,
                                 size_t most_names = kMostNames);

// glibc's libraries that have been empty since 2.34, when libc.so.6 got their functions. The
// drop-in libraries need them because they run with older ones too, but an image that consists of
// the files that ldd(1) named for its programs lacks them.
inline constexpr const char* kStubs[] = {"libdl.so.2", "libpthread.so.0"};

// Those of kStubs that the loader finds neither by its cache nor in a default directory.
[[nodiscard]] std::vector<std::string> missing_stubs(const Root& root, const LoaderCache& cache);

}  // namespace vrdma::cli::hook
