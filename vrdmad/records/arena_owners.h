// Which process has which memory arenas.
//
// A process that opens a second vdevice, or one again, presents the arena that it has: its memory
// is there. Each client library in a process has one. A process may present an arena that an
// earlier daemon made, and have no session when that daemon ends. So control keeps the list in a
// file too:
//
//   file  := entry*
//   entry := magic, pid, start time, device and inode of the arena; of this machine
//
// Control alone writes and reads it. Owned by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/rdma/peer.h"
#include "vrdmad/records/process_files.h"

namespace vrdma::vrdmad {

class ArenaOwners {
 public:
  // Reads what an earlier daemon wrote of processes that live. `path`: empty: there is no file.
  void open(std::string path);
  // `owner` has got it, or has it.
  void note(const FileId& arena, const rdma::Peer& owner);
  [[nodiscard]] bool has(const rdma::Peer& owner, const FileId& arena) const;
  // Forgets processes that have ended, also in the file, which is removed if none is left.
  void sweep();

 private:
  static constexpr size_t kMostArenas = 8;     // of a process, the latest
  using Process = std::pair<pid_t, uint64_t>;  // and its start time

  void add(const Process& process, const FileId& arena);
  void append(const Process& process, const FileId& arena) const;

  std::string path_;
  std::map<Process, std::vector<FileId>> arenas_;  // the latest first
  size_t sweep_at_ = 64;                           // processes
};

}  // namespace vrdma::vrdmad
