#include "gid/registry.h"

#include <algorithm>
#include <set>
#include <unordered_set>

namespace vrdma::gid {

struct Registry::Fabric {
  std::unordered_map<verbs::Gid, Holding::State*> holders;
  std::set<Holding::State*> members;
};

struct Registry::Holding::State {
  Registry* registry = nullptr;
  Fabric* fabric = nullptr;
  std::string fabric_name;
  std::string name;  // the vdevice's name
  std::function<void()> retry;
  Table table;
  std::unordered_set<verbs::Gid> refused;  // wanted GIDs that another vdevice holds
};

Registry::Registry() = default;
Registry::~Registry() = default;

Registry::Holding::Holding() = default;
Registry::Holding::~Holding() { reset(); }
Registry::Holding::Holding(std::unique_ptr<State> state) : state_(std::move(state)) {}
Registry::Holding::Holding(Holding&& other) noexcept = default;

Registry::Holding& Registry::Holding::operator=(Holding&& other) noexcept {
  if (this != &other) {
    reset();
    state_ = std::move(other.state_);
  }
  return *this;
}

void Registry::Holding::reset() {
  if (!state_) return;
  state_->registry->leave(state_.get());
  state_.reset();
}

const std::vector<verbs::Gid>& Registry::Holding::gids() const {
  static const std::vector<verbs::Gid> none;
  return state_ ? state_->table.gids() : none;
}

size_t Registry::Holding::refused() const { return state_ ? state_->refused.size() : 0; }

Registry::Update Registry::Holding::update(const std::vector<verbs::Gid>& wanted) {
  Update update;
  std::vector<verbs::Gid> granted;
  std::unordered_set<verbs::Gid> refused;
  for (const auto& gid : wanted) {
    const auto [it, is_new] = state_->fabric->holders.try_emplace(gid, state_.get());
    if (it->second == state_.get()) {
      granted.push_back(gid);
      continue;
    }
    refused.insert(gid);
    if (state_->refused.contains(gid)) continue;
    ++state_->registry->refusals_;
    update.refusals.push_back({gid, it->second->name, sentence(*it->second, gid)});
  }
  state_->refused = std::move(refused);
  update.change = state_->table.update(granted);
  state_->registry->give_up(state_.get(), update.change.removed);
  return update;
}

base::Result<Registry::Holding> Registry::claim(const std::string& fabric,
                                                const std::string& holder,
                                                const std::vector<verbs::Gid>& wanted,
                                                std::function<void()> retry) {
  if (auto it = fabrics_.find(fabric); it != fabrics_.end()) {
    const auto& holders = it->second->holders;
    for (const auto& gid : wanted) {
      const auto held = holders.find(gid);
      if (held == holders.end()) continue;
      ++refusals_;
      return base::fail(EADDRINUSE, sentence(*held->second, gid));
    }
  }
  auto& members = fabrics_[fabric];
  if (!members) members = std::make_unique<Fabric>();
  auto state = std::make_unique<Holding::State>();
  state->registry = this;
  state->fabric = members.get();
  state->fabric_name = fabric;
  state->name = holder;
  state->retry = std::move(retry);
  members->members.insert(state.get());
  Holding holding(std::move(state));
  holding.update(wanted);
  return holding;
}

const std::string* Registry::holder(const std::string& fabric, const verbs::Gid& gid) const {
  const auto it = fabrics_.find(fabric);
  if (it == fabrics_.end()) return nullptr;
  const auto held = it->second->holders.find(gid);
  return held == it->second->holders.end() ? nullptr : &held->second->name;
}

// Releases `gids`, then calls `retry` once for each vdevice that was refused one of them.
void Registry::give_up(Holding::State* state, const std::vector<verbs::Gid>& gids) {
  for (const auto& gid : gids) state->fabric->holders.erase(gid);
  for (Holding::State* other : state->fabric->members) {
    const bool waited = std::any_of(gids.begin(), gids.end(), [&](const verbs::Gid& gid) {
      return other->refused.contains(gid);
    });
    if (waited && other != state && other->retry) other->retry();
  }
}

void Registry::leave(Holding::State* state) {
  state->fabric->members.erase(state);
  give_up(state, state->table.gids());
  if (state->fabric->members.empty()) fabrics_.erase(state->fabric_name);
}

std::string Registry::sentence(const Holding::State& holder, const verbs::Gid& gid) {
  return "GID " + gid.text() + " is held by vdevice " + holder.name + " in fabric " +
         holder.fabric_name;
}

}  // namespace vrdma::gid
