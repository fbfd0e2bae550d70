#include "provisioning/pool.h"

namespace vrdma::provisioning {

Pool::Pool(std::string whose) : whose_(std::move(whose)) {}

base::Result<void> Pool::take(Kind kind, uint64_t amount) {
  Account& account = accounts_[static_cast<size_t>(kind)];
  const uint64_t ceiling = account.ceiling.load(std::memory_order_relaxed);
  uint64_t used = account.used.load(std::memory_order_relaxed);
  do {
    if (used > ceiling || amount > ceiling - used)
      return base::fail(ENOMEM, "quota " + std::string(traits(kind).name) + " of " + whose_ + ": " +
                                    std::to_string(amount) + " more wanted, " +
                                    std::to_string(used) + " in use, the ceiling is " +
                                    std::to_string(ceiling));
  } while (!account.used.compare_exchange_weak(used, used + amount, std::memory_order_relaxed));
  return {};
}

void Pool::give_back(Kind kind, uint64_t amount) {
  accounts_[static_cast<size_t>(kind)].used.fetch_sub(amount, std::memory_order_relaxed);
}

void Pool::set_ceiling(Kind kind, uint64_t ceiling) {
  accounts_[static_cast<size_t>(kind)].ceiling.store(ceiling, std::memory_order_relaxed);
}

uint64_t Pool::used(Kind kind) const {
  return accounts_[static_cast<size_t>(kind)].used.load(std::memory_order_relaxed);
}

}  // namespace vrdma::provisioning
