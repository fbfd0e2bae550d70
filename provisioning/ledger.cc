#include "provisioning/ledger.h"

#include <string>

namespace vrdma::provisioning {

struct Charge::Account {
  bool per_object = false;
  uint64_t limit = 0;
  uint64_t total = 0;                  // totals
  std::map<uint64_t, size_t> objects;  // per-object maxima: amount -> objects that have it
  uint64_t refused = 0;

  [[nodiscard]] uint64_t used() const {
    if (!per_object) return total;
    return objects.empty() ? 0 : objects.rbegin()->first;
  }
};

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    reset();
    account_ = std::move(other.account_);
    amount_ = other.amount_;
  }
  return *this;
}

void Charge::reset() {
  if (!account_) return;
  if (!account_->per_object)
    account_->total -= amount_;
  else if (auto it = account_->objects.find(amount_); --it->second == 0)
    account_->objects.erase(it);
  account_.reset();
}

void Charge::absorb(Charge&& other) {
  amount_ += other.amount_;
  other.account_.reset();
}

void Charge::shrink_to(uint64_t amount) {
  account_->total -= amount_ - amount;
  amount_ = amount;
}

Ledger::Ledger() {
  for (const Kind kind : all_kinds()) {
    auto made = std::make_shared<Charge::Account>();
    made->per_object = traits(kind).per_object;
    made->limit = traits(kind).initial;
    accounts_[static_cast<size_t>(kind)] = std::move(made);
  }
}

Charge::Account& Ledger::account(Kind kind) const { return *accounts_[static_cast<size_t>(kind)]; }

base::Result<Charge> Ledger::charge(Kind kind, uint64_t amount) {
  Charge::Account& to = account(kind);
  const auto& [name, initial, ceiling, per_object] = traits(kind);
  const uint64_t in_use = per_object ? 0 : to.total;
  if (in_use > to.limit || amount > to.limit - in_use) {
    ++to.refused;
    std::string why = "quota " + std::string(name) + ": " + std::to_string(amount);
    why += per_object ? " wanted" : " more wanted, " + std::to_string(in_use) + " in use";
    return base::fail(ENOMEM, why + ", the limit is " + std::to_string(to.limit));
  }
  if (per_object)
    ++to.objects[amount];
  else
    to.total += amount;
  return Charge(accounts_[static_cast<size_t>(kind)], amount);
}

base::Result<Ledger::Wanted> Ledger::wanted(const std::vector<Setting>& settings) const {
  Wanted wanted;
  for (const auto& setting : settings) {
    const auto kind = find_kind(setting.kind);
    if (!kind)
      return base::fail(EINVAL,
                        "there is no quota kind '" + setting.kind + "'; there are " + kind_names());
    const auto& [name, initial, ceiling, per_object] = traits(*kind);
    const std::string what = "quota " + setting.kind;
    auto& slot = wanted[static_cast<size_t>(*kind)];
    if (slot) return base::fail(EINVAL, what + " is named twice");
    slot = setting.limit == kCeiling ? ceiling : setting.limit;
    if (*slot > ceiling)
      return base::fail(EINVAL, what + ": " + std::to_string(*slot) +
                                    " is more than is possible, which is " +
                                    std::to_string(ceiling));
    const uint64_t in_use = used(*kind);
    if (*slot < in_use)
      return base::fail(EBUSY, what + ": the limit cannot be " + std::to_string(*slot) + ", " +
                                   (per_object ? "the largest in use has " : "in use are ") +
                                   std::to_string(in_use));
  }
  return wanted;
}

base::Result<void> Ledger::check_limits(const std::vector<Setting>& settings) const {
  if (auto limits = wanted(settings); !limits) return base::pass(std::move(limits.error()));
  return {};
}

base::Result<void> Ledger::set_limits(const std::vector<Setting>& settings) {
  auto limits = wanted(settings);
  if (!limits) return base::pass(std::move(limits.error()));
  for (size_t i = 0; i < kKindCount; ++i)
    if ((*limits)[i]) accounts_[i]->limit = *(*limits)[i];
  return {};
}

uint64_t Ledger::limit(Kind kind) const { return account(kind).limit; }
uint64_t Ledger::used(Kind kind) const { return account(kind).used(); }
uint64_t Ledger::refused(Kind kind) const { return account(kind).refused; }

std::vector<Row> Ledger::rows() const {
  std::vector<Row> rows;
  for (const Kind kind : all_kinds())
    rows.push_back({kind, used(kind), limit(kind), refused(kind)});
  return rows;
}

}  // namespace vrdma::provisioning
