// The descriptors of a living process that vrdmad once gave it, found again.
//
// What is looked for is known by what the kernel says of it: memory files and pipes by their inode,
// an eventfd by its id. Descriptors of anything else are neither taken nor asked: a stranger's file
// may not answer.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::vrdmad {

struct FileId {
  uint64_t device = 0, inode = 0;
  bool operator==(const FileId&) const = default;
};
[[nodiscard]] FileId file_id(const base::Fd& fd);
// The number of an eventfd of ours (proc(5), fdinfo); 0: it is none, or the kernel has none.
[[nodiscard]] uint64_t eventfd_id(const base::Fd& fd);

class ProcessFiles {
 public:
  [[nodiscard]] static base::Result<ProcessFiles> of(pid_t pid, int pidfd);

  // Sealed as base::make_memfd() seals, and of `size` bytes.
  [[nodiscard]] base::Result<base::Fd> memory_file(const FileId& id, uint64_t size) const;
  [[nodiscard]] base::Result<base::Fd> eventfd(uint64_t id) const;
  // A write end of our own, non-blocking.
  [[nodiscard]] base::Result<base::Fd> pipe(uint64_t inode) const;

 private:
  [[nodiscard]] base::Fd take(int number) const;

  int pidfd_ = -1;
  std::vector<int> memory_files_, eventfds_;
  std::unordered_map<uint64_t, int> pipes_;  // by inode
};

}  // namespace vrdma::vrdmad
