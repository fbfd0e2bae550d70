// A vdevice's part of the shared queue pair 1: what it owns, its limits, its counters.
//
// vrdmad attaches one for each vdevice and keeps its GIDs up to date. A vdevice cannot send with an
// identity that it does not own: the source GID, node GUID and QPNs are set or checked, and
// violations are refused and counted. The destination GID in the fabric selects the endpoint of an
// incoming MAD. Only the peer of a connection of this endpoint can reach that connection.
//
// Limits. A request (REQ, SIDR_REQ, raw MAD) takes a token from the sender's bucket; without one,
// send_req() fails with EAGAIN, and a raw MAD is dropped and counted. On arrival it takes a token
// from the destination's bucket for the sender's tenant. The number of requests that wait for an
// answer on either side, and of all connections including those in TIMEWAIT, is limited too. Of
// either number, requests of other hosts have half at most, with those that came to nothing, whose
// TIMEWAIT is 0.54 s at most. A vdevice of this host to which no memory leads counts as another
// host, because what comes in its name comes by the network.
//
// A request between two vdevices of this host is charged to its sender. The destination is charged
// only once it has accepted, and a listener has a separate backlog for each requesting tenant. So a
// neighbour uses up its own budget only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/gid.h"
#include "core/wire/cm.h"
#include "core/wire/mad.h"
#include "qp1mux/connection.h"
#include "qp1mux/lookups.h"
#include "qp1mux/packet.h"

namespace vrdma::qp1mux {

struct Limits {
  uint32_t connections = 65536;      // in any state, including TIMEWAIT
  uint32_t pending = 16384;          // of these, between REQ and RTU, or in SIDR
  uint32_t unproven = 4096;          // of these, requests of hosts that have not proven themselves
  uint32_t early = 2048;             // requests that wait for a listener (early.h)
  uint32_t requests_per_second = 0;  // sent, and received from each tenant; 0: unlimited
  uint32_t burst = 1024;             // requests at once, if the rate is limited
};

// How much of the limits is in use.
struct Use {
  uint32_t connections = 0;
  uint32_t pending = 0;
  uint32_t half_open = 0;  // requests at peers of this host that have not accepted yet
  uint32_t early = 0;
  uint32_t requests = 0;  // of the burst: sent and not replenished yet
};

struct EndpointSetup {
  std::string vdevice;      // for listings
  uint64_t vdevice_id = 0;  // for listings: names need not be unique
  std::string tenant;       // for listings
  std::string fabric;
  uint64_t node_guid = 0;  // host order; no two endpoints have the same
  Limits limits;
  bool raw = false;  // may access queue pair 1 directly
  // Whether the vdevice has a queue pair of this number. Called on the Mux's thread for each number
  // that a MAD would carry.
  std::function<bool(uint32_t qpn)> owns_qpn;
};

// Since the endpoint was attached. Messages by attribute (index 0 = REQ, in the order of the wire).
struct Counters {
  using ByAttribute = std::array<uint64_t, wire::kCmAttributes>;
  static constexpr size_t kReasons = 36;
  using ByReason = std::array<uint64_t, kReasons>;  // 0: a reason outside the specification

  ByAttribute sent{};        // including repetitions
  ByAttribute repeated{};    // because no answer came, or to answer a duplicate
  ByAttribute received{};    // including duplicates
  ByAttribute duplicates{};  // already known
  ByReason rejects_sent{};
  ByReason rejects_received{};
  uint64_t refused = 0;     // outgoing: a GID, GUID or QPN of another vdevice
  uint64_t limited = 0;     // outgoing: beyond a limit
  uint64_t overloaded = 0;  // requests dropped on arrival: beyond a limit, or a full backlog
  uint64_t crowded = 0;     // of both: because of the number of connections
  uint64_t over_rate = 0;   // of both: because of the rate
  uint64_t impatient = 0;   // outgoing: refused early, because too many waited for a listener
  uint64_t strays = 0;      // messages for no connection, or not from its peer
  uint64_t raw_sent = 0;
  uint64_t raw_received = 0;

  [[nodiscard]] static size_t index(wire::CmAttribute attribute) {
    return static_cast<size_t>(attribute) - static_cast<size_t>(wire::CmAttribute::kReq);
  }
};

// Receives the MADs for a vdevice that match none of its connections and listeners.
class RawHandler {
 public:
  virtual ~RawHandler() = default;
  virtual void on_mad(const Packet& packet) = 0;
};

struct EndpointState;

// Raw access to a vdevice's queue pair 1, for a VM's own CM or a program with a QP of type GSI.
// While open, it receives requests without a listener, which are otherwise refused. Move-only.
class RawPort {
 public:
  RawPort() = default;
  RawPort(RawPort&& other) noexcept = default;
  RawPort& operator=(RawPort&& other) noexcept;
  RawPort(const RawPort&) = delete;
  RawPort& operator=(const RawPort&) = delete;
  ~RawPort() { reset(); }
  void reset();

  // Sends the MAD unchanged if everything it names belongs to the vdevice: path.local, and in a CM
  // message the CA GUID, the QPN, the primary local GID and the source address. EADDRNOTAVAIL,
  // EPERM, EAGAIN, ENODEV.
  base::Result<void> send(const Path& path, const wire::Mad& mad);

 private:
  friend class Endpoint;
  explicit RawPort(std::shared_ptr<EndpointState> state) : state_(std::move(state)) {}
  std::shared_ptr<EndpointState> state_;
};

// Move-only; the destructor detaches: it ends existing connections with one message to each peer
// and invalidates Connections and Listeners. Must not outlive the Mux, nor be destroyed inside an
// event of its own connections.
class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(Endpoint&& other) noexcept = default;
  Endpoint& operator=(Endpoint&& other) noexcept;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint() { reset(); }
  void reset();

  // Sets all GIDs of the vdevice. gid::Registry ensures that they are unique in a fabric; a
  // duplicate is EADDRINUSE and changes nothing. Connections of a removed GID fall silent, as on a
  // network.
  base::Result<void> set_gids(const std::vector<verbs::Gid>& gids);
  void set_limits(const Limits& limits);
  // Its MADs go by the network to the vdevices of other islands of its fabric. 0 at first.
  void set_island(uint64_t island);
  [[nodiscard]] bool owns(const verbs::Gid& gid) const;

  // Creates a connection in kIdle. It counts against the limits once it sends.
  [[nodiscard]] Connection connection(ConnectionHandler* handler);
  // Makes the record of a connection from elsewhere one of this vdevice: its unanswered message
  // must name what the vdevice owns, as RawPort::send() has it.
  [[nodiscard]] base::Result<void> claim(ConnectionRecord* record) const;
  // Continues a connection of another process and sends unanswered messages again. Ignores the
  // limits. EEXIST if its id is in use.
  [[nodiscard]] base::Result<Connection> restore(const ConnectionRecord& record,
                                                 ConnectionHandler* handler);

  // Listens for a service ID at one of the vdevice's GIDs, at all of a family (the wildcards of
  // IPv4 and IPv6) or, with nullopt, at all; future GIDs included. The most specific listener takes
  // precedence. EADDRINUSE if there is an equal one, EADDRNOTAVAIL if the GID is not the vdevice's.
  // `handler` must outlive it. One restored from another process may be at an absent GID (kMay).
  enum class Absent : uint8_t { kMayNot, kMay };
  [[nodiscard]] base::Result<Listener> listen(uint64_t service_id, std::optional<verbs::Gid> gid,
                                              uint32_t backlog, ListenHandler* handler,
                                              Absent absent = Absent::kMayNot);

  // One of the lookups of the vdevice's tenant (lookups.h).
  [[nodiscard]] Lookup look_up(base::Duration timeout, Lookups::Begin begin,
                               Lookups::Answer answer);

  // EPERM without the permission, EBUSY if it is already open. `handler` must outlive it.
  [[nodiscard]] base::Result<RawPort> open_raw(RawHandler* handler);

  [[nodiscard]] const Counters& counters() const;
  [[nodiscard]] Use use() const;

 private:
  friend class Mux;
  explicit Endpoint(std::shared_ptr<EndpointState> state) : state_(std::move(state)) {}
  std::shared_ptr<EndpointState> state_;
};

}  // namespace vrdma::qp1mux
