// The descriptors of a living process that an earlier vrdmad may have shared with it.
//
// The kernel identifies them: memory files and sockets by their inode, an eventfd by its id. The
// process may replace a descriptor at any moment, so what is taken may be another file, whose close
// takes as long as its maker chose.
//
// Owned by one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/base/fd.h"

namespace vrdma::vrdmad {

enum class WantedFile : uint32_t {
  kMemory = 1,  // a memory file that the process can write; by inode
  kEventfd,     // by the kernel's id (proc(5), fdinfo) plus 1
  kSocket,      // by inode
};

// A value of fdinfo (proc(5)) of one descriptor. `fdinfo`: the directory; `name`: as for openat(2).
struct FdInfo {
  uint64_t inode = 0;
  uint64_t eventfd = 0;  // the id plus 1; 0: it is no eventfd, or the kernel reports no id
  bool writable = false;
  [[nodiscard]] static FdInfo of(int fdinfo, const char* name);
  [[nodiscard]] static FdInfo own(const base::Fd& fd);  // of this process
};

class HeldFiles {
 public:
  // Searches for at most `time` of processor time: a process may have as many descriptors as it
  // likes, and others wait meanwhile.
  [[nodiscard]] static base::Result<HeldFiles> of(pid_t pid, base::Duration time);
  // A memory file, an eventfd or a Unix socket of that number. May hang, closing another file.
  // ENOENT: the process has none. EMFILE: none was found before the time was over.
  [[nodiscard]] base::Result<base::Fd> take(int pidfd, WantedFile kind, uint64_t id) const;

 private:
  void look_at(int fds, int infos, const char* name);
  std::map<std::pair<WantedFile, uint64_t>, int> numbers_;
  bool ended_early_ = false;
};

}  // namespace vrdma::vrdmad
