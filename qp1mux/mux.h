// One queue pair 1 for all vdevices of a host; each vdevice sees a GSI of its own.
//
//        commands, events              commands, events
//   Connection, Listener (red0)    Connection, Listener (blue0)      connection.h
//             |                              |
//         Endpoint red0                  Endpoint blue0              endpoint.h: owns, limits,
//         counts
//              \____________ Mux ____________/                       ids, routes, timers
//                             |  Wire::send()      ^ Mux::receive()
//                    Loopback (this host)          |                 loopback.h
//                             \ ... network, physical QP1, VMs       packet.h
//
// A connection between two vdevices of this host uses encoded MADs and the same code as one over a
// network; only the Wire differs.
//
// Outgoing: the Mux builds a vdevice's messages and stamps them with what it owns. Incoming: the
// destination GID in its fabric selects the endpoint; MADs for an unowned GID are dropped. A REQ or
// SIDR_REQ is then checked for a duplicate, for a connection that the peer must have lost (stale),
// and for a listener. All other messages are matched by communication id. Ids are random, unique on
// the host, and reused only after TIMEWAIT.
//
// Requests for a service without a listener wait for Config::patience. Other messages that match
// nothing are answered statelessly, as the specification says: REQ without a listener: REJ
// kInvalidServiceId; REP for an unknown id: REJ kInvalidCommId; DREQ for one: DREP; LAP: APR
// (kUnsupported or kInvalidCommId); SIDR_REQ without a listener: SIDR_REP kUnsupported.
//
// The Mux uses no thread, no socket and no clock. Single-threaded, with all its objects. It
// allocates when a connection or a listener starts, not for each MAD.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/base/random.h"
#include "core/verbs/gid.h"
#include "qp1mux/connection.h"
#include "qp1mux/endpoint.h"
#include "qp1mux/packet.h"

namespace vrdma::qp1mux {

// The time, and a timer; vrdmad implements it with its EventLoop.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual base::TimePoint now() const = 0;
  // Requests a call of Mux::advance() at `when` or soon after; replaces an earlier request. Never
  // calls back from inside this call.
  virtual void wake_at(base::TimePoint when) = 0;
};

struct Config {
  // Source of communication ids and of the first transaction id: unpredictable, and different after
  // a restart from those that peers remember.
  std::function<uint64_t()> random = base::random64;
  base::Duration fast_resend = std::chrono::milliseconds(40);
  // How long a request without a listener waits before it is refused. A program that has just
  // announced its address may not listen yet; a network's latency would give it that time.
  base::Duration patience{};
  uint8_t max_service_timeout = 24;  // a code: limit on an MRA's request (69 s)
};

// One line of `vrdmactl conn list`.
struct ConnectionInfo {
  std::string vdevice;
  uint64_t vdevice_id = 0;
  std::string tenant;
  std::string fabric;
  State state{};
  bool active = false;    // the active side
  bool datagram = false;  // SIDR
  wire::CmTransport transport = wire::CmTransport::kRc;
  verbs::Gid local;
  verbs::Gid remote;
  uint64_t service_id = 0;
  uint16_t source_port = 0;  // of the active side, if rdma_cm named it; else 0
  uint32_t local_qpn = 0;
  uint32_t remote_qpn = 0;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  base::Duration age{};  // since its start
};

// One line of the list of listeners.
struct ListenerInfo {
  std::string vdevice;
  uint64_t vdevice_id = 0;
  std::string tenant;
  std::string fabric;
  uint64_t service_id = 0;
  std::optional<verbs::Gid> gid;
  uint32_t waiting = 0;  // unanswered requests
  uint32_t backlog = 0;
};

class MuxState;

class Mux {
 public:
  // `clock` and `wire` must outlive it; endpoints must not.
  Mux(const Config& config, Clock& clock, Wire& wire);
  ~Mux();
  Mux(const Mux&) = delete;
  Mux& operator=(const Mux&) = delete;

  // An endpoint without GIDs. EINVAL without owns_qpn.
  [[nodiscard]] base::Result<Endpoint> attach(EndpointSetup setup);

  // Handles a MAD from a network, from this host's memory, or from a VM. Its content is untrusted.
  // Must not be called from inside an event or a command; see Loopback.
  void receive(const Packet& packet);

  // Handles all expired timers.
  void advance();

  // Call after all connections of another process are restored. Connections between vdevices of
  // this host of which one end is missing end as if it had sent a DREQ. Those to other hosts
  // remain.
  void drop_half_open();

  // The same for those of `among`, by our ids, which were restored from a process that still runs.
  // `awaited`: ids of connections that are still to come.
  void drop_half_open(const std::set<uint32_t>& among, const std::set<uint32_t>& awaited);

  // A connection of this host has that id.
  [[nodiscard]] bool has_connection(uint32_t local_id) const;

  // Until the result is destroyed, a message to one of these GIDs that matches nothing is dropped
  // instead of refused, so that its sender repeats it: what it means is about to be restored.
  [[nodiscard]] std::shared_ptr<void> be_patient(const std::vector<verbs::Gid>& gids);

  // Whether vdevices of this host own both GIDs, and are of one island: memory leads from one to
  // the other.
  [[nodiscard]] bool are_near(std::string_view fabric, const verbs::Gid& one,
                              const verbs::Gid& other) const;

  [[nodiscard]] std::vector<ConnectionInfo> connections() const;
  [[nodiscard]] std::vector<ListenerInfo> listeners() const;

  // MADs for a GID or fabric without an owner; and MADs of an unknown class that no raw port
  // receives.
  [[nodiscard]] uint64_t unowned() const;
  // Dropped because they came by the network in the name of a vdevice of this host.
  [[nodiscard]] uint64_t spoofed() const;
  [[nodiscard]] uint64_t unknown() const;

 private:
  std::shared_ptr<MuxState> state_;
};

}  // namespace vrdma::qp1mux
