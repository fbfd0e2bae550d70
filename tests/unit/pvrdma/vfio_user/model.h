// A function that ends the program if it is called otherwise than function.h promises, and notes
// what it was called for. Also for the fuzz target.
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "core/base/mapping.h"
#include "pvrdma/vfio_user/function.h"

namespace vrdma::pvrdma {

class Model final : public Function {
 public:
  static constexpr std::array<uint64_t, kRegions> kSizes{0x4000, 0x1000, 0, 0, 0, 0, 0, 256, 0};
  static constexpr uint32_t kVectors = 3;

  [[nodiscard]] static uint8_t byte_at(uint32_t region, uint64_t offset) {
    return static_cast<uint8_t>(offset * 3 + region);
  }

  [[nodiscard]] RegionShape region(uint32_t index) const override {
    must(index < kRegions, "a region that does not exist");
    RegionShape shape{kSizes[index], {}};
    if (index == 0) shape.mappable = {0x3000, 0x1000, &page};
    return shape;
  }
  [[nodiscard]] uint32_t vectors() const override { return kVectors; }
  void read(uint32_t index, uint64_t offset, std::span<uint8_t> bytes) override {
    check(index, offset, bytes.size());
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_at(index, offset + i);
    note("read", {index, offset, bytes.size()});
  }
  void write(uint32_t index, uint64_t offset, std::span<const uint8_t> bytes) override {
    check(index, offset, bytes.size());
    note("write", {index, offset});
    for (const uint8_t byte : bytes) calls.back() += " " + std::to_string(byte);
  }
  void answered() override { ++answers; }
  int map(const DmaRange& range, base::Fd file) override {
    check_range(range.address, range.length);
    must(range.offset % 4096 == 0 && range.offset <= uint64_t{INT64_MAX} - range.length,
         "an offset that no file has");
    struct stat status {};
    if (file.valid()) must(::fstat(file.get(), &status) == 0, "a descriptor that is none");
    for (const auto& [address, length] : ranges)
      if (address < range.address + range.length && range.address < address + length) return EEXIST;
    note("map", {range.address, range.length, range.offset, range.may_read, range.may_write,
                 file.valid() ? status.st_ino : 0});
    ranges[range.address] = range.length;
    return 0;
  }
  int unmap(uint64_t address, uint64_t length) override {
    check_range(address, length);
    const auto found = ranges.find(address);
    if (found == ranges.end() || found->second != length) return ENOENT;
    note("unmap", {address, length});
    ranges.erase(found);
    return 0;
  }
  void unmap_all() override {
    note("unmap_all", {});
    ranges.clear();
  }
  void set_vector(uint32_t vector, base::Fd eventfd) override {
    must(vector < kVectors, "a vector that does not exist");
    note("set_vector", {vector, eventfd.valid()});
    eventfds[vector] = std::move(eventfd);
  }
  void reset() override { note("reset", {}); }

  // How many of the calls begin with this word.
  [[nodiscard]] size_t count(const std::string& call) const {
    size_t all = 0;
    for (const std::string& noted : calls) all += noted.substr(0, noted.find(' ')) == call;
    return all;
  }

  base::Fd page = base::make_memfd("bar", 0x4000).value();
  std::vector<std::string> calls;
  std::map<uint64_t, uint64_t> ranges;
  std::array<base::Fd, kVectors> eventfds;
  size_t answers = 0;

 private:
  static void must(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "the function is called with %s\n", what);
    std::abort();
  }
  static void check(uint32_t index, uint64_t offset, uint64_t count) {
    must(index < kRegions, "a region that does not exist");
    must(count >= 1 && count <= kMostAccess && count <= kSizes[index] &&
             offset <= kSizes[index] - count,
         "an access outside of a region");
  }
  static void check_range(uint64_t address, uint64_t length) {
    must(length != 0 && (address | length) % 4096 == 0, "no whole pages");
    must(address + length > address, "a range that wraps");
  }
  void note(const char* call, std::initializer_list<uint64_t> numbers) {
    calls.emplace_back(call);
    for (const uint64_t number : numbers) calls.back() += " " + std::to_string(number);
  }
};

inline size_t open_descriptors() {
  size_t count = 0;
  DIR* const all = ::opendir("/proc/self/fd");
  while (::readdir(all) != nullptr) ++count;
  ::closedir(all);
  return count;
}

}  // namespace vrdma::pvrdma
