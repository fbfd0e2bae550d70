// The process at the other end of a connection, as the kernel describes it.
//
// A process is identified once, when its connection is accepted. From then on it is known by a
// pidfd, which stays bound to it: /proc/PID is that process's if the pidfd's process is alive after
// it was opened. A PeerHandle can be looked at as often as needed: any difference from the first
// Peer means that the process has changed its ids, its namespaces or its program since.
//
// Sources: proc(5), pidfd_open(2), unix(7); SO_PEERPIDFD since Linux 6.5. On an older kernel the
// pidfd is opened by the number that SO_PEERCRED gives: the process may then have ended, and the
// number may have another owner, between connect(2) and accept(2). Credentials that come with each
// message (SCM_CREDENTIALS) and a challenge through the process's memory rule that out.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::rdma {

// Fixed in size and without padding, so that it can be stored and sent.
struct Peer {
  struct File {
    uint64_t device = 0, inode = 0;
    bool operator==(const File&) const = default;
  };
  // Ids are as seen from the daemon's user namespace; real, effective, saved, file system.
  using Ids = std::array<uint32_t, 4>;

  int32_t pid = 0;
  uint32_t secure = 0;  // AT_SECURE: ids or capabilities were gained by exec; or it is unknown
  uint32_t dumpable =
      0;  // 1: prctl(2) PR_GET_DUMPABLE, as far as the owner of its files in /proc tells
  uint32_t reserved = 0;
  uint64_t start_time = 0;    // ticks since boot; unique with the pid
  uint64_t program = 0;       // addresses that the kernel chooses at random for each execve(2)
  uint64_t permitted = 0;     // capabilities
  uint64_t netns_cookie = 0;  // of the connecting socket's network namespace; 0: unknown
  Ids uids{}, gids{};
  File executable;
  File user_namespace, network_namespace;
  bool operator==(const Peer&) const = default;

  [[nodiscard]] uid_t uid() const { return uids[1]; }
  [[nodiscard]] gid_t gid() const { return gids[1]; }
};
static_assert(sizeof(Peer) == 128);

struct PeerHandle {
  Peer peer;
  base::Fd pidfd;  // readable once the process has died
};

// ENOTSUP, with the name of what is missing, on a kernel on which processes and their network
// namespaces cannot be told apart.
[[nodiscard]] base::Result<void> check_kernel();

// What the kernel says of who connected, at once.
struct Connected {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  uint64_t netns_cookie = 0;
  base::Fd pidfd;  // invalid: the process has ended
};
// `socket` must have been accepted just now. EPERM: the daemon's pid namespace does not contain the
// process.
[[nodiscard]] base::Result<Connected> who_connected(int socket);

// All that follows looks into /proc, which takes as long as the process likes.

// EPERM: the process has ended, or has other ids than it connected with.
[[nodiscard]] base::Result<PeerHandle> identify_peer(Connected connected);
[[nodiscard]] base::Result<PeerHandle> identify_peer(int socket);  // both

// The process that another daemon had identified. ESRCH: it has ended or is not the same.
[[nodiscard]] base::Result<PeerHandle> find_peer(const Peer& peer);
// The same, by a pidfd of the process.
[[nodiscard]] base::Result<PeerHandle> find_peer(const Peer& peer, base::Fd pidfd);

// /proc/PID, O_PATH. EPERM: the process has ended.
[[nodiscard]] base::Result<base::Fd> open_directory(const PeerHandle& handle);

// EPERM unless the process is alive and in every respect as it was when it was identified.
[[nodiscard]] base::Result<void> is_unchanged(const PeerHandle& handle);

struct MemoryFiles {
  base::Fd memory;        // /proc/PID/mem
  base::Fd maps;          // /proc/PID/maps
  bool writable = false;  // `memory` is for writing also
};
// Of a process that was found unchanged just before, and is_unchanged() after. Both stay bound to
// the address space.
[[nodiscard]] base::Result<MemoryFiles> open_memory(const PeerHandle& handle, bool writable);

// Both for the process that another daemon had identified. Opens the files first, and then compares
// the process once: its start time and program never return to what they were.
struct FoundPeer {
  PeerHandle handle;
  MemoryFiles memory;
};
[[nodiscard]] base::Result<FoundPeer> find_peer_and_open(const Peer& peer, bool writable);

// Why the process may have no session: a sentence about "it"; empty if it may. Its memory is more
// than the user who started it may touch.
[[nodiscard]] std::string reason_to_refuse(const Peer& peer);

// Whether the process of a pidfd has not ended.
[[nodiscard]] bool is_alive(const base::Fd& pidfd);
// Its number in the caller's pid namespace; 0: it has ended, or is in none of it (proc(5), fdinfo).
// EMFILE, ENFILE: there are too many open files to tell.
[[nodiscard]] base::Result<pid_t> pid_of(const base::Fd& pidfd);
// Whether there is a process of that number that has not ended, perhaps another one by now: the
// start time tells.
[[nodiscard]] bool exists(pid_t pid);
// ESRCH: there is no such process. EMFILE, ENFILE: there are too many open files to tell.
[[nodiscard]] base::Result<uint64_t> start_time_of(pid_t pid);

}  // namespace vrdma::rdma
