// What /proc tells of a process that a doctor is asked about.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>

#include "core/base/error.h"

namespace vrdma::cli::doctor {

struct Process {
  pid_t pid = 0;
  std::string program;                     // path, of /proc/PID/exe; empty: not to be read
  std::array<unsigned, 4> uids{}, gids{};  // real, effective, saved, file system
  bool seccomp_filter = false;
  std::optional<bool> secure;  // AT_SECURE; absent: not to be read
  std::string user_namespace;  // "user:[4026531837]"; empty: not to be read
  std::string network_namespace;
  std::string maps;                                 // empty: not to be read
  std::string run_dir;                              // VRDMA_RUN_DIR of its environment, or empty
  std::optional<unsigned long long> address_space;  // bytes, RLIMIT_AS; absent: unlimited
};

// The bytes of a regular file, at most 64 MiB; empty if it cannot be read. `path` is looked up in
// the directory `root`: what a symbolic link in it leads to is in there too, as for a process with
// that root. Other files are not opened: a FIFO would wait, a device might do anything.
[[nodiscard]] std::string content_of(const std::string& path, const std::string& root = "/");

// ESRCH: there is none. What may not be read is empty.
[[nodiscard]] base::Result<Process> look_at_process(pid_t pid);

}  // namespace vrdma::cli::doctor
