// What /proc tells about the examined process.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>

#include "core/base/error.h"

namespace vrdma::cli::doctor {

struct Process {
  pid_t pid = 0;
  std::string program;                     // target of /proc/PID/exe; empty: not readable
  std::array<unsigned, 4> uids{}, gids{};  // real, effective, saved, file system
  bool seccomp_filter = false;
  std::optional<bool> secure;  // AT_SECURE; absent: not readable
  std::string user_namespace;  // "user:[4026531837]"; empty: not readable
  std::string network_namespace;
  std::string maps;     // empty: not readable
  std::string run_dir;  // VRDMA_RUN_DIR of its environment, or empty
  std::string memory;   // VRDMA_MEMORY of its environment, or empty
  // A thread of the library watches its memory: some is in place, or was.
  bool watches_memory = false;
  std::optional<unsigned long long> address_space;  // bytes, RLIMIT_AS; absent: unlimited
};

// The bytes of a regular file, at most 64 MiB; empty if it cannot be read. Resolves `path` and its
// symbolic links inside the directory `root`, as for a process with that root. Does not open other
// files, because a FIFO would block and a device could do anything.
[[nodiscard]] std::string content_of(const std::string& path, const std::string& root = "/");

// ESRCH: no such process. Unreadable fields are empty.
[[nodiscard]] base::Result<Process> look_at_process(pid_t pid);

}  // namespace vrdma::cli::doctor
