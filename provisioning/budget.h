// What a tenant or a parent has to hand out to its vdevices: defaults, ceilings, and how much of
// the ceilings may be promised.
//
// The limits of all its vdevices together may be at most `overcommit` percent of the ceiling; of a
// kind that bounds each object alone, each at most the ceiling. Whatever was promised, the objects
// and bytes in use at a time are at most the ceiling (Pool).
//
// Of bandwidth, msg_rate and cpu a limit promises nothing: what the ceiling says is dealt out among
// those who want it (Shares). What is promised is bandwidth_min: all of them together are at most
// the ceiling of bandwidth, whatever the policy, and there is none where no ceiling says what there
// is.
//
// Belongs to the control thread; pool() and the shares are for the workers too.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "provisioning/kind.h"
#include "provisioning/pool.h"
#include "provisioning/shares.h"

namespace vrdma::provisioning {

// What an operator sets; kinds that are not named have no default of their own, or no ceiling.
struct BudgetSpec {
  std::vector<Setting> defaults;  // limits of a vdevice that names none
  std::vector<Setting> ceilings;  // of all its vdevices together
  uint32_t overcommit = 0;        // percent; 0: as it is, which is at first 100
};

struct BudgetRow {
  Kind kind{};
  std::optional<uint64_t> initial, ceiling;
  // Sum of the limits; of a kind for each object, the largest; of bandwidth, what is guaranteed.
  uint64_t given = 0;
  uint64_t used = 0;
};

class Budget {
 public:
  // The limits that a vdevice was given. Move-only; the destructor gives them back.
  class Grant {
   public:
    Grant() = default;
    Grant(Grant&& other) noexcept;
    Grant& operator=(Grant&& other) noexcept;
    Grant(const Grant&) = delete;
    Grant& operator=(const Grant&) = delete;
    ~Grant() { give_back(); }
    // What it has already is its own to trade in. EBUSY with a sentence.
    [[nodiscard]] base::Result<void> check(const Limits& limits) const;
    void change(const Limits& limits);  // that were checked

   private:
    friend class Budget;
    void give_back();
    Budget* budget_ = nullptr;
    std::list<Limits>::iterator limits_;
  };

  // `whose`: "tenant red". A parent guarantees, and so must know what it has.
  Budget(std::string whose, bool guarantees);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Adds to or replaces what was set before. All or nothing. EINVAL for a bad kind or limit; EBUSY
  // for a ceiling below what is in use or, with the overcommitment, below what was given.
  [[nodiscard]] base::Result<void> set(const BudgetSpec& spec);
  [[nodiscard]] BudgetSpec spec() const;  // all of it
  void put_back(const BudgetSpec& spec);  // that spec() said before the last set()

  // Fills in what `wanted` leaves open, as far as this budget says something.
  void fill_defaults(Wanted& wanted) const;
  // A limit that nobody chose, brought down to the ceiling.
  [[nodiscard]] uint64_t capped(Kind kind, uint64_t limit) const;

  [[nodiscard]] Grant grant();  // of nothing, yet
  [[nodiscard]] const std::shared_ptr<Pool>& pool() const { return pool_; }
  [[nodiscard]] Shares& bandwidth() const { return *bandwidth_; }
  [[nodiscard]] Shares& messages() const { return *messages_; }
  [[nodiscard]] Shares& cpu() const { return *cpu_; }  // in kCpuPercent
  [[nodiscard]] std::vector<BudgetRow> rows() const;
  [[nodiscard]] uint32_t overcommit() const { return overcommit_; }
  [[nodiscard]] size_t grants() const { return granted_.size(); }
  [[nodiscard]] bool is_set() const;  // something was said of it
  // Whether vdevices share a rate of traffic.
  [[nodiscard]] bool deals() const;

 private:
  [[nodiscard]] base::Result<void> check(const Wanted& ceilings, uint32_t overcommit) const;
  void adopt(const Wanted& defaults, const Wanted& ceilings, uint32_t overcommit);
  [[nodiscard]] uint64_t given(Kind kind) const;

  std::string whose_;
  bool guarantees_;
  Wanted defaults_, ceilings_;
  uint32_t overcommit_ = 100;
  std::list<Limits> granted_;
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<Shares> bandwidth_ = std::make_shared<Shares>();
  std::shared_ptr<Shares> messages_ = std::make_shared<Shares>();
  std::shared_ptr<Shares> cpu_ = std::make_shared<Shares>();
};

}  // namespace vrdma::provisioning
