// Which process has which memory arenas, and which sessions.
//
// A process that opens a second vdevice, or one again, presents the arena that it has: its memory
// is there. Each client library in a process has one. A process may present an arena that an
// earlier daemon made, and have no session when that daemon ends.
//
// The files of a session are written by its worker. One that its programs have taken over could
// name another process in them. So control compares them with its own list when it takes sessions
// over.
//
// Control keeps both in a file too, which it alone writes and reads:
//
//   file  := entry*                of this machine
//   entry := arena magic, pid, start time, device and inode of the arena
//          | session magic, pid, start time, id of the vdevice, number of the session
//          | mark magic, zeroes    the file lists sessions
//
// Owned by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/rdma/peer.h"
#include "vrdmad/records/process_files.h"

namespace vrdma::vrdmad {

class Owners {
 public:
  // Reads what an earlier daemon wrote of processes that live. `path`: empty: there is no file.
  void open(std::string path);
  // `owner` has got it, or has it.
  void note(const FileId& arena, const rdma::Peer& owner);
  [[nodiscard]] bool has(const rdma::Peer& owner, const FileId& arena) const;

  // `owner` has got a session of the vdevice. False: the file does not say so, and the next daemon
  // would not know it.
  [[nodiscard]] bool note_session(uint32_t session, uint64_t vdevice, const rdma::Peer& owner);
  void forget_session(uint32_t session);
  // Whether it is the owner's, as far as is known: a daemon that listed no sessions may have made
  // it.
  [[nodiscard]] bool may_have(uint32_t session, uint64_t vdevice, const rdma::Peer& owner) const;

  // Forgets processes that have ended, also in the file, which is removed if none is left.
  void sweep();

 private:
  static constexpr size_t kMostArenas = 8;     // of a process, the latest
  using Process = std::pair<pid_t, uint64_t>;  // and its start time
  struct Session {
    Process process;
    uint64_t vdevice = 0;
    friend bool operator==(const Session&, const Session&) = default;
  };
  struct Entry;

  void add(const Process& process, const FileId& arena);
  // False: the file does not contain what this object does.
  bool append(const Entry& entry);
  bool rewrite();
  void forget_the_dead();

  std::string path_;
  std::map<Process, std::vector<FileId>> arenas_;  // the latest first
  std::map<uint32_t, Session> sessions_;
  bool knows_all_sessions_ = false;
  static constexpr size_t kFewest = 256;
  size_t sweep_at_ = kFewest;  // entries
  size_t entries_ = 0;         // of the file; 0: there is none
};

}  // namespace vrdma::vrdmad
