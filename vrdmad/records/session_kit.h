// The descriptors and state files of a session. Control makes them, because a worker opens no
// paths.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/fd.h"
#include "core/ipc/event_ends.h"
#include "vrdmad/records/process_files.h"

namespace vrdma::vrdmad {

struct SessionKit {
  uint32_t session = 0;  // its number, of all sessions of the daemon
  // Shared with the program.
  base::Fd arena, bells, memory, doorbell;
  ipc::EventEnds events;  // at a takeover without the read end, which only the program has
  base::Fd userfaultfd;   // /dev/userfaultfd; none: not allowed, or the kernel has none
  // The worker sends this read-only descriptor of the arena to peers.
  base::Fd arena_read_only;
  FileId arena_id, memory_id;
  // For SessionFiles::open(); none: the session cannot be taken over.
  base::Fd anchors, journal;
  std::string without_files;  // why there are none
  std::string cgroup;         // path of the control group that the process belongs to
  // At a takeover: write ends of the completion channels, by handle.
  std::map<uint32_t, base::Fd> channels;
  // And the memory that the process shows; the page table first.
  struct Shown {
    ShownFile is;
    base::Fd file;
  };
  std::vector<Shown> shown;
};

}  // namespace vrdma::vrdmad
