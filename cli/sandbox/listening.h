// Whether a server is ready for its client, as far as that can be seen from outside.
#pragma once

#include <sys/types.h>

#include <string>

#include "cli/sandbox/process.h"

namespace vrdma::cli::sandbox {

class Listening {
 public:
  // `process` is in the server's network namespace, or will be.
  Listening(pid_t process, std::string vrdmactl, std::string run_dir, std::string vdevice)
      : process_(process),
        vrdmactl_(std::move(vrdmactl)),
        run_dir_(std::move(run_dir)),
        vdevice_(std::move(vdevice)) {}

  // True once somebody listens on a TCP port in the namespace of the process, or by rdma_cm on the
  // vdevice. The latter is asked of the daemon, by a program, in each tenth call only.
  [[nodiscard]] bool check(const Signals& signals);

 private:
  [[nodiscard]] bool by_rdma_cm(const Signals& signals) const;

  const pid_t process_;
  const std::string vrdmactl_, run_dir_, vdevice_;
  unsigned calls_ = 0;
};

// Whether /proc/net/tcp, or tcp6, of this text has a socket that listens.
[[nodiscard]] bool has_listener(const std::string& proc_net_tcp);

}  // namespace vrdma::cli::sandbox
