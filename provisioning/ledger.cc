#include "provisioning/ledger.h"

#include <string>

namespace vrdma::provisioning {

struct Charge::Account {
  Kind kind{};
  bool per_object = false;
  std::vector<std::shared_ptr<Pool>> pools;
  std::shared_ptr<Use> use;
  std::map<uint64_t, size_t> objects;  // per-object maxima: amount -> number of objects

  void note_largest() { use->used = objects.empty() ? uint64_t{0} : objects.rbegin()->first; }
};

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    reset();
    account_ = std::move(other.account_);
    user_ = std::move(other.user_);
    amount_ = other.amount_;
  }
  return *this;
}

void Charge::reset() {
  if (!account_) return;
  if (!account_->per_object) {
    give_back(amount_);
  } else if (auto it = account_->objects.find(amount_); --it->second == 0) {
    account_->objects.erase(it);
    account_->note_largest();
  }
  account_.reset();
  user_.reset();
}

void Charge::give_back(uint64_t amount) {
  account_->use->used -= amount;
  for (const auto& pool : account_->pools) pool->give_back(account_->kind, amount);
  if (user_ != nullptr) user_->give_back(account_->kind, amount);
}

void Charge::absorb(Charge&& other) {
  amount_ += other.amount_;
  other.account_.reset();
}

void Charge::shrink_to(uint64_t amount) {
  give_back(amount_ - amount);
  amount_ = amount;
}

Ledger::Ledger(std::shared_ptr<UsePage> page) {
  for (const Kind kind : all_kinds()) {
    auto made = std::make_shared<Charge::Account>();
    made->kind = kind;
    made->per_object = traits(kind).per_object();
    made->use = {page, &(*page)[static_cast<size_t>(kind)]};
    made->use->limit = traits(kind).initial;
    accounts_[static_cast<size_t>(kind)] = std::move(made);
  }
}

Charge::Account& Ledger::account(Kind kind) const { return *accounts_[static_cast<size_t>(kind)]; }

void Ledger::draw_from(std::shared_ptr<Pool> pool) {
  for (const auto& account : accounts_)
    if (!account->per_object) account->pools.push_back(pool);
}

void Ledger::count_refusal(Kind kind) { ++account(kind).use->refused; }

base::Result<Charge> Ledger::charge(Kind kind, uint64_t amount, std::shared_ptr<Pool> user) {
  Charge::Account& to = account(kind);
  const std::string_view name = traits(kind).name;
  const bool per_object = to.per_object;
  const uint64_t in_use = per_object ? 0 : to.use->used.get();
  const uint64_t limit = to.use->limit;
  if (in_use > limit || amount > limit - in_use) {
    ++to.use->refused;
    last_refused_ = Refusal{kind, false};
    std::string why = "quota " + std::string(name) + ": " + std::to_string(amount);
    why += per_object ? " wanted" : " more wanted, " + std::to_string(in_use) + " in use";
    return base::fail(ENOMEM, why + ", the limit is " + std::to_string(limit));
  }
  for (size_t i = 0; i < to.pools.size(); ++i) {
    auto taken = to.pools[i]->take(kind, amount);
    if (taken) continue;
    while (i-- > 0) to.pools[i]->give_back(kind, amount);
    ++to.use->refused;
    last_refused_ = Refusal{kind, true};
    return base::pass(std::move(taken.error()));
  }
  if (per_object) {
    ++to.objects[amount];
    to.note_largest();
  } else {
    to.use->used += amount;
  }
  if (user != nullptr && !per_object && !user->take(kind, amount)) user = nullptr;
  return Charge(accounts_[static_cast<size_t>(kind)], per_object ? nullptr : std::move(user),
                amount);
}

base::Result<Wanted> Ledger::wanted(const std::vector<Setting>& settings) const {
  auto wanted = understand(settings);
  if (!wanted) return wanted;
  for (const Kind kind : all_kinds()) {
    const auto slot = (*wanted)[static_cast<size_t>(kind)];
    const uint64_t in_use = used(kind);
    if (slot && *slot < in_use)
      return base::fail(
          EBUSY, "quota " + std::string(traits(kind).name) + ": the limit cannot be " +
                     std::to_string(*slot) + ", because " +
                     (traits(kind).per_object() ? "the largest object has " : "the vdevice uses ") +
                     std::to_string(in_use));
  }
  const auto to_be = [&](Kind kind) {
    return (*wanted)[static_cast<size_t>(kind)].value_or(limit(kind));
  };
  if (to_be(Kind::kBandwidthMin) > to_be(Kind::kBandwidth))
    return base::fail(EINVAL, "quota bandwidth_min: " + std::to_string(to_be(Kind::kBandwidthMin)) +
                                  " is more than bandwidth, which is " +
                                  std::to_string(to_be(Kind::kBandwidth)));
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
    if ((*limits)[i]) accounts_[i]->use->limit = *(*limits)[i];
  return {};
}

uint64_t Ledger::limit(Kind kind) const { return account(kind).use->limit; }
Limits Ledger::limits() const {
  Limits limits{};
  for (const Kind kind : all_kinds()) of(limits, kind) = limit(kind);
  return limits;
}
uint64_t Ledger::used(Kind kind) const { return account(kind).use->used; }
uint64_t Ledger::refused(Kind kind) const { return account(kind).use->refused; }

std::vector<Row> Ledger::rows() const {
  std::vector<Row> rows;
  for (const Kind kind : all_kinds())
    rows.push_back({kind, used(kind), limit(kind), refused(kind)});
  return rows;
}

uint64_t bound(const Ledger& ledger, Kind kind) {
  const uint64_t limit = ledger.limit(kind);
  return limit == traits(kind).ceiling ? 0 : limit;
}

}  // namespace vrdma::provisioning
