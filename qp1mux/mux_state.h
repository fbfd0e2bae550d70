// The implementation of Mux, Endpoint and Listener; included only by this room.
//
// mux.cc      selects the endpoint of incoming MADs, sends, runs timers
// requests.cc new exchanges: REQ and SIDR_REQ from a peer
// answers.cc  messages for existing exchanges
// exchange.h  one connection
#pragma once

#include <functional>
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
#include "qp1mux/lookups.h"
#include "qp1mux/mux.h"
#include "qp1mux/proven_hosts.h"
#include "qp1mux/rates.h"

namespace vrdma::qp1mux {

class MuxState;

// In whose name requests are counted: the tenant of `sender`; null: the host at `source`.
[[nodiscard]] std::string requester_name(const EndpointState* sender, const verbs::Gid& source);

struct ListenerState {
  EndpointState* endpoint = nullptr;  // null after it has stopped
  uint64_t service_id = 0;
  std::optional<verbs::Gid> gid;
  uint32_t backlog = 0;
  uint32_t waiting = 0;
  std::map<std::string, uint32_t> waiting_of;  // by the name of requester_name()
  ListenHandler* handler = nullptr;
};

struct EndpointState : std::enable_shared_from_this<EndpointState> {
  MuxState* mux = nullptr;  // null after it was detached
  EndpointSetup setup;
  std::vector<verbs::Gid> gids;
  Counters counters;
  base::TokenBucket outgoing;
  Rates<std::string> tenants;  // of this host: what comes from them
  Rates<verbs::Gid> hosts;     // by host_of()
  ProvenHosts proven;
  uint64_t island = 0;  // see MuxState::is_near()
  uint32_t connections = 0;
  uint32_t pending = 0;
  uint32_t half_open = 0;  // charged here for requests at peers
  uint32_t early = 0;
  uint32_t strangers = 0;  // of those pending, requests of other hosts
  uint32_t unproven = 0;   // of these, of hosts that were not proven when they asked
  uint32_t fruitless = 0;  // requests of other hosts that came to nothing, in TIMEWAIT
  RawHandler* raw = nullptr;
  std::map<std::pair<uint64_t, std::optional<verbs::Gid>>, std::shared_ptr<ListenerState>>
      listeners;

  [[nodiscard]] bool owns(const verbs::Gid& gid) const;
  // The listener at `gid` itself, at its family, or at all; or null.
  [[nodiscard]] std::shared_ptr<ListenerState> listener(uint64_t service_id,
                                                        const verbs::Gid& gid) const;
  // Returns `has_token`, and counts a request that has none.
  [[nodiscard]] bool counted(bool has_token);
  // Takes a token for a request from `sender`; null: from the host at `source`.
  [[nodiscard]] bool take_incoming(const EndpointState* sender, const verbs::Gid& source);
  [[nodiscard]] bool has_room();
  // False if the private data of rdma_cm names an address other than `gid`.
  [[nodiscard]] static bool named_rightly(uint64_t service_id, const uint8_t* private_data,
                                          const verbs::Gid& gid);
  // Count a refusal and return its error.
  base::Result<void> refuse_gid(const verbs::Gid& gid);
  base::Result<void> check_qpn(uint32_t qpn);
  // Whether what the message names, sent from `local`, is the vdevice's.
  base::Result<void> check_names(const verbs::Gid& local, const wire::Mad& mad);
  base::Result<void> take_outgoing();
  [[nodiscard]] base::Result<void> no_room() const;
};

// Identifies a peer's exchange before the peer knows our id: by the peer's id, its queue pair, or
// the request id of a SIDR. Each is unique at an address of a peer.
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
  // Whether memory leads from the endpoint to a vdevice of its fabric that owns the GID: both are
  // of one island.
  [[nodiscard]] bool is_near(const EndpointState& endpoint, const verbs::Gid& gid) const;
  void detach(EndpointState& endpoint);

  void receive(const Packet& packet);
  void advance();
  // Those of which `may_be` says so.
  void drop_half_open(const std::function<bool(const Exchange&)>& may_be);
  // Called when the endpoint has a new listener.
  void on_listen(const EndpointState& endpoint, uint64_t service_id);
  // Must be called after a change of `due`, early_ or `lookups`.
  void keep_time();

  // Sends on behalf of the endpoint, if it still owns path.local.
  void send(EndpointState& endpoint, const Path& path, const wire::Mad& mad);
  // The path back to the sender.
  static Path way_back(const Packet& packet);

  // Rejects a message that has no exchange.
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
  Lookups lookups{[this] { keep_time(); }};
  std::unordered_map<verbs::Gid, uint32_t> patient;  // see Mux::be_patient()
  uint64_t unowned = 0;
  uint64_t spoofed = 0;
  uint64_t unknown = 0;

 private:
  void on_req(EndpointState& endpoint, const Packet& packet);
  void on_sidr_req(EndpointState& endpoint, const Packet& packet);
  void on_request_again(Exchange& exchange, const Packet& packet);
  // The vdevice of this host that sent the packet, or null.
  [[nodiscard]] EndpointState* sender_of(const Packet& packet) const {
    return packet.from_network ? nullptr : owner(packet.fabric, packet.source);
  }
  [[nodiscard]] bool is_half_open(const Exchange& exchange) const;
  // For a request without a listener: true if the request waits for one, or is dropped.
  bool wait_for_listener(EndpointState& endpoint, const Packet& packet);
  void look_again(const Packet& packet);
  // False, and counted, if `listener` has no room for another request from `sender` (null: from the
  // host at `source`).
  static bool has_room(EndpointState& endpoint, const ListenerState& listener,
                       EndpointState* sender, const verbs::Gid& source);
  // True if the vdevice has raw access, which then gets the packet.
  static bool hand_to_raw(EndpointState& endpoint, const Packet& packet);

  // The endpoint's exchange with the sender, if both ids match; or null. A host that names our id
  // has proved that it receives what we send.
  [[nodiscard]] std::shared_ptr<Exchange> find(const EndpointState& endpoint, const Packet& packet,
                                               uint32_t ours, uint32_t theirs) const;
  // False if the message matches no exchange.
  bool on_answer(EndpointState& endpoint, wire::CmAttribute attribute, const Packet& packet);
  bool on_mra(EndpointState& endpoint, const Packet& packet);
  bool on_rej(EndpointState& endpoint, const Packet& packet);
  bool on_rep(EndpointState& endpoint, const Packet& packet);
  bool on_rtu(EndpointState& endpoint, const Packet& packet);
  bool on_dreq(EndpointState& endpoint, const Packet& packet);
  bool on_drep(EndpointState& endpoint, const Packet& packet);
  bool on_sidr_rep(EndpointState& endpoint, const Packet& packet);
  bool on_lap(EndpointState& endpoint, const Packet& packet);
  // Answers a message that matches no exchange, where the specification requires an answer.
  void on_stray(EndpointState& endpoint, wire::CmAttribute attribute, const Packet& packet);
  void answer_lap(EndpointState& endpoint, const Packet& packet, wire::AprStatus status);
  void answer_dreq(EndpointState& endpoint, const Packet& packet);

  EarlyRequests early_;
  bool last_look_ = false;               // an early request is looked at for the last time
  std::optional<base::TimePoint> wake_;  // the pending request to the clock
};

}  // namespace vrdma::qp1mux
