// The file /etc/ld.so.cache: which library the loader takes for which name (ldconfig(8)).
//
// It consists of a header, the entries in the order of a binary search, the names, and extensions.
// glibc before 2.32 writes a file of an older format in front of that; its loaders read the new one
// alone as well. Only the new format of a little-endian machine is written:
//
//   magic "glibc-ld.so.cache1.1", entries, bytes of names, byte order, place of the extensions
//   {flags, name, path, kernel, hwcap} ...      name, path: offsets from the magic
//   names and paths, each with a terminating zero
//   extensions: the names of the subdirectories of glibc-hwcaps, to which hwcaps refer by index
//
// The cache of an image is hostile. All offsets are checked, and lengths are limited.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli::hook {

constexpr size_t kMostCache = size_t{4} << 20;  // bytes of a file; ldconfig's have some 100,000

struct LoaderCache {
  struct Entry {
    int32_t flags = 0;
    std::string name, path;
    uint32_t kernel = 0;  // the lowest version, up to glibc 2.35
    uint64_t hwcap = 0;   // of the processor, or a reference to `hwcaps`

    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;
  std::vector<std::string> hwcaps;

  // The loader takes `path` for `name`, whatever it took before. Entries of other architectures
  // remain.
  void redirect(const std::string& name, const std::string& path);
  // Paths of libraries of this architecture with one of these names.
  [[nodiscard]] std::vector<std::string> paths_of(const std::vector<std::string>& names) const;
};

// EBADMSG: damaged, too long, or of an unknown format; the loader may know that format.
[[nodiscard]] base::Result<LoaderCache> read_loader_cache(std::string_view bytes);
[[nodiscard]] std::string write_loader_cache(LoaderCache cache);

}  // namespace vrdma::cli::hook
