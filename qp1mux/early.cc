#include "qp1mux/early.h"

#include <algorithm>
#include <utility>

#include "qp1mux/mux_state.h"

namespace vrdma::qp1mux {

namespace {

uint64_t service_of(const wire::Mad& mad) {
  return wire::cm_attribute(mad.header) == wire::CmAttribute::kReq
             ? mad.as<wire::CmReq>().service_id
             : mad.as<wire::CmSidrReq>().service_id;
}

}  // namespace

bool EarlyRequests::add(const EndpointState& destination, std::shared_ptr<EndpointState> sender,
                        const Packet& packet, base::TimePoint until,
                        std::unique_ptr<KeptPacket>* evicted) {
  const Key key{&destination, packet.source, packet.mad.header.transaction_id};
  if (all_.contains(key)) return true;
  const std::string tenant = sender != nullptr ? sender->setup.tenant : std::string();
  const auto known = by_tenant_.find(tenant);
  const bool fits = sender != nullptr
                        ? sender->early < sender->setup.limits.early
                        : known == by_tenant_.end() || known->second.size() < kMostOfNetwork;
  if (!fits || !make_room(tenant, evicted)) {
    if (sender != nullptr) ++sender->counters.impatient;
    return false;
  }
  auto early = std::make_unique<Early>();
  early->packet = std::make_unique<KeptPacket>();
  early->packet->keep(packet);
  early->key = key;
  early->place = {&destination, service_of(packet.mad)};
  early->tenant = tenant;
  auto& same_tenant = by_tenant_[tenant];
  early->among_tenant = same_tenant.insert(same_tenant.end(), early.get());
  auto& same_place = by_place_[early->place];
  early->among_place = same_place.insert(same_place.end(), early.get());
  if (sender != nullptr) ++sender->early;
  early->sender = std::move(sender);
  due_.set(early.get(), until);
  all_.emplace(key, std::move(early));
  return true;
}

// Evicts only if the tenant with the most requests has more than the sender's will have.
bool EarlyRequests::make_room(const std::string& tenant, std::unique_ptr<KeptPacket>* evicted) {
  if (size() < kMost) return true;
  const auto most = std::max_element(
      by_tenant_.begin(), by_tenant_.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const auto own = by_tenant_.find(tenant);
  if (most == own || most->second.size() <= (own == by_tenant_.end() ? 0 : own->second.size()) + 1)
    return false;
  Early& oldest = *most->second.front();
  if (oldest.sender != nullptr) ++oldest.sender->counters.impatient;
  *evicted = remove(oldest);
  return true;
}

void EarlyRequests::hurry(const EndpointState& destination, uint64_t service_id,
                          base::TimePoint now) {
  const auto waiting = by_place_.find({&destination, service_id});
  if (waiting == by_place_.end()) return;
  for (Early* const early : waiting->second)
    if (destination.listener(service_id, early->packet->destination)) due_.set(early, now);
}

void EarlyRequests::drop(const EndpointState& destination) {
  for (auto it = by_place_.lower_bound({&destination, 0});
       it != by_place_.end() && it->first.first == &destination;
       it = by_place_.lower_bound({&destination, 0}))
    (void)remove(*it->second.front());
}

std::unique_ptr<KeptPacket> EarlyRequests::remove(Early& early) {
  due_.cancel(&early);
  if (early.sender != nullptr) --early.sender->early;
  const auto same_tenant = by_tenant_.find(early.tenant);
  same_tenant->second.erase(early.among_tenant);
  if (same_tenant->second.empty()) by_tenant_.erase(same_tenant);
  const auto same_place = by_place_.find(early.place);
  same_place->second.erase(early.among_place);
  if (same_place->second.empty()) by_place_.erase(same_place);
  auto packet = std::move(early.packet);
  const Key key = early.key;
  all_.erase(key);
  return packet;
}

std::unique_ptr<KeptPacket> EarlyRequests::next(base::TimePoint now) {
  Due* const first = due_.first();
  if (first == nullptr || first->when > now) return nullptr;
  return remove(*static_cast<Early*>(first));
}

}  // namespace vrdma::qp1mux
