// Whether the container runtime of the node reads CDI specifications: its own answer, by the
// Container Runtime Interface. containerd 1.7 does so only if it is told to; containerd 2 and CRI-O
// do by default; containerd 1.6 cannot.
#pragma once

#include <string>

#include "core/base/error.h"

namespace vrdma::cli::node {

struct Answer {
  std::string name, version;  // "containerd", "v1.7.24"
  std::string config;         // JSON; empty: it shows none
};
// ECONNREFUSED, ETIMEDOUT: no runtime answers on this socket.
[[nodiscard]] base::Result<Answer> ask_runtime(const std::string& socket);

// ENOTSUP: it reads none, or none in the directory of `specification`, a path on the node. The
// sentence has the lines to be added to the runtime's configuration.
[[nodiscard]] base::Result<void> reads_cdi(const Answer& answer, const std::string& specification);

}  // namespace vrdma::cli::node
