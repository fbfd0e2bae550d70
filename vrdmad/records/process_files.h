// Finds the descriptors of a living process that an earlier vrdmad shared with it.
//
// The kernel identifies them: memory files and sockets by their inode, an eventfd by its id. The
// process may replace a descriptor at any moment, so no call on one reaches its file system.
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
// Identifies a memory file that the daemon made; for a socket only the inode is valid. Reads
// /proc/self/fdinfo, because fstat(2) takes the lock of the inode, which a tenant may hold.
[[nodiscard]] FileId file_id(const base::Fd& fd);
// The kernel's id of an eventfd (proc(5), fdinfo) plus 1; 0: not an eventfd, or the kernel reports
// no id.
[[nodiscard]] uint64_t eventfd_id(const base::Fd& fd);

class ProcessFiles {
 public:
  // A process with more descriptors is not searched, because that would delay all other sessions.
  static constexpr int kMost = 8192;
  // The intake closes descriptors that turn out to be others.
  [[nodiscard]] static base::Result<ProcessFiles> of(pid_t pid, int pidfd,
                                                     Intake::AccountRef account);

  // With the seals of base::make_memfd() and `size` bytes.
  [[nodiscard]] base::Result<base::Fd> memory_file(const FileId& id, uint64_t size) const;
  [[nodiscard]] base::Result<base::Fd> eventfd(uint64_t id) const;
  // The write end of core/ipc/event_ends.h, which the process shares.
  [[nodiscard]] base::Result<base::Fd> event_end(uint64_t inode) const;

 private:
  [[nodiscard]] base::Fd take(int number) const;

  base::Fd pidfd_;
  Intake::AccountRef account_;
  std::vector<int> memory_files_;
  std::unordered_map<uint64_t, int> eventfds_;  // by id
  std::unordered_map<uint64_t, int> sockets_;   // by inode
};
// By pid; each process is searched once.
using KnownFiles = std::map<pid_t, base::Result<ProcessFiles>>;

}  // namespace vrdma::vrdmad
