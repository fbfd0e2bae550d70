// What stands behind Mux, Endpoint and Listener; only this room includes it.
//
// mux.cc      finds the endpoint of what arrives, sends, keeps time
// requests.cc what begins here: REQ and SIDR_REQ from a peer
// answers.cc  what is for an exchange that we have
// exchange.h  one connection
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/token_bucket.h"
#include "qp1mux/due_queue.h"
#include "qp1mux/early.h"
#include "qp1mux/endpoint.h"
#include "qp1mux/mux.h"

namespace vrdma::qp1mux {

class MuxState;

struct ListenerState {
  EndpointState* endpoint = nullptr;  // null once it has stopped
  uint64_t service_id = 0;
  std::optional<verbs::Gid> gid;
  uint32_t backlog = 0;
  uint32_t waiting = 0;
  std::map<std::string, uint32_t> waiting_of;  // by tenant that asks; empty name: of other hosts
  ListenHandler* handler = nullptr;
};

struct EndpointState : std::enable_shared_from_this<EndpointState> {
  MuxState* mux = nullptr;  // null once it was detached
  EndpointSetup setup;
  std::vector<verbs::Gid> gids;
  Counters counters;
  base::TokenBucket outgoing;
  std::map<std::string, base::TokenBucket> incoming;  // by tenant that asks, as above
  uint32_t connections = 0;
  uint32_t pending = 0;
  uint32_t half_open = 0;  // charged here, at peers
  uint32_t early = 0;
  RawHandler* raw = nullptr;
  std::map<std::pair<uint64_t, std::optional<verbs::Gid>>, std::shared_ptr<ListenerState>>
      listeners;

  [[nodiscard]] bool owns(const verbs::Gid& gid) const;
  // Of a listener at `gid` itself, or at all; or null.
  [[nodiscard]] std::shared_ptr<ListenerState> listener(uint64_t service_id,
                                                        const verbs::Gid& gid) const;
  // False, and counted, if there is no token or no room for one connection more.
  [[nodiscard]] bool take(base::TokenBucket& bucket);
  // A token of what `sender`'s tenant may send here; null: other hosts.
  [[nodiscard]] bool take_incoming(const EndpointState* sender);
  [[nodiscard]] bool has_room();
  // A name in the private data of rdma_cm that is not `gid` is somebody else's.
  [[nodiscard]] static bool named_rightly(uint64_t service_id, const uint8_t* private_data,
                                          const verbs::Gid& gid);
  // Counts and words what is refused.
  base::Result<void> refuse_gid(const verbs::Gid& gid);
  base::Result<void> check_qpn(uint32_t qpn);
  base::Result<void> take_outgoing();
  [[nodiscard]] base::Result<void> no_room() const;
};

// How a peer's exchange is known before it knows our id: by its own id, by its queue pair, or by
// the request id of a SIDR. At an address of a peer these are unique.
struct PeerKey {
  enum class Kind : uint8_t { kId, kQpn, kSidr };
  const EndpointState* endpoint;
  verbs::Gid peer;
  uint32_t number;
  Kind kind;
  bool operator==(const PeerKey&) const = default;

  struct Hash {
    size_t operator()(const PeerKey& key) const noexcept {
      return std::hash<verbs::Gid>()(key.peer) ^
             (size_t{key.number} << 2 | static_cast<size_t>(key.kind)) * 0x9e3779b97f4a7c15 ^
             std::hash<const void*>()(key.endpoint);
    }
  };
};

class MuxState {
 public:
  MuxState(const Config& its_config, Clock& its_clock, Wire& its_wire)
      : config(its_config), clock(its_clock), wire(its_wire) {
    transaction_base = config.random() << 32;
  }

  using Fabric = std::unordered_map<verbs::Gid, EndpointState*>;

  [[nodiscard]] EndpointState* owner(std::string_view fabric, const verbs::Gid& gid) const;
  void detach(EndpointState& endpoint);

  void receive(const Packet& packet);
  void advance();
  void end_widowed();
  // The endpoint has a listener more.
  void on_listen(const EndpointState& endpoint, uint64_t service_id);
  // To be called when something was put into `due`.
  void keep_time();

  // Sends in the name of the endpoint, if that still owns path.local.
  void send(EndpointState& endpoint, const Path& path, const wire::Mad& mad);
  // The way back of what arrived.
  static Path way_back(const Packet& packet);

  // Refuses a message without an exchange.
  void reject(EndpointState& endpoint, const Packet& packet, uint32_t local_id, uint32_t remote_id,
              wire::RejectReason reason, wire::Answered answered);

  [[nodiscard]] uint32_t new_id();
  [[nodiscard]] Exchange* by_peer(const PeerKey& key) const {
    const auto it = peers.find(key);
    return it == peers.end() ? nullptr : it->second;
  }

  const Config config;
  Clock& clock;
  Wire& wire;
  uint64_t transaction_base = 0;
  std::map<std::string, Fabric, std::less<>> fabrics;  // those with a GID
  std::vector<std::shared_ptr<EndpointState>> endpoints;
  std::unordered_map<uint32_t, std::shared_ptr<Exchange>> exchanges;  // by our id
  std::unordered_map<PeerKey, Exchange*, PeerKey::Hash> peers;
  DueQueue due;
  uint64_t unowned = 0;
  uint64_t unknown = 0;

 private:
  void on_req(EndpointState& endpoint, const Packet& packet);
  void on_sidr_req(EndpointState& endpoint, const Packet& packet);
  void on_request_again(Exchange& exchange, const Packet& packet);
  // The vdevice of this host that sent it, or null.
  [[nodiscard]] EndpointState* sender_of(const Packet& packet) const {
    return owner(packet.fabric, packet.source);
  }
  // A request without a listener: true if it may have one yet.
  bool wait_for_listener(EndpointState& endpoint, const Packet& packet);
  void look_again(const Packet& packet);
  // False, and counted, if there is no room for one more from `listener`, which `sender` (or null)
  // asks.
  static bool has_room(EndpointState& endpoint, const ListenerState& listener,
                       EndpointState* sender);
  // True if there is raw access, which then has it.
  static bool hand_to_raw(EndpointState& endpoint, const Packet& packet);

  // The exchange of the endpoint with the sender, if that calls it by the right numbers; or null.
  [[nodiscard]] std::shared_ptr<Exchange> find(const EndpointState& endpoint, const Packet& packet,
                                               uint32_t ours, uint32_t theirs) const;
  // False if no exchange is meant.
  bool on_answer(EndpointState& endpoint, wire::CmAttribute attribute, const Packet& packet);
  bool on_mra(EndpointState& endpoint, const Packet& packet);
  bool on_rej(EndpointState& endpoint, const Packet& packet);
  bool on_rep(EndpointState& endpoint, const Packet& packet);
  bool on_rtu(EndpointState& endpoint, const Packet& packet);
  bool on_dreq(EndpointState& endpoint, const Packet& packet);
  bool on_drep(EndpointState& endpoint, const Packet& packet);
  bool on_sidr_rep(EndpointState& endpoint, const Packet& packet);
  bool on_lap(EndpointState& endpoint, const Packet& packet);
  // What is answered although nothing is known of it.
  void on_stray(EndpointState& endpoint, wire::CmAttribute attribute, const Packet& packet);
  void answer_lap(EndpointState& endpoint, const Packet& packet, wire::AprStatus status);
  void answer_dreq(EndpointState& endpoint, const Packet& packet);

  EarlyRequests early_;
  bool last_look_ = false;               // at one of them
  std::optional<base::TimePoint> wake_;  // asked of the clock
};

}  // namespace vrdma::qp1mux
