#include "qp1mux/lookups.h"

#include <cerrno>

namespace vrdma::qp1mux {

// Due at its deadline; or at once, if it has an answer or may leave the line.
struct Lookup::State : Due, std::enable_shared_from_this<Lookup::State> {
  Lookups* lookups = nullptr;  // null: it has ended
  Lookups::Tenants::iterator tenant;
  base::TimePoint deadline{};
  Lookups::Begin begin;
  Lookups::Answer answer;
  bool begun = false;
  std::list<State*>::iterator in_line{};  // until it has begun
  std::shared_ptr<void> under_way;
  std::optional<base::Result<Route>> result;
};

void Lookup::reset() {
  const auto state = std::exchange(state_, nullptr);
  if (state != nullptr && state->lookups != nullptr) state->lookups->end(*state);
}

Lookup Lookups::start(const std::string& tenant, base::TimePoint deadline, Begin begin,
                      Answer answer) {
  auto state = std::make_shared<Lookup::State>();
  state->lookups = this;
  state->tenant = tenants_.try_emplace(tenant).first;
  state->deadline = deadline;
  state->begin = std::move(begin);
  state->answer = std::move(answer);
  Tenant& its = state->tenant->second;
  state->in_line = its.line.insert(its.line.end(), state.get());
  due_.set(state.get(), deadline);
  if (its.line.size() == 1 && its.under_way < kMost) this->begin(state);
  changed_();
  return Lookup(std::move(state));
}

void Lookups::begin(const std::shared_ptr<Lookup::State>& lookup) {
  Tenant& its = lookup->tenant->second;
  its.line.erase(lookup->in_line);
  ++its.under_way;
  lookup->begun = true;
  due_.set(lookup.get(), lookup->deadline);
  lookup->under_way = lookup->begin([weak = std::weak_ptr(lookup)](base::Result<Route> result) {
    const auto state = weak.lock();
    if (state == nullptr || state->lookups == nullptr || state->result) return;
    state->result = std::move(result);
    state->lookups->due_.set(state.get(), {});
    state->lookups->changed_();
  });
}

void Lookups::end(Lookup::State& lookup) {
  lookup.lookups = nullptr;
  due_.cancel(&lookup);
  Tenant& its = lookup.tenant->second;
  if (lookup.begun)
    --its.under_way;
  else
    its.line.erase(lookup.in_line);
  hurry(lookup.tenant);
  const auto ends = std::exchange(lookup.under_way, nullptr);
}

// Makes the next in line due if there is room for it; forgets a tenant without lookups.
void Lookups::hurry(Tenants::iterator tenant) {
  Tenant& its = tenant->second;
  if (its.line.empty()) {
    if (its.under_way == 0) tenants_.erase(tenant);
    return;
  }
  if (its.under_way >= kMost) return;
  due_.set(its.line.front(), {});
  changed_();
}

void Lookups::advance(base::TimePoint now) {
  while (Due* const first = due_.first()) {
    if (first->when > now) return;
    const auto lookup = static_cast<Lookup::State*>(first)->shared_from_this();
    if (!lookup->begun && now < lookup->deadline) {
      const auto tenant = lookup->tenant;
      begin(lookup);
      hurry(tenant);
      continue;
    }
    end(*lookup);
    lookup->answer(lookup->result ? std::move(*lookup->result)
                                  : base::fail(ETIMEDOUT, "the network did not answer in time"));
  }
}

std::shared_ptr<void> Routes::look_up(const Route&, const verbs::Gid& remote, Answer answer) {
  answer(base::fail(EHOSTUNREACH, "no network leads to " + remote.text()));
  return nullptr;
}

}  // namespace vrdma::qp1mux
