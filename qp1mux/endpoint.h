// A vdevice's part of the shared queue pair 1: what it owns, what it may do, what it did.
//
// vrdmad attaches one for each vdevice and keeps its GIDs up to date. Nothing leaves in the name of
// a vdevice that it does not own: source GID, node GUID and QPNs are stamped or checked, and what
// is wrong is refused and counted. What arrives finds its endpoint by destination GID in the
// fabric, and a connection only if that is of the same endpoint and the sender is its peer; so what
// a tenant forges reaches nobody else's connections.
//
// Limits. A request (REQ, SIDR_REQ, raw MAD) takes a token of the sender's bucket; without one,
// send_req() says EAGAIN and a raw MAD is dropped and counted. On arrival it takes a token of a
// bucket that the destination has for the sender's tenant alone. Requests that wait for an answer
// on either side, and all connections including those in TIMEWAIT, are bounded likewise.
//
// A request between two vdevices of this host is charged to the one that sent it: what stands of it
// at the destination counts there only once the destination has accepted, and a listener has its
// backlog for each tenant that asks. So a neighbour spends its own budget and nobody else's.
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
#include "qp1mux/packet.h"

namespace vrdma::qp1mux {

struct Limits {
  uint32_t connections = 65536;      // in any state, TIMEWAIT included
  uint32_t pending = 16384;          // of them between REQ and RTU, or in SIDR
  uint32_t early = 2048;             // requests that wait for somebody to listen (early.h)
  uint32_t requests_per_second = 0;  // that are sent, and that each tenant sends here; 0 = any
  uint32_t burst = 1024;             // requests at once, when there is a rate
};

// What of them is in use.
struct Use {
  uint32_t connections = 0;
  uint32_t pending = 0;
  uint32_t half_open = 0;  // requests at peers of this host that have not accepted them
  uint32_t early = 0;
  uint32_t requests = 0;  // of the burst: what was sent and is not yet made up for
};

struct EndpointSetup {
  std::string vdevice;      // for listings
  uint64_t vdevice_id = 0;  // for listings: names need not be unique
  std::string tenant;       // for listings
  std::string fabric;
  uint64_t node_guid = 0;  // host order; no two endpoints have the same
  Limits limits;
  bool raw = false;  // may have raw access to queue pair 1
  // Whether a queue pair of this number is the vdevice's. Called on the Mux's thread for each
  // number that a MAD would name.
  std::function<bool(uint32_t qpn)> owns_qpn;
};

// Since the endpoint was attached. Messages by attribute (index 0 = REQ, in the order of the wire).
struct Counters {
  using ByAttribute = std::array<uint64_t, wire::kCmAttributes>;
  static constexpr size_t kReasons = 36;
  using ByReason = std::array<uint64_t, kReasons>;  // 0: what is no reason of the specification

  ByAttribute sent{};        // repetitions included
  ByAttribute repeated{};    // because no answer came, or to answer a duplicate
  ByAttribute received{};    // duplicates included
  ByAttribute duplicates{};  // already known
  ByReason rejects_sent{};
  ByReason rejects_received{};
  uint64_t refused = 0;     // outgoing: a GID, GUID or QPN that is not the vdevice's
  uint64_t limited = 0;     // outgoing: a limit
  uint64_t overloaded = 0;  // requests dropped on arrival: a limit, or a full backlog
  uint64_t crowded = 0;     // of both: because of the connections that there are
  uint64_t hurried = 0;     // of both: because of their rate
  uint64_t impatient = 0;   // outgoing: refused at once, for too many waited for a listener
  uint64_t strays = 0;      // messages for no connection, or not from its peer
  uint64_t raw_sent = 0;
  uint64_t raw_received = 0;

  [[nodiscard]] static size_t index(wire::CmAttribute attribute) {
    return static_cast<size_t>(attribute) - static_cast<size_t>(wire::CmAttribute::kReq);
  }
};

// Gets the MADs for a vdevice that are for none of its connections and listeners.
class RawHandler {
 public:
  virtual ~RawHandler() = default;
  virtual void on_mad(const Packet& packet) = 0;
};

struct EndpointState;

// Raw queue pair 1 of a vdevice: a VM's own CM, or a program with a QP of type GSI. While it is
// open, requests that find no listener go to it instead of being refused. Move-only.
class RawPort {
 public:
  RawPort() = default;
  RawPort(RawPort&& other) noexcept = default;
  RawPort& operator=(RawPort&& other) noexcept;
  RawPort(const RawPort&) = delete;
  RawPort& operator=(const RawPort&) = delete;
  ~RawPort() { reset(); }
  void reset();

  // Sends it as it is if all it names is the vdevice's: path.local, and of a CM message the CA
  // GUID, the QPN, the primary local GID and the source address. EADDRNOTAVAIL, EPERM, EAGAIN,
  // ENODEV.
  base::Result<void> send(const Path& path, const wire::Mad& mad);

 private:
  friend class Endpoint;
  explicit RawPort(std::shared_ptr<EndpointState> state) : state_(std::move(state)) {}
  std::shared_ptr<EndpointState> state_;
};

// Move-only; the destructor detaches: what stands is ended with one message to each peer, and
// Connections and Listeners of it are dead. Must not outlive the Mux, nor be destroyed inside an
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

  // The GIDs of the vdevice, all of them. gid::Registry sees to it that no two endpoints of a
  // fabric have the same; if they do, EADDRINUSE and nothing is changed. Connections of a GID that
  // went away become silent, as on a network.
  base::Result<void> set_gids(const std::vector<verbs::Gid>& gids);
  void set_limits(const Limits& limits);
  [[nodiscard]] bool owns(const verbs::Gid& gid) const;

  // A connection in kIdle. It counts against the limits once it sends.
  [[nodiscard]] Connection connection(ConnectionHandler* handler);
  // Goes on with a connection of another process: what was not answered is said again. Limits do
  // not count here. EEXIST if its id is in use.
  [[nodiscard]] base::Result<Connection> restore(const ConnectionRecord& record,
                                                 ConnectionHandler* handler);

  // Listens for a service ID at one of the vdevice's GIDs, at all of a family (the wildcards of
  // IPv4 and IPv6) or, with nullopt, at all; those it will have included. Who is more special comes
  // first. EADDRINUSE if there is one alike, EADDRNOTAVAIL if the GID is not the vdevice's.
  // `handler` must outlive it. One that goes on from another process may be at a GID that is absent
  // at the moment.
  enum class Absent : uint8_t { kMayNot, kMay };
  [[nodiscard]] base::Result<Listener> listen(uint64_t service_id, std::optional<verbs::Gid> gid,
                                              uint32_t backlog, ListenHandler* handler,
                                              Absent absent = Absent::kMayNot);

  // EPERM if the vdevice may not, EBUSY if somebody has it. `handler` must outlive it.
  [[nodiscard]] base::Result<RawPort> open_raw(RawHandler* handler);

  [[nodiscard]] const Counters& counters() const;
  [[nodiscard]] Use use() const;

 private:
  friend class Mux;
  explicit Endpoint(std::shared_ptr<EndpointState> state) : state_(std::move(state)) {}
  std::shared_ptr<EndpointState> state_;
};

}  // namespace vrdma::qp1mux
