// Where the descriptors of a VM are kept for the next process.
#pragma once

#include <cstdint>

#include "core/base/fd.h"

namespace vrdma::pvrdma {

class Custody {
 public:
  virtual ~Custody() = default;
  // From the return on, the next process gets a duplicate of `fd` under this number, below
  // kCustodySlots; one that was held under it is closed.
  virtual void hold(uint32_t slot, const base::Fd& fd) = 0;
  virtual void drop(uint32_t slot) = 0;
};

}  // namespace vrdma::pvrdma
