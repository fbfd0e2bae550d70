// Finds the descriptors of a living process that an earlier vrdmad shared with it.
//
// The search ends when all that is wanted is found, or when its time is over: a process may have as
// many descriptors as it likes, and others wait meanwhile.
//
// The kernel identifies them: memory files and sockets by their inode, an eventfd by its id. The
// process may replace a descriptor at any moment, so no call on one reaches its file system.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/event_loop.h"
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

// What the sessions of a process need of it.
struct WantedFiles {
  std::unordered_set<uint64_t> memory_files;  // inodes
  std::unordered_set<uint64_t> eventfds;      // eventfd_id()
  std::unordered_set<uint64_t> sockets;       // inodes
};

class ProcessFiles {
 public:
  // Of processor time, in which the processes of a vdevice are searched: for some hundred thousand
  // descriptors.
  static constexpr base::Duration kSearchTime = std::chrono::seconds(1);
  // Searches for at most `time`. The intake closes descriptors that turn out to be others.
  [[nodiscard]] static base::Result<ProcessFiles> of(pid_t pid, int pidfd,
                                                     Intake::AccountRef account, WantedFiles wanted,
                                                     base::Duration time);
  [[nodiscard]] base::Duration time_used() const { return time_used_; }

  // With the seals of base::make_memfd() and `size` bytes.
  [[nodiscard]] base::Result<base::Fd> memory_file(const FileId& id, uint64_t size) const;
  [[nodiscard]] base::Result<base::Fd> eventfd(uint64_t id) const;
  // The write end of core/ipc/event_ends.h, which the process shares.
  [[nodiscard]] base::Result<base::Fd> event_end(uint64_t inode) const;

 private:
  class Search;
  [[nodiscard]] base::Fd take(int number) const;
  [[nodiscard]] base::Error missing(const char* what) const;

  base::Fd pidfd_;
  Intake::AccountRef account_;
  std::unordered_map<uint64_t, int> memory_files_;  // by inode
  std::unordered_map<uint64_t, int> eventfds_;      // by id
  std::unordered_map<uint64_t, int> sockets_;       // by inode
  base::Duration time_used_{};
  bool ended_early_ = false;  // its time was over
};

}  // namespace vrdma::vrdmad
