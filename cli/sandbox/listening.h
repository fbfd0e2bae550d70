// Detects from outside whether a server is ready for its client.
#pragma once

#include <sys/types.h>

#include <string>

#include "cli/sandbox/process.h"

namespace vrdma::cli::sandbox {

class Listening {
 public:
  // `process` enters the server's network namespace, or is in it.
  Listening(pid_t process, std::string vrdmactl, std::string run_dir, std::string vdevice)
      : process_(process),
        vrdmactl_(std::move(vrdmactl)),
        run_dir_(std::move(run_dir)),
        vdevice_(std::move(vdevice)) {}

  // True if there is a TCP listener in the namespace of the process, or an rdma_cm listener on the
  // vdevice. The latter check starts vrdmactl, so only every tenth call does it.
  [[nodiscard]] bool check(const Signals& signals);

 private:
  [[nodiscard]] bool by_rdma_cm(const Signals& signals) const;

  const pid_t process_;
  const std::string vrdmactl_, run_dir_, vdevice_;
  unsigned calls_ = 0;
};

// True if a /proc/net/tcp or tcp6 with this text contains a listening socket.
[[nodiscard]] bool has_listener(const std::string& proc_net_tcp);

}  // namespace vrdma::cli::sandbox
