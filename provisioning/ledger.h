// The limits of one vdevice and their current use.
//
// Single-threaded: a ledger and its charges belong to one thread; nothing here locks. A vdevice has
// two ledgers with the same limits. The worker's serves most kinds; the control thread queries it.
// The control thread's own serves conn_rate and the kinds that start with cm_.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/counter.h"
#include "core/base/error.h"
#include "provisioning/kind.h"
#include "provisioning/pool.h"

namespace vrdma::provisioning {

// One line of `vrdmactl quota show`.
struct Row {
  Kind kind{};
  uint64_t used = 0;  // of a per-object kind: that of the largest object
  uint64_t limit = 0;
  uint64_t refused = 0;  // number of refused charges
};

// What a ledger shows of each kind. The ledger's thread writes it, any thread reads it.
struct Use {
  base::Counter used, limit, refused;
};
using UsePage = std::array<Use, kKindCount>;

class Ledger;

// What an object is charged for. Move-only; the destructor returns it. May outlive the ledger.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept = default;
  Charge& operator=(Charge&& other) noexcept;
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { reset(); }
  void reset();
  // Adds `other`, a charge of the same account; or returns the excess. Not for per-object kinds.
  void absorb(Charge&& other);
  void shrink_to(uint64_t amount);

  [[nodiscard]] uint64_t amount() const { return account_ ? amount_ : 0; }

 private:
  friend class Ledger;
  struct Account;
  Charge(std::shared_ptr<Account> account, std::shared_ptr<Pool> user, uint64_t amount)
      : account_(std::move(account)), user_(std::move(user)), amount_(amount) {}
  void give_back(uint64_t amount);

  std::shared_ptr<Account> account_;  // null: nothing is charged
  std::shared_ptr<Pool> user_;        // the user's pool, if any
  uint64_t amount_ = 0;
};

// Movable even while charges exist. A moved-from ledger may only be destroyed or assigned to.
class Ledger {
 public:
  // All limits have their kinds' initial values. It counts in `page`, which nobody else writes.
  explicit Ledger(std::shared_ptr<UsePage> page = std::make_shared<UsePage>());
  Ledger(Ledger&&) noexcept = default;
  Ledger& operator=(Ledger&&) noexcept = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  ~Ledger() = default;

  // From now on, charges are drawn from the pool too, which may refuse them. Call before the first
  // charge.
  void draw_from(std::shared_ptr<Pool> pool);

  // Totals: adds `amount`. Per-object maxima: an object of size `amount`. Beyond the limit: ENOMEM
  // with a sentence; counts the refusal and charges nothing. `user`, if given, counts totals too.
  [[nodiscard]] base::Result<Charge> charge(Kind kind, uint64_t amount,
                                            std::shared_ptr<Pool> user = nullptr);
  // What charge() refused last, since the last call.
  struct Refusal {
    Kind kind{};
    bool by_pool = false;  // a ceiling, not the limit
    bool operator==(const Refusal&) const = default;
  };
  [[nodiscard]] std::optional<Refusal> take_refused() { return std::exchange(last_refused_, {}); }
  // For a rate: counts that a caller had to wait.
  void count_refusal(Kind kind);

  // Returns what set_limits() would return, without changing anything.
  [[nodiscard]] base::Result<void> check_limits(const std::vector<Setting>& settings) const;
  // Sets the listed limits, all or nothing. EINVAL for an unknown kind (the sentence lists all
  // kinds), a duplicate or a limit above the ceiling; EBUSY for a limit below the current use,
  // except for a rate.
  [[nodiscard]] base::Result<void> set_limits(const std::vector<Setting>& settings);

  [[nodiscard]] uint64_t limit(Kind kind) const;
  [[nodiscard]] Limits limits() const;
  [[nodiscard]] uint64_t used(Kind kind) const;
  [[nodiscard]] uint64_t refused(Kind kind) const;
  // One row for each kind, in the order of Kind.
  [[nodiscard]] std::vector<Row> rows() const;

 private:
  [[nodiscard]] base::Result<Wanted> wanted(const std::vector<Setting>& settings) const;

  std::optional<Refusal> last_refused_;
  // Shared with the charges, which may outlive the ledger.
  std::array<std::shared_ptr<Charge::Account>, kKindCount> accounts_;

  [[nodiscard]] Charge::Account& account(Kind kind) const;
};

// The limit of a rate; 0 if it is unlimited.
[[nodiscard]] uint64_t bound(const Ledger& ledger, Kind kind);

}  // namespace vrdma::provisioning
