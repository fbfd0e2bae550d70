#include "client/device/memory_maps.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/base/fd.h"

namespace vrdma::client {

namespace {

// "start-end perms offset major:minor inode   name"; false if the line is none.
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
  const bool plain = *name == '\0' || *name == '\n' || std::strncmp(name, "[heap]", 6) == 0 ||
                     std::strncmp(name, "[anon:", 6) == 0;
  mapped->anonymous = !mapped->shared && mapped->inode == 0 && plain;
  return true;
}

}  // namespace

bool read_mappings(uint64_t start, uint64_t end, std::vector<Mapped>* mapped) {
  const base::Fd file(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  std::string pending;
  char buffer[16384];
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0) return false;
    if (count == 0) return true;
    pending.append(buffer, static_cast<size_t>(count));
    size_t at = 0;
    for (size_t newline; (newline = pending.find('\n', at)) != std::string::npos;
         at = newline + 1) {
      pending[newline] = '\0';
      Mapped one;
      if (!parse(pending.c_str() + at, &one)) continue;
      if (one.whole_start >= end) return true;
      if (one.whole_end <= start) continue;
      one.start = std::max(one.whole_start, start);
      one.end = std::min(one.whole_end, end);
      one.offset += one.start - one.whole_start;
      mapped->push_back(one);
    }
    pending.erase(0, at);
  }
}

}  // namespace vrdma::client
