#include "provisioning/budget.h"

#include <algorithm>

#include "core/base/printable.h"

namespace vrdma::provisioning {

namespace {

// Overcommitment does not raise what all its vdevices together may be given of it.
bool is_promised(Kind kind) { return kind == Kind::kBandwidthMin || traits(kind).per_object(); }

std::optional<uint64_t>& at(Wanted& wanted, Kind kind) { return wanted[static_cast<size_t>(kind)]; }
const std::optional<uint64_t>& at(const Wanted& wanted, Kind kind) {
  return wanted[static_cast<size_t>(kind)];
}

void merge(Wanted& into, const Wanted& more) {
  for (const Kind kind : all_kinds())
    if (at(more, kind)) at(into, kind) = at(more, kind);
}

std::vector<Setting> settings_of(const Wanted& wanted) {
  std::vector<Setting> settings;
  for (const Kind kind : all_kinds())
    if (at(wanted, kind)) settings.push_back({std::string(traits(kind).name), *at(wanted, kind)});
  return settings;
}

uint64_t percent(uint64_t amount, uint32_t percent) {
  const auto whole = static_cast<double>(amount) * percent / 100;
  return percent == 100    ? amount
         : whole >= 0x1p63 ? uint64_t{1} << 63
                           : static_cast<uint64_t>(whole);
}

}  // namespace

Budget::Budget(uint64_t number, std::string whose, bool guarantees,
               base::SharedPage<BudgetPage> page)
    : number_(number),
      whose_(std::move(whose)),
      guarantees_(guarantees),
      page_(std::move(page)),
      pool_(std::make_shared<Pool>(whose_, page_.get(), kControlSlot)),
      dealer_(page_.get()) {}

base::Result<std::unique_ptr<Budget>> Budget::make(uint64_t number, std::string whose,
                                                   bool guarantees) {
  auto page = base::SharedPage<BudgetPage>::make("vrdma-budget");
  if (!page) return base::pass(std::move(page).error(), whose);
  return std::unique_ptr<Budget>(
      new Budget(number, std::move(whose), guarantees, std::move(*page)));
}

// ---- assigned limits ----------------------------------------------------------------------------

Budget::Grant& Budget::Grant::operator=(Grant&& other) noexcept {
  if (this != &other) {
    give_back();
    budget_ = std::exchange(other.budget_, nullptr);
    granted_ = other.granted_;
  }
  return *this;
}

Budget::Grant::Grant(Grant&& other) noexcept { *this = std::move(other); }

void Budget::Grant::give_back() {
  if (budget_ == nullptr) return;
  const size_t slot = granted_->slot;
  budget_->granted_.erase(granted_);
  std::exchange(budget_, nullptr)->update_process(slot);
}

Budget::Grant Budget::grant() {
  Grant grant;
  grant.budget_ = this;
  grant.granted_ = granted_.emplace(granted_.end());
  return grant;
}

void Budget::Grant::change(const Limits& limits) {
  granted_->limits = limits;
  budget_->update_process(granted_->slot);
}

void Budget::Grant::place(size_t slot) {
  budget_->pool_->admit(slot);
  budget_->update_process(std::exchange(granted_->slot, slot));
  budget_->update_process(slot);
}

// Its bounds are those of all its vdevices together. A process remains one when it has no vdevice
// any more, because programs may still have some open.
void Budget::update_process(size_t slot) {
  if (slot == kControlSlot) return;
  Dealer::AllBounds bounds{};
  size_t vdevices = 0;
  std::array<bool, kRateCount> unbounded{};
  for (const Granted& granted : granted_) {
    if (granted.slot != slot) continue;
    ++vdevices;
    const auto add = [&](Rate rate, Kind kind, uint64_t unit) {
      const auto index = static_cast<size_t>(rate);
      const uint64_t most = of(granted.limits, kind);
      bounds[index].most += most * unit;
      if (most == traits(kind).ceiling) unbounded[index] = true;
    };
    add(Rate::kBandwidth, Kind::kBandwidth, 1);
    add(Rate::kMessages, Kind::kMsgRate, 1);
    add(Rate::kCpu, Kind::kCpu, kCpuPercent);
    bounds[static_cast<size_t>(Rate::kBandwidth)].least += of(granted.limits, Kind::kBandwidthMin);
  }
  for (size_t rate = 0; rate < kRateCount; ++rate)
    if (unbounded[rate]) bounds[rate].most = kUnbounded;
  dealer_.set_process(slot, vdevices, bounds);
}

void Budget::clear(size_t slot) {
  if (!dealer_.has(slot)) return;  // its words of the page occupy no memory yet
  pool_->clear(slot);
  dealer_.clear(slot);
}

base::Result<void> Budget::Grant::check(const Limits& limits) const {
  if (of(limits, Kind::kBandwidthMin) > 0 && !at(budget_->ceilings_, Kind::kBandwidth) &&
      budget_->guarantees_)
    return base::fail(EINVAL, "quota bandwidth_min: a guarantee needs a ceiling: give " +
                                  budget_->whose_ + " a ceiling of bandwidth");
  const Limits before = std::exchange(granted_->limits, limits);
  auto fits = budget_->check(budget_->ceilings_, budget_->overcommit_);
  granted_->limits = before;
  return fits;
}

uint64_t Budget::given(Kind kind) const {
  uint64_t given = 0;
  for (const Granted& granted : granted_) {
    const uint64_t limit = of(granted.limits, kind);
    given = traits(kind).per_object() ? std::max(given, limit) : given + limit;
  }
  return given;
}

std::optional<uint64_t> Budget::most(const Wanted& ceilings, uint32_t overcommit, Kind kind) {
  if (is_dealt(kind)) return std::nullopt;
  const auto ceiling = at(ceilings, kind == Kind::kBandwidthMin ? Kind::kBandwidth : kind);
  if (!ceiling) return std::nullopt;
  return is_promised(kind) ? *ceiling : percent(*ceiling, overcommit);
}

uint64_t Budget::room(const Limits& limits) const {
  uint64_t room = UINT64_MAX;
  for (const Kind kind : all_kinds()) {
    const auto allowed = most(ceilings_, overcommit_, kind);
    const uint64_t limit = of(limits, kind);
    if (!allowed || limit == 0) continue;
    if (traits(kind).per_object()) {
      if (limit > *allowed) return 0;
      continue;
    }
    const uint64_t sum = given(kind);
    room = std::min(room, sum >= *allowed ? 0 : (*allowed - sum) / limit);
  }
  return room;
}

// ---- settings -----------------------------------------------------------------------------------

// Checks all assigned limits and the current use against these ceilings.
base::Result<void> Budget::check(const Wanted& ceilings, uint32_t overcommit) const {
  for (const Kind kind : all_kinds()) {
    const auto allowed = most(ceilings, overcommit, kind);
    if (!allowed) continue;
    const auto ceiling = at(ceilings, kind == Kind::kBandwidthMin ? Kind::kBandwidth : kind);
    const bool promised = is_promised(kind);
    const std::string what = whose_ + ": quota " + std::string(traits(kind).name) + ": ";
    if (const uint64_t sum = given(kind); sum > *allowed)
      return base::fail(
          EBUSY, what + "its vdevices' limits would reach " + std::to_string(sum) +
                     ", the ceiling is " + std::to_string(*ceiling) +
                     (promised ? std::string()
                               : " with an overcommitment of " + std::to_string(overcommit) + "%"));
    if (const uint64_t used = pool_->used(kind); used > *ceiling)
      return base::fail(EBUSY, what + "the ceiling cannot be " + std::to_string(*ceiling) +
                                   ", because the vdevices use " + std::to_string(used));
  }
  return {};
}

base::Result<void> Budget::set(const BudgetSpec& spec) {
  auto defaults = understand(spec.defaults);
  if (!defaults) return base::pass(std::move(defaults.error()), whose_ + ": default");
  auto ceilings = understand(spec.ceilings);
  if (!ceilings) return base::pass(std::move(ceilings.error()), whose_ + ": ceiling");
  if (at(*ceilings, Kind::kBandwidthMin))
    return base::fail(EINVAL,
                      whose_ + ": quota bandwidth_min has no ceiling; set that of bandwidth");
  if (spec.overcommit != 0 && (spec.overcommit < 100 || spec.overcommit > 100'000))
    return base::fail(EINVAL, whose_ + ": an overcommitment must be 100% to 100000%, not " +
                                  std::to_string(spec.overcommit) + "%");
  Wanted all = ceilings_;
  merge(all, *ceilings);
  for (const Kind kind : all_kinds())  // the highest possible limit is no ceiling
    if (at(all, kind) && *at(all, kind) == traits(kind).ceiling) at(all, kind).reset();
  const uint32_t overcommit = spec.overcommit != 0 ? spec.overcommit : overcommit_;
  if (auto fits = check(all, overcommit); !fits) return fits;
  if (guarantees_ && !at(all, Kind::kBandwidth) && given(Kind::kBandwidthMin) > 0)
    return base::fail(EBUSY, whose_ + ": quota bandwidth: its vdevices are guaranteed " +
                                 std::to_string(given(Kind::kBandwidthMin)) +
                                 " of a ceiling; set their bandwidth_min to 0 first");
  Wanted all_defaults = defaults_;
  for (const auto& name : spec.no_default) {
    const auto kind = find_kind(name);
    if (!kind)
      return base::fail(EINVAL, whose_ + ": default: there is no quota kind '" +
                                    base::printable(name) + "'; there are " + kind_names());
    at(all_defaults, *kind).reset();
  }
  merge(all_defaults, *defaults);
  for (const Kind kind : all_kinds()) {
    const auto most = at(all, kind), given = at(all_defaults, kind);
    if (most && given && *given > *most && !is_dealt(kind))
      return base::fail(EINVAL, whose_ + ": quota " + std::string(traits(kind).name) +
                                    ": the default, " + std::to_string(*given) +
                                    ", is above the ceiling, " + std::to_string(*most) +
                                    "; give it another default, or raise the ceiling");
  }
  adopt(all_defaults, all, overcommit);
  return {};
}

void Budget::adopt(const Wanted& defaults, const Wanted& ceilings, uint32_t overcommit) {
  defaults_ = defaults;
  ceilings_ = ceilings;
  overcommit_ = overcommit;
  for (const Kind kind : all_kinds())
    pool_->set_ceiling(kind, at(ceilings, kind).value_or(kCeiling));
  dealer_.set_capacity(Rate::kBandwidth, at(ceilings, Kind::kBandwidth).value_or(kUnbounded));
  dealer_.set_capacity(Rate::kMessages, at(ceilings, Kind::kMsgRate).value_or(kUnbounded));
  dealer_.set_capacity(Rate::kCpu, at(ceilings, Kind::kCpu).value_or(kUnbounded) * kCpuPercent);
}

void Budget::put_back(const BudgetSpec& spec) {
  const auto defaults = understand(spec.defaults), ceilings = understand(spec.ceilings);
  if (defaults && ceilings) adopt(*defaults, *ceilings, spec.overcommit);
}

BudgetSpec Budget::spec() const {
  return {settings_of(defaults_), settings_of(ceilings_), overcommit_};
}

void Budget::fill_defaults(Wanted& wanted) const {
  for (const Kind kind : all_kinds())
    if (!at(wanted, kind)) at(wanted, kind) = at(defaults_, kind);
}

uint64_t Budget::capped(Kind kind, uint64_t limit) const {
  return is_dealt(kind) ? limit : std::min(limit, at(ceilings_, kind).value_or(limit));
}

bool Budget::is_set() const {
  return defaults_ != Wanted{} || ceilings_ != Wanted{} || overcommit_ != 100;
}

bool Budget::deals() const {
  return at(ceilings_, Kind::kBandwidth) || at(ceilings_, Kind::kMsgRate);
}

std::vector<BudgetRow> Budget::rows() const {
  std::vector<BudgetRow> rows;
  for (const Kind kind : all_kinds())
    rows.push_back({kind, at(defaults_, kind), at(ceilings_, kind),
                    kind == Kind::kBandwidth ? given(Kind::kBandwidthMin)
                    : is_dealt(kind)         ? 0
                                             : given(kind),
                    pool_->used(kind)});
  return rows;
}

}  // namespace vrdma::provisioning
