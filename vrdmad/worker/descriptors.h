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

// The share of a tenant whose fabric has others: while half of the descriptors that this process
// may have are free, each gets what it asks for; of the rest it gets some only as long as it has
// less than an eighth of all. `taken`: of all tenants; `its`: of this one.
[[nodiscard]] bool is_within_share(size_t taken, size_t its, size_t count);

}  // namespace vrdma::vrdmad
