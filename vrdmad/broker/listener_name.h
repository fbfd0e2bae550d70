// The name of a listening session socket: R/netns/<netns>/<number>.sock, or R/netns/<netns>/rdma_cm
// for rdma_cm. R is the daemon's run directory.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/error.h"

namespace vrdma::vrdmad {

// Without padding, so that it can be stored.
struct ListenerName {
  static constexpr uint64_t kCm = ~uint64_t{0};
  uint64_t netns = 0;   // cookie
  uint64_t number = 0;  // of the vdevice in the namespace, or kCm
  bool operator==(const ListenerName&) const = default;
};

// EPERM: the path is not of that form.
[[nodiscard]] base::Result<ListenerName> listener_name(const std::string& run_dir,
                                                       const std::string& path);

}  // namespace vrdma::vrdmad
