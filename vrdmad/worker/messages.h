// What control and a worker say to each other.
#pragma once

#include <cstdint>

namespace vrdma::vrdmad {

// The answer to Worker::collect().
struct Collected {
  uint64_t ticket = 0;
};

using ToControl = Collected;

}  // namespace vrdma::vrdmad
