// What one vdevice may use, and what of it is in use.
//
// Single-threaded: a ledger and its charges belong to one thread, and nothing here locks. A vdevice
// has two with the same limits: its worker's, which the control thread asks, and for what begins
// with cm_, and for conn_rate, the control thread's own.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "provisioning/kind.h"
#include "provisioning/pool.h"

namespace vrdma::provisioning {

// One line of `vrdmactl quota show`.
struct Row {
  Kind kind{};
  uint64_t used = 0;  // per-object maxima: of the largest object there is
  uint64_t limit = 0;
  uint64_t refused = 0;  // charges refused so far
};

class Ledger;

// What an object was charged. Move-only; the destructor gives it back. May outlive the ledger.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept = default;
  Charge& operator=(Charge&& other) noexcept;
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { reset(); }
  void reset();
  // Makes it larger by `other`, of the same account; or smaller. Not for kinds counted by object.
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
  std::shared_ptr<Pool> user_;        // who used it
  uint64_t amount_ = 0;
};

// Movable, also while charges are out; a moved-from ledger may only be destroyed or assigned to.
class Ledger {
 public:
  // All limits are their kinds' initial ones.
  Ledger();
  Ledger(Ledger&&) noexcept = default;
  Ledger& operator=(Ledger&&) noexcept = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  ~Ledger() = default;

  // From now on what is charged is charged to the pool too, which may refuse it. Before the first
  // charge.
  void draw_from(std::shared_ptr<Pool> pool);

  // Totals: `amount` more. Per-object maxima: an object of `amount`. ENOMEM with a sentence when
  // that is over the limit; the refusal is counted and nothing is charged. `user`, if given, is
  // told of totals too.
  [[nodiscard]] base::Result<Charge> charge(Kind kind, uint64_t amount,
                                            std::shared_ptr<Pool> user = nullptr);
  // Of a rate: somebody had to wait.
  void count_refusal(Kind kind);

  // What set_limits() would say, without doing it.
  [[nodiscard]] base::Result<void> check_limits(const std::vector<Setting>& settings) const;
  // All or nothing. EINVAL for a kind that does not exist (the sentence lists those that do), one
  // named twice or a limit above the ceiling; EBUSY for a limit below what is in use, which that of
  // a rate never is. What is not named stays as it is.
  [[nodiscard]] base::Result<void> set_limits(const std::vector<Setting>& settings);

  [[nodiscard]] uint64_t limit(Kind kind) const;
  [[nodiscard]] Limits limits() const;
  [[nodiscard]] uint64_t used(Kind kind) const;
  [[nodiscard]] uint64_t refused(Kind kind) const;
  // One for each kind, in the order of Kind.
  [[nodiscard]] std::vector<Row> rows() const;

 private:
  [[nodiscard]] base::Result<Wanted> wanted(const std::vector<Setting>& settings) const;

  // Shared with the charges, so that these stay sound whatever becomes of the ledger.
  std::array<std::shared_ptr<Charge::Account>, kKindCount> accounts_;

  [[nodiscard]] Charge::Account& account(Kind kind) const;
};

// The limit of a rate; 0 stands for what has none.
[[nodiscard]] uint64_t bound(const Ledger& ledger, Kind kind);

}  // namespace vrdma::provisioning
