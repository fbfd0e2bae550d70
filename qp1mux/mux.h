// One queue pair 1 for all vdevices of a host: the GSI as each of them believes to have it.
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
// A connection between two vdevices of this host goes as encoded MADs through the same code as one
// over a network; only the Wire differs.
//
// Outgoing: what a vdevice sends is built here and stamped with what it owns. Incoming: the
// destination GID in its fabric names the endpoint; a GID that nobody owns is answered by silence.
// REQ and SIDR_REQ then look for a duplicate, for a connection that the peer must have forgotten
// (stale), and for a listener; all else is found by communication id. These are random, unique on
// the host, and free again only after TIMEWAIT.
//
// Requests for a service that nobody listens for wait a moment (Config::patience). What else
// cannot be matched is answered statelessly, as the specification has it: REQ without a
// listener REJ kInvalidServiceId, REP for an unknown id REJ kInvalidCommId, DREQ for one DREP, LAP
// APR (kUnsupported or kInvalidCommId), SIDR_REQ without a listener SIDR_REP kUnsupported.
//
// The Mux keeps no thread, no socket and no clock. All of it belongs to one thread. It allocates
// when a connection or a listener begins, not for a MAD.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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

// The time, and somebody who calls back; vrdmad makes one of its EventLoop.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual base::TimePoint now() const = 0;
  // Mux::advance() is to be called at `when`, or soon after; a later call replaces an earlier one.
  // Never called back from inside this call.
  virtual void wake_at(base::TimePoint when) = 0;
};

struct Config {
  // Where communication ids and the first transaction id come from: nobody can predict them, and a
  // restarted daemon does not repeat those that its peers remember.
  std::function<uint64_t()> random = base::random64;
  base::Duration fast_resend = std::chrono::milliseconds(40);
  // How long a request waits for somebody to listen, before it is refused. A program that has just
  // told another where to find it is about to listen there; on a network it would have the time.
  base::Duration patience{};
  uint8_t max_service_timeout = 24;  // a code: an MRA cannot ask for more (69 s)
};

// One line of `vrdmactl conn list`.
struct ConnectionInfo {
  std::string vdevice;
  uint64_t vdevice_id = 0;
  std::string tenant;
  std::string fabric;
  State state{};
  bool active = false;    // this side asked
  bool datagram = false;  // SIDR
  wire::CmTransport transport = wire::CmTransport::kRc;
  verbs::Gid local;
  verbs::Gid remote;
  uint64_t service_id = 0;
  uint16_t source_port = 0;  // of the asker, if rdma_cm said; else 0
  uint32_t local_qpn = 0;
  uint32_t remote_qpn = 0;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  base::Duration age{};  // since it began
};

// One line of what listens.
struct ListenerInfo {
  std::string vdevice;
  uint64_t vdevice_id = 0;
  std::string tenant;
  std::string fabric;
  uint64_t service_id = 0;
  std::optional<verbs::Gid> gid;
  uint32_t waiting = 0;  // requests without an answer
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

  // A MAD from a network, from this host's memory, from a VM. Anything may stand in it. Must not be
  // called from inside an event or a command; see Loopback.
  void receive(const Packet& packet);

  // Does what is due.
  void advance();

  // All connections that another process had are restored, and all peers are of this host: one that
  // is not among them has gone. Who is connected with it learns so as from a DREQ of that peer.
  void end_widowed();

  // Whether a vdevice of this host owns the GID.
  [[nodiscard]] bool owns(std::string_view fabric, const verbs::Gid& gid) const;

  [[nodiscard]] std::vector<ConnectionInfo> connections() const;
  [[nodiscard]] std::vector<ListenerInfo> listeners() const;

  // MADs for a GID or fabric of nobody, and those that are of no class we know and wanted by
  // nobody.
  [[nodiscard]] uint64_t unowned() const;
  [[nodiscard]] uint64_t unknown() const;

 private:
  std::unique_ptr<MuxState> state_;
};

}  // namespace vrdma::qp1mux
