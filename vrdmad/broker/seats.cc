#include "vrdmad/broker/seats.h"

namespace vrdma::vrdmad {

namespace {

template <class Counts, class Key>
uint32_t count_of(const Counts& counts, Key key) {
  const auto it = counts.find(key);
  return it != counts.end() ? it->second : 0;
}

template <class Counts, class Key>
void count_less(Counts& counts, Key key) {
  const auto it = counts.find(key);
  if (--it->second == 0) counts.erase(it);
}

}  // namespace

bool Seats::State::has_room(uint64_t netns) const {
  if (taken >= limits.all) return false;
  return taken < limits.all / 2 || count_of(of_netns, netns) < limits.of_netns;
}

bool Seats::has_room(uint64_t netns) const {
  const std::lock_guard lock(state_->mutex);
  return state_->has_room(netns);
}

std::optional<Seats::Seat> Seats::take(uint64_t netns, uid_t user, bool had_one) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  const bool few = state.taken < state.limits.all / 4 * 3 ||
                   count_of(state.of_user, user) < state.limits.of_user;
  if (state.taken >= state.limits.all || (!had_one && !(few && state.has_room(netns)))) return {};
  ++state.taken;
  ++state.of_netns[netns];
  ++state.of_user[user];
  return Seat(state_, netns, user);
}

Seats::Seat::~Seat() {
  if (state_ == nullptr) return;
  const std::lock_guard lock(state_->mutex);
  --state_->taken;
  count_less(state_->of_netns, netns_);
  count_less(state_->of_user, user_);
}

}  // namespace vrdma::vrdmad
