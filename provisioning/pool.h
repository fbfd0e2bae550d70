// What the vdevices of a tenant, or of a parent, use together, and how much that may be at most.
//
// Their ledgers draw from it, each on its own thread: nothing here locks. Limits that were handed
// out add up to no more than the ceiling, unless the policy is to overcommit; then this is what
// keeps the use to it.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "core/base/error.h"
#include "provisioning/kind.h"

namespace vrdma::provisioning {

class Pool {
 public:
  // `whose`: "tenant red", for sentences.
  explicit Pool(std::string whose);

  // ENOMEM with a sentence, and nothing taken, if that is more than the ceiling.
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
