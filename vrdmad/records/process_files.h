// The descriptors of a living process that vrdmad once gave it, found again.
//
// What is looked for is known by what the kernel says of it: memory files and pipes by their inode,
// an eventfd by its id. What a descriptor is the process may change at any moment, so nothing is
// asked of the file behind one but by calls that no file system answers.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "vrdmad/broker/intake.h"

namespace vrdma::vrdmad {

struct FileId {
  uint64_t device = 0, inode = 0;
  bool operator==(const FileId&) const = default;
};
// Identifies a memory file that the daemon made; of a socket the inode alone is right. Reads
// /proc/self/fdinfo, because fstat(2) takes the lock of the inode, which a tenant may hold.
[[nodiscard]] FileId file_id(const base::Fd& fd);
// The number of an eventfd of ours (proc(5), fdinfo); 0: it is none, or the kernel has none.
[[nodiscard]] uint64_t eventfd_id(const base::Fd& fd);

class ProcessFiles {
 public:
  // Who has more is not looked into: it would keep the sessions of all others waiting.
  static constexpr int kMost = 8192;
  // What is taken and is not what is looked for goes to the intake.
  [[nodiscard]] static base::Result<ProcessFiles> of(pid_t pid, int pidfd,
                                                     Intake::AccountRef account);

  // Sealed as base::make_memfd() seals, and of `size` bytes.
  [[nodiscard]] base::Result<base::Fd> memory_file(const FileId& id, uint64_t size) const;
  [[nodiscard]] base::Result<base::Fd> eventfd(uint64_t id) const;
  // The write end of core/ipc/event_ends.h that the program has too.
  [[nodiscard]] base::Result<base::Fd> event_end(uint64_t inode) const;

 private:
  [[nodiscard]] base::Fd take(int number) const;

  base::Fd pidfd_;
  Intake::AccountRef account_;
  std::vector<int> memory_files_;
  std::unordered_map<uint64_t, int> eventfds_;  // by id
  std::unordered_map<uint64_t, int> sockets_;   // by inode
};
// By pid, of those that were looked into: each once.
using KnownFiles = std::map<pid_t, base::Result<ProcessFiles>>;

}  // namespace vrdma::vrdmad
