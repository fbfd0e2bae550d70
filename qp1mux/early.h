// Requests for a service without a listener, waiting for a listener.
//
// A request waits at its destination endpoint for at most Config::patience and is charged to the
// vdevice that sent it (Limits::early). All endpoints together hold kMost. When these are used up,
// the tenant with the most requests loses its oldest one, which is then refused at once. So a
// tenant that floods shortens only its own waits.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "qp1mux/due_queue.h"
#include "qp1mux/endpoint.h"
#include "qp1mux/packet.h"

namespace vrdma::qp1mux {

class EarlyRequests {
 public:
  static constexpr size_t kMost = 16384;
  // For senders on other hosts, because no quota of this host limits them.
  static constexpr size_t kMostOfNetwork = 256;

  // The request is returned by next() when a listener may be there, or at `until`. `sender`: the
  // vdevice of this host that sent it, or null. Returns false if there is no room, which is counted
  // at the sender. A duplicate of a waiting request returns true and changes nothing. `evicted`:
  // the request that lost its room to this one, or unchanged.
  [[nodiscard]] bool add(const EndpointState& destination, std::shared_ptr<EndpointState> sender,
                         const Packet& packet, base::TimePoint until,
                         std::unique_ptr<KeptPacket>* evicted);
  // Makes the requests due that wait for the service at an address where the endpoint listens now.
  void hurry(const EndpointState& destination, uint64_t service_id, base::TimePoint now);
  // Drops all requests that wait at the endpoint.
  void drop(const EndpointState& destination);

  [[nodiscard]] const Due* first() const { return due_.first(); }
  // Removes and returns the first request that is due; nullptr if none is.
  [[nodiscard]] std::unique_ptr<KeptPacket> next(base::TimePoint now);
  [[nodiscard]] size_t size() const { return all_.size(); }

 private:
  struct Early;
  struct Key {
    const EndpointState* destination;
    verbs::Gid source;
    uint64_t transaction;
    bool operator==(const Key&) const = default;
    struct Hash {
      size_t operator()(const Key& key) const noexcept {
        return std::hash<verbs::Gid>()(key.source) ^ key.transaction * 0x9e3779b97f4a7c15 ^
               std::hash<const void*>()(key.destination);
      }
    };
  };
  using Place = std::pair<const EndpointState*, uint64_t>;  // destination and service
  struct Early : Due {
    std::unique_ptr<KeptPacket> packet;
    std::shared_ptr<EndpointState> sender;
    Key key{};
    Place place{};
    std::list<Early*>::iterator among_tenant{}, among_place{};
    std::string tenant;  // of the sender; empty: on another host
  };

  [[nodiscard]] bool make_room(const std::string& tenant, std::unique_ptr<KeptPacket>* evicted);
  [[nodiscard]] std::unique_ptr<KeptPacket> remove(Early& early);

  DueQueue due_;
  std::unordered_map<Key, std::unique_ptr<Early>, Key::Hash> all_;
  // In order of arrival; without empty lists.
  std::map<std::string, std::list<Early*>> by_tenant_;
  std::map<Place, std::list<Early*>> by_place_;
};

}  // namespace vrdma::qp1mux
