// How a connection gets to its peer: from which vdevice, and over which path.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/gid.h"
#include "qp1mux/packet.h"

namespace vrdma::qp1mux {

class Endpoint;

struct Route {
  Endpoint* endpoint = nullptr;
  verbs::Gid local;  // the source address
  RoceVersion roce = RoceVersion::kV2;
  uint8_t hop_limit = 64;    // 1: the peer is on the same link
  uint8_t path_mtu = 3;      // ibv_mtu
  uint8_t packet_life = 16;  // a code
  uint8_t ack_delay = 15;    // a code: this side's delay
};

// Knows the vdevices of a namespace; implemented by vrdmad. CmId::device_removed() reports to ids
// that an Endpoint goes away.
class Routes {
 public:
  virtual ~Routes() = default;

  struct Found {
    Route route;
    bool complete =
        true;  // false: the peer is on another host, and look_up() says how to get there
  };
  // The vdevice of the namespace that leads to `remote`, and its source address: `local` unless
  // that is a wildcard. ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, ENODEV.
  virtual base::Result<Found> find(uint64_t netns, const verbs::Gid& local,
                                   const verbs::Gid& remote) = 0;
  using Answer = std::function<void(base::Result<Route>)>;
  // Completes an incomplete route by asking the network. `answer` may be called at any time, inside
  // this call, more than once or never; Lookups bounds that (qp1mux/lookups.h). Destroying the
  // result ends the lookup. Without a network no host is reachable but this one.
  virtual std::shared_ptr<void> look_up(const Route& route, const verbs::Gid& remote,
                                        Answer answer);

  // The vdevice that owns the address. EADDRNOTAVAIL, ENODEV.
  virtual base::Result<Endpoint*> owner(uint64_t netns, const verbs::Gid& local) = 0;
  virtual std::vector<Endpoint*> all(uint64_t netns) = 0;
  // Charges a vdevice for an id that is bound to it, until the returned object is destroyed.
  // ENOMEM: the vdevice has reached its limit.
  virtual base::Result<std::shared_ptr<void>> charge(const Endpoint& endpoint) = 0;
};

}  // namespace vrdma::qp1mux
