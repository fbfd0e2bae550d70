// The descriptors and mappings of a process, as /proc tells of them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cli/criu/image.h"

namespace vrdma::cli::criu {

struct Descriptor {
  int number = -1;
  std::string target;  // of its link
  uint64_t inode = 0;
  uint64_t eventfd = 0;  // its id plus 1; 0: none
  bool writable = false;
};
// `thread`: one may have a table of its own; 0: the first.
[[nodiscard]] std::vector<Descriptor> descriptors_of(pid_t pid, pid_t thread = 0);
// The numbers of all that are the same file.
[[nodiscard]] std::vector<int> numbers_of(const std::vector<Descriptor>& all, uint64_t inode);
// What all epoll descriptors of the process watch.
[[nodiscard]] std::vector<EpollEntry> epolls_of(pid_t pid);
[[nodiscard]] std::vector<pid_t> threads_of(pid_t pid);
// The values of a line of /proc/PID/status (proc(5)) that begins with `key` and a colon; empty:
// there is none.
[[nodiscard]] std::string status_of(pid_t pid, const std::string& key);
// The process and its descendants, parents first.
[[nodiscard]] std::vector<pid_t> tree_of(pid_t pid);

struct MappedFile {
  uint64_t start = 0, end = 0, offset = 0, inode = 0;
  int protection = 0;
  std::string name;
};
[[nodiscard]] std::vector<MappedFile> mapped_files_of(pid_t pid);

// Of /proc/PID/fd and maps.
constexpr const char* kQueues = "/memfd:vrdma-queues";
constexpr const char* kMemory = "/memfd:vrdma-memory";
constexpr const char* kUserfaultfd = "anon_inode:[userfaultfd]";
constexpr const char* kUserfaultDevice = "/dev/userfaultfd";

}  // namespace vrdma::cli::criu
