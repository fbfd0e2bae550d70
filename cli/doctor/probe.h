// Opening a vdevice in the place of another process: in its namespaces, as its user, by the
// library.
//
// That process may be hostile. Only the library of this installation is loaded, in a process that
// has nothing else of its caller once it is in that place: no terminal, descriptor, environment,
// session key or capability, for that user may ptrace(2) it.
//
// What it says comes from the library and the daemon themselves, not from what a doctor thinks of
// the session protocol.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/base/fd.h"

namespace vrdma::cli::doctor {

struct Place {
  base::Fd life;             // pidfd of `pid`; invalid: the kernel has none
  pid_t pid = 0;             // its mount namespace; 0: this process's own
  std::string netns;         // path of its network namespace; empty: this process's own
  std::optional<uid_t> uid;  // whom to be; absent: stay
  std::optional<gid_t> gid;
  std::string run_dir;  // in that mount namespace
  std::string library;  // of this installation; empty: none
};

struct Probe {
  std::string failed;           // a sentence: what could not be tried, for want of rights above all
  uint64_t cookie = 0;          // of the network namespace; 0: not known
  bool run_dir_seen = false;    // RUN_DIR/netns is a directory there
  bool directory_seen = false;  // RUN_DIR/netns/<cookie>
  unsigned sockets = 0;         // session sockets in it
  int connect_error = 0;        // of the first socket that cannot be reached
  std::vector<std::string> devices;   // that the library lists
  std::vector<std::string> unopened;  // of these, each with the reason: "vrdma0: Permission denied"
  std::string said;                   // the library's line on stderr
};

// In a child process. Takes as long as the daemon, at most 15 seconds.
[[nodiscard]] Probe probe(const Place& place);

}  // namespace vrdma::cli::doctor
