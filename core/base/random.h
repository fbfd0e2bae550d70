// Unpredictable random numbers from getrandom(2), which fills a buffer of the calling thread. Cheap
// enough for every object that gets a number.
#pragma once

#include <cstdint>

namespace vrdma::base {

[[nodiscard]] uint32_t random32();
[[nodiscard]] uint64_t random64();
// A number in 0 .. bound - 1, uniformly distributed. `bound` must not be 0.
[[nodiscard]] uint32_t random_below(uint32_t bound);

}  // namespace vrdma::base
