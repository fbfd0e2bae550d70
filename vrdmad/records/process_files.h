// Descriptors of a living process that an earlier vrdmad shared with it.
//
// The broker takes them from the process and verifies that the kernel gave them these numbers
// (vrdmad/broker/held_files.h). A memory file must also have the form of the daemon's own.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "vrdmad/broker/broker.h"

namespace vrdma::vrdmad {

struct FileId {
  uint64_t device = 0, inode = 0;
  bool operator==(const FileId&) const = default;
};
// A memory file that a program shows (core/ipc/page_table.h). Of fixed layout.
struct ShownFile {
  FileId id;
  uint64_t size = 0;  // bytes
  bool operator==(const ShownFile&) const = default;
};
// Identifies a memory file that the daemon made; for a socket only the inode is valid. Reads
// /proc/self/fdinfo, because fstat(2) takes the lock of the inode, which a tenant may hold.
[[nodiscard]] FileId file_id(const base::Fd& fd);
// The same of a memory file that is not at hand.
[[nodiscard]] FileId memory_file_id(uint64_t inode);
// The kernel's id of an eventfd (proc(5), fdinfo) plus 1; 0: not an eventfd, or the kernel reports
// no id.
[[nodiscard]] uint64_t eventfd_id(const base::Fd& fd);

class ProcessFiles {
 public:
  // Of processor time, in which the processes of a vdevice are searched: for some hundred thousand
  // descriptors.
  static constexpr base::Duration kSearchTime = std::chrono::seconds(1);
  // `taken`: of Caller::take(). The intake of `account` closes memory files that turn out to be
  // others, or that nobody uses.
  ProcessFiles(Intake::AccountRef account, const std::vector<Caller::Wanted>& wanted,
               std::vector<base::Fd> taken);
  ProcessFiles(const ProcessFiles&) = delete;
  ProcessFiles& operator=(const ProcessFiles&) = delete;
  ~ProcessFiles();

  // Each gives a file, once. ENOENT: the process no longer had it.
  // With the seals of base::make_memfd() and `size` bytes.
  [[nodiscard]] base::Result<base::Fd> memory_file(const FileId& id, uint64_t size);
  [[nodiscard]] base::Result<base::Fd> eventfd(uint64_t id);
  // The write end of core/ipc/event_ends.h, which the process shares.
  [[nodiscard]] base::Result<base::Fd> event_end(uint64_t inode);

 private:
  [[nodiscard]] base::Result<base::Fd> give(WantedFile kind, uint64_t id, const char* what);

  const Intake::AccountRef account_;
  std::map<std::pair<WantedFile, uint64_t>, base::Fd> taken_;
};

}  // namespace vrdma::vrdmad
