#include "client/device/memory/maps.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "core/base/fd.h"
#include "core/base/mapping_query.h"
#include "core/ipc/layout.h"

namespace vrdma::client {

namespace {

bool is_plain(const char* name) {
  return *name == '\0' || *name == '\n' || std::strncmp(name, "[heap]", 6) == 0 ||
         std::strncmp(name, "[anon:", 6) == 0;
}

bool is_asynchronous_io(const char* name) { return std::strncmp(name, "/[aio]", 6) == 0; }

// "start-end perms offset major:minor inode   name"; false if the line is malformed.
bool parse(const char* line, Mapped* mapped) {
  char perms[5] = {};
  unsigned major = 0, minor = 0;
  int name_at = 0;
  if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n",
                  &mapped->whole_start, &mapped->whole_end, perms, &mapped->offset, &major, &minor,
                  &mapped->inode, &name_at) < 7)
    return false;
  mapped->prot = (perms[0] == 'r' ? PROT_READ : 0) | (perms[1] == 'w' ? PROT_WRITE : 0) |
                 (perms[2] == 'x' ? PROT_EXEC : 0);
  mapped->shared = perms[3] == 's';
  const char* name = name_at > 0 ? line + name_at : "";
  mapped->anonymous = !mapped->shared && mapped->inode == 0 && is_plain(name);
  mapped->asynchronous_io = is_asynchronous_io(name);
  return true;
}

// Passes each line to `see`, without its end, until that returns false. False: cannot be read.
template <class See>
bool each_line(const char* name, See see) {
  const base::Fd file(::open(name, O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  char buffer[16384];
  size_t held = 0;       // bytes in buffer
  bool cut_off = false;  // the next bytes continue a line that was too long and was seen already
  for (;;) {
    const size_t room = sizeof buffer - 1 - held;
    const ssize_t count = ::read(file.get(), buffer + held, room);
    if (count < 0) return false;
    if (count == 0) return true;
    held += static_cast<size_t>(count);
    size_t at = 0;
    while (at < held) {
      auto* const newline = static_cast<char*>(std::memchr(buffer + at, '\n', held - at));
      if (newline == nullptr && (at > 0 || held < sizeof buffer - 1)) break;
      char* const stop = newline != nullptr ? newline : buffer + held;
      *stop = '\0';
      if (!cut_off && !see(buffer + at)) return true;
      cut_off = newline == nullptr;
      at = newline != nullptr ? static_cast<size_t>(newline - buffer) + 1 : held;
    }
    held -= at;
    std::memmove(buffer, buffer + at, held);
  }
}

// Cuts the mapping to [start, end) and passes it to `see`. False if it is outside.
bool show(Mapped one, uint64_t start, uint64_t end, SeeMapped see, void* with) {
  if (one.whole_start >= end || one.whole_end <= start) return false;
  one.start = std::max(one.whole_start, start);
  one.end = std::min(one.whole_end, end);
  one.offset += one.start - one.whole_start;
  see(one, with);
  return true;
}

// Those for which `flags` of the query hold.
bool query(uint64_t start, uint64_t end, uint64_t flags, SeeMapped see, void* with) {
  const base::Fd file(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  for (uint64_t at = start; at < end;) {
    char name[8192] = {};  // longer than any path
    base::MappingQuery query;
    query.flags = flags;
    query.address = at;
    query.name = reinterpret_cast<uintptr_t>(name);
    query.name_size = sizeof name;
    if (const int error = base::query_mapping(file.get(), &query); error != 0)
      return error == ENOENT;  // none above
    Mapped one;
    one.whole_start = query.start;
    one.whole_end = query.end;
    one.prot = ((query.rights & base::kReadable) != 0 ? PROT_READ : 0) |
               ((query.rights & base::kWritable) != 0 ? PROT_WRITE : 0) |
               ((query.rights & base::kExecutable) != 0 ? PROT_EXEC : 0);
    one.shared = (query.rights & base::kShared) != 0;
    one.inode = query.inode;
    one.offset = query.offset;
    one.anonymous = !one.shared && one.inode == 0 && is_plain(name);
    one.asynchronous_io = is_asynchronous_io(name);
    if (!show(one, start, end, see, with)) break;
    at = one.whole_end;
  }
  return true;
}

}  // namespace

bool query_mappings(uint64_t start, uint64_t end, SeeMapped see, void* with) {
  return query(start, end, base::kCoveringOrNext, see, with);
}

bool parse_mappings(uint64_t start, uint64_t end, SeeMapped see, void* with) {
  return each_line("/proc/self/maps", [&](const char* line) {
    Mapped one;
    if (!parse(line, &one)) return true;
    if (one.whole_start >= end) return false;
    show(one, start, end, see, with);
    return true;
  });
}

bool is_memory_of_program(const Mapped& one) {
  const uint64_t size = one.whole_end - one.whole_start;
  const bool is_like_window = size % ipc::kWindowSize == 0 &&
                              (one.offset - (one.start - one.whole_start)) % ipc::kWindowSize == 0;
  if (!is_like_window) return true;
  bool here = false, watched = false;
  const bool known = each_line("/proc/self/smaps", [&](const char* line) {
    Mapped other;
    if (parse(line, &other)) {
      if (here) return false;
      here = other.whole_start == one.whole_start;
    } else if (here && std::strncmp(line, "VmFlags:", 8) == 0) {
      watched = std::strstr(line, " uw") != nullptr;
      return false;
    }
    return true;
  });
  return !known || watched;
}

bool visit_mappings(uint64_t start, uint64_t end, SeeMapped see, void* with) {
  return query_mappings(start, end, see, with) || parse_mappings(start, end, see, with);
}

bool visit_shared_files(SeeMapped see, void* with) {
  return query(0, UINT64_MAX, base::kCoveringOrNext | base::kShared | base::kFileBacked, see,
               with) ||
         parse_mappings(0, UINT64_MAX, see, with);
}

bool read_mappings(uint64_t start, uint64_t end, std::vector<Mapped>* mapped) {
  const SeeMapped append = [](const Mapped& one, void* all) {
    static_cast<std::vector<Mapped>*>(all)->push_back(one);
  };
  if (query_mappings(start, end, append, mapped)) return true;
  mapped->clear();
  return parse_mappings(start, end, append, mapped);
}

}  // namespace vrdma::client
