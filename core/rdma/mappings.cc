#include "core/rdma/mappings.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/mapping_query.h"

namespace vrdma::rdma {

namespace {

struct Mapping {
  uint64_t start = 0, end = 0;
  bool readable = false, writable = false, is_stack = false;
};

// "7f1c00000000-7f1c00021000 rw-p 00000000 00:00 0   [stack]"
bool parse(std::string_view line, Mapping* mapping) {
  const char* const last = line.data() + line.size();
  const auto [dash, bad_start] = std::from_chars(line.data(), last, mapping->start, 16);
  if (bad_start != std::errc() || dash == last || *dash != '-') return false;
  const auto [space, bad_end] = std::from_chars(dash + 1, last, mapping->end, 16);
  if (bad_end != std::errc() || last - space < 5 || *space != ' ') return false;
  mapping->readable = space[1] == 'r';
  mapping->writable = space[2] == 'w';
  mapping->is_stack = line.ends_with(" [stack]");
  return true;
}

// The mappings in the order of their addresses.
class Reader {
 public:
  explicit Reader(const base::Fd& maps) : maps_(maps) {}
  bool next(Mapping* mapping) {
    size_t end = 0;
    while ((end = text_.find('\n', at_)) == std::string::npos)
      if (!read_more()) return false;
    const bool parsed = parse(std::string_view(text_).substr(at_, end - at_), mapping);
    at_ = end + 1;
    return parsed;
  }

 private:
  bool read_more() {
    text_.erase(0, at_);
    at_ = 0;
    char bytes[4096];
    const ssize_t got = ::pread(maps_.get(), bytes, sizeof bytes, offset_);
    if (got <= 0) return false;
    offset_ += got;
    text_.append(bytes, static_cast<size_t>(got));
    return true;
  }

  const base::Fd& maps_;
  off_t offset_ = 0;
  std::string text_;
  size_t at_ = 0;  // of the next line
};

bool is_stack(const base::Fd& maps, uint64_t start) {
  char name[16] = {};
  base::MappingQuery mapping;
  mapping.address = start;
  mapping.name = reinterpret_cast<uintptr_t>(name);
  mapping.name_size = sizeof name;
  return base::query_mapping(maps.get(), &mapping) == 0 && std::strcmp(name, "[stack]") == 0;
}

// Nothing: the kernel does not answer questions.
std::optional<bool> answer_permits(const base::Fd& maps, uint64_t addr, uint64_t length,
                                   bool write) {
  if (addr + length < addr) return false;
  base::MappingQuery mapping;
  for (uint64_t at = addr; at < addr + length; at = mapping.end) {
    mapping = {};
    mapping.flags = base::kCoveringOrNext;
    mapping.address = at;
    const int error = base::query_mapping(maps.get(), &mapping);
    if (error == ENOENT || error == ESRCH) return false;
    if (error != 0) return std::nullopt;
    if (mapping.start > at && !is_stack(maps, mapping.start)) return false;
    if ((mapping.rights & (write ? base::kWritable : base::kReadable)) == 0) return false;
  }
  return true;
}

}  // namespace

bool mappings_permit(const base::Fd& maps, uint64_t addr, uint64_t length, bool write) {
  if (const auto answer = answer_permits(maps, addr, length, write)) return *answer;
  return text_permits(maps, addr, length, write);
}

bool text_permits(const base::Fd& maps, uint64_t addr, uint64_t length, bool write) {
  if (addr + length < addr) return false;
  Reader reader(maps);
  Mapping mapping;
  for (uint64_t at = addr; at < addr + length; at = mapping.end) {
    do {
      if (!reader.next(&mapping)) return false;
    } while (mapping.end <= at);
    if (mapping.start > at && !mapping.is_stack) return false;
    if (!(write ? mapping.writable : mapping.readable)) return false;
  }
  return true;
}

}  // namespace vrdma::rdma
