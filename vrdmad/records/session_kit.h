// What a session is made of, so that a worker needs no path to serve it.
#pragma once

#include <cstdint>
#include <map>

#include "core/base/fd.h"
#include "core/ipc/event_ends.h"
#include "vrdmad/records/process_files.h"
#include "vrdmad/records/session_files.h"

namespace vrdma::vrdmad {

struct SessionKit {
  uint32_t session = 0;  // its number, of all sessions of the daemon
  // The program has these.
  base::Fd arena, bells, memory, doorbell;
  ipc::EventEnds events;  // a session that is taken over has no read end: the program has it
  base::Fd userfaultfd;   // /dev/userfaultfd; none: not allowed, or the kernel has none
  // Peers have this one: the arena, which they cannot write.
  base::Fd arena_read_only;
  FileId arena_id, memory_id;
  SessionFiles files;  // none: nobody will take the session over
  // Of a session that is taken over: write ends of its completion channels, by handle.
  std::map<uint32_t, base::Fd> channels;
};

}  // namespace vrdma::vrdmad
