// PROCMAP_QUERY of /proc/PID/maps (linux/fs.h, since Linux 6.11): one mapping, in a time that does
// not depend on how many the process has. Debian 12's headers lack it.
#pragma once

#include <linux/ioctl.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstdint>

namespace vrdma::base {

struct MappingQuery {
  uint64_t size = sizeof(MappingQuery), flags = 0, address = 0;
  uint64_t start = 0, end = 0, rights = 0, page_size = 0, offset = 0, inode = 0;
  uint32_t dev_major = 0, dev_minor = 0;
  uint32_t name_size = 0, build_id_size = 0;
  uint64_t name = 0, build_id = 0;  // addresses of buffers of these sizes
};
static_assert(sizeof(MappingQuery) == 104);
constexpr unsigned long kMappingQuery = _IOWR('f', 17, MappingQuery);

// Of `flags`: the mapping that holds `address`, or the next one; of `rights` and `flags`: that it
// has these.
constexpr uint64_t kCoveringOrNext = 0x10, kFileBacked = 0x20;
constexpr uint64_t kReadable = 1, kWritable = 2, kExecutable = 4, kShared = 8;

// 0, or errno: ENOENT: there is none; ENAMETOOLONG: its name is longer than the buffer; ESRCH: the
// process has ended; others: the kernel does not answer. Writes only to `query` and its buffers.
inline int query_mapping(int maps, MappingQuery* query) {
  return ::ioctl(maps, kMappingQuery, query) == 0 ? 0 : errno;
}

}  // namespace vrdma::base
