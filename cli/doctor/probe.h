// Opens a vdevice from the position of another process: in its namespaces, as its user, by the
// library.
//
// That process may be hostile. The probe is a child process that loads only this installation's
// library. In that position it keeps nothing of its caller (terminal, descriptors, environment,
// session keyring, capabilities), because that user may ptrace(2) it.
//
// The answers come from the library and the daemon themselves, so this code need not know the
// session protocol.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/peer.h"
#include "core/base/fd.h"
#include "core/verbs/gid.h"

namespace vrdma::cli::doctor {

struct Place {
  base::Fd life;             // pidfd of `pid`; invalid: unsupported by the kernel
  pid_t pid = 0;             // process with the mount namespace; 0: this process's
  std::string netns;         // path of its network namespace; empty: this process's
  std::optional<uid_t> uid;  // the user to become; absent: unchanged
  std::optional<gid_t> gid;
  std::string run_dir;  // in that mount namespace
  std::string library;  // of this installation; empty: none
  std::optional<verbs::Gid> peer;
};

struct Probe {
  std::string failed;           // a sentence: what could not be tried, mostly for lack of rights
  uint64_t cookie = 0;          // of the network namespace; 0: unknown
  bool run_dir_seen = false;    // RUN_DIR/netns is a directory there
  bool directory_seen = false;  // RUN_DIR/netns/<cookie>
  unsigned sockets = 0;         // session sockets in it
  int connect_error = 0;        // errno of the first socket that refuses
  std::vector<std::string> devices;   // listed by the library
  std::vector<std::string> opened;    // of these
  std::vector<std::string> unopened;  // those that failed to open: "vrdma0: Permission denied"
  std::string said;                   // the library's line on stderr
  std::optional<Way> way;             // to the peer
  std::optional<bool> port_taken;     // has_port_everywhere() there; absent: not readable
};

constexpr unsigned kPatienceSeconds = 15;
// Runs in a child process. Waits for the daemon, at most that long. A device that is neither opened
// nor unopened has not been answered by then.
[[nodiscard]] Probe probe(const Place& place);

}  // namespace vrdma::cli::doctor
