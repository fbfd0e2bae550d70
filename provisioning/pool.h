// The total use of the vdevices of a tenant or a parent, bounded by ceilings.
//
// Lock-free: the vdevices' ledgers draw from it, each on its own thread. Without overcommitment,
// the limits themselves add up to no more than the ceiling; with it, the pool enforces the ceiling.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "core/base/error.h"
#include "provisioning/kind.h"

namespace vrdma::provisioning {

class Pool {
 public:
  // `whose`: "tenant red", for error messages.
  explicit Pool(std::string whose);

  // ENOMEM with a sentence if that would exceed the ceiling; nothing is taken then.
  [[nodiscard]] base::Result<void> take(Kind kind, uint64_t amount);
  void give_back(Kind kind, uint64_t amount);
  void set_ceiling(Kind kind, uint64_t ceiling);  // kCeiling: none

  [[nodiscard]] uint64_t used(Kind kind) const;
  [[nodiscard]] const std::string& whose() const { return whose_; }

 private:
  struct Account {
    std::atomic<uint64_t> used{0};
    std::atomic<uint64_t> ceiling{kCeiling};
  };
  std::string whose_;
  std::array<Account, kKindCount> accounts_;
};

}  // namespace vrdma::provisioning
