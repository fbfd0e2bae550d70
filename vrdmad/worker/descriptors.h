// Descriptors of a worker process.
//
// Control sends descriptors to a worker, which the kernel drops if the worker has no room for them,
// and the worker cannot go on without what it lost. So a worker refuses what its programs ask for
// while there is still room for what control may send.
#pragma once

#include <cstddef>

namespace vrdma::vrdmad {

constexpr size_t kSpareDescriptors = 64;    // more than any message has
constexpr size_t kSessionDescriptors = 16;  // those of a session without channels

// Whether this process could have `count` more descriptors, and the spare ones.
[[nodiscard]] bool has_descriptors_for(size_t count);

}  // namespace vrdma::vrdmad
