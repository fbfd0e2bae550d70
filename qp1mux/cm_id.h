// An rdma_cm id: what the kernel provides behind /dev/infiniband/rdma_cm, built on Connections.
//
// It maps addresses and ports to the GIDs and service ids of ib_cm, and reports rdma_cm's events.
// The program owns its queue pair: it passes the number and gets the attributes to modify it with.
//
//   kIdle -> bind -> kBound -> listen -> kListening: kConnectRequest brings new ids in kConnecting
//   kIdle, kBound -> resolve_addr [-> kResolving] -> kAddressResolved (kAddrResolved)
//     -> resolve_route -> kRouteResolved (kRouteResolved) -> connect -> kConnecting
//   active:  kConnectResponse -> the program moves its queue pair -> confirm() -> connected
//   passive: accept() -> kEstablished event
//   datagrams: connect() -> kEstablished event with qpn and qkey; accept() answers and is final
//   connected -> disconnect() of either side -> kDisconnected on both; the other side answers by
//     disconnect() or by destroying its id; then kTimewaitExit
//
// Commands in a wrong state fail with EINVAL. A command may call the handler before it returns; a
// handler may destroy the id. Threads: only the Mux's. Sources: rdma_cm(7) and the man pages of its
// calls; IBTA annex A11.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/gid.h"
#include "core/verbs/types.h"
#include "core/wire/rdma_cm.h"
#include "qp1mux/connection.h"
#include "qp1mux/endpoint.h"
#include "qp1mux/lookups.h"
#include "qp1mux/port_table.h"
#include "qp1mux/route.h"

namespace vrdma::qp1mux {

struct Address {
  verbs::Gid gid;  // ::ffff:0.0.0.0 and :: are the wildcards
  uint16_t port = 0;
  bool operator==(const Address&) const = default;
};

// rdma_cm_event_type.
enum class CmEventType : uint8_t {
  kAddrResolved = 0,
  kAddrError = 1,
  kRouteResolved = 2,
  kRouteError = 3,
  kConnectRequest = 4,
  kConnectResponse = 5,
  kConnectError = 6,
  kUnreachable = 7,
  kRejected = 8,
  kEstablished = 9,
  kDisconnected = 10,
  kDeviceRemoval = 11,
  kMulticastJoin = 12,
  kTimewaitExit = 15,
};

// rdma_conn_param and rdma_ud_param.
struct ConnParam {
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t retry_count = 7;
  uint8_t rnr_retry_count = 7;
  bool flow_control = true;
  bool srq = false;
  uint32_t qpn = 0;
  uint32_t qkey = 0;  // datagrams; 0: kDatagramQkey
  PrivateData private_data{};
};

constexpr uint32_t kDatagramQkey = 0x01234567;

class CmId;

struct CmEvent {
  CmEventType type{};
  // A negative errno; for kRejected the reason; for kUnreachable the SIDR status.
  int status = 0;
  ConnParam param;                // valid during the call
  std::unique_ptr<CmId> request;  // kConnectRequest: take it, or it is rejected
  verbs::Gid group;               // kMulticastJoin
  uint32_t token = 0;             // kMulticastJoin: the token that was passed to join()
};

class CmIdHandler {
 public:
  virtual ~CmIdHandler() = default;
  virtual void on_event(CmId& id, CmEvent& event) = 0;
};

enum class CmIdState : uint8_t {
  kIdle,
  kBound,
  kListening,
  kAddressResolved,
  kRouteResolved,
  kConnecting,  // connecting or connected
  kDisconnected,
  kGone,       // its device was removed
  kResolving,  // a network is asked for the route
};

enum class CmService : uint8_t { kRc, kUc, kXrc, kUd };

// Shared by the ids of a host; must outlive them.
struct CmHost {
  PortTable& ports;
  Routes& routes;
};

// rdma_set_option. Set before the id is bound; ack_timeout before it connects or accepts.
struct CmIdOptions {
  bool reuse = false;
  bool family_only = false;
  bool privileged = false;  // may bind a port below 1024
  uint8_t tos = 0;
  static constexpr uint8_t kAnyTimeout = 0xff;
  uint8_t ack_timeout = kAnyTimeout;  // a code; kAnyTimeout: computed from the path
  uint8_t min_rnr_timer = 0;
};

// The state of an id, as ConnectionRecord is the state of a connection.
struct CmIdRecord : CmIdOptions {
  wire::PortSpace space{};
  CmService service{};
  CmIdState state = CmIdState::kIdle;
  uint32_t psn = 0;
  Address local, remote;
  Route route;  // its endpoint pointer is from the process that wrote the record
  uint32_t backlog = 0;
  bool active = false;    // the active side; with XRC it has the initiator, else the target
  bool answered = false;  // a REP was received or sent, so RTR and RTS attributes are known
  // Source of the queue pair attributes, as known to ib_cm so far.
  uint32_t remote_qpn = 0, remote_psn = 0;
  uint8_t responder_resources = 0, initiator_depth = 0, retry_count = 0, rnr_retry_count = 0;
  uint8_t path_mtu = 0, timeout = 0;
  bool is_bound = false;
  PortRequest bound;  // valid if is_bound: its port binding
  ConnectionRecord connection;
};
static_assert(std::is_trivially_copyable_v<CmIdRecord>);

// Destroying an id ends its connection as destroying a Connection does.
class CmId final : ConnectionHandler, ListenHandler {
 public:
  // `psn`: the first packet sequence number of its queue pair (random, 24 bits).
  CmId(CmHost& host, uint64_t netns, wire::PortSpace space, CmService service, uint32_t psn,
       CmIdHandler* handler);
  ~CmId() override;
  CmId(const CmId&) = delete;
  CmId& operator=(const CmId&) = delete;

  // Restores an id of another process from its record(); sends unanswered messages again.
  // `endpoint` is that of its vdevice, or nullptr if it had none or that is gone. If the vdevice,
  // the port or the connection is not available, or the record is damaged (record.h), the id is
  // kGone, without an event. Call go_on() when the handler may be called.
  [[nodiscard]] static std::unique_ptr<CmId> restore(CmHost& host, uint64_t netns,
                                                     const CmIdRecord& record, Endpoint* endpoint,
                                                     CmIdHandler* handler);
  [[nodiscard]] CmIdRecord record() const;
  // A restored id that waited for a network asks it again.
  void go_on();
  // Of its connection: another process may continue it.
  void hold() { connection_.hold(); }
  void release() { connection_.release(); }
  void leave(bool beyond_host) { connection_.leave(beyond_host); }
  [[nodiscard]] uint32_t connection_id() const { return connection_.local_id(); }  // 0: none

  [[nodiscard]] CmIdOptions& options() { return kept_; }
  [[nodiscard]] const CmIdOptions& options() const { return kept_; }
  void set_handler(CmIdHandler* handler) { handler_ = handler; }

  base::Result<void> bind(const Address& local);
  // Ignores `local` if the id is already bound. kAddrError also reports ETIMEDOUT, after `timeout`.
  static constexpr base::Duration kPatience = std::chrono::seconds(2);
  base::Result<void> resolve_addr(const std::optional<Address>& local, const Address& remote,
                                  base::Duration timeout = kPatience);
  base::Result<void> resolve_route();
  base::Result<void> listen(uint32_t backlog);
  // A vdevice came into the namespace: a listener at a wildcard listens there too.
  void device_added(Endpoint& endpoint);
  // The vdevice goes away: emits kDeviceRemoval if this id was bound to it.
  void device_removed(const Endpoint& endpoint);

  base::Result<void> connect(const ConnParam& param);
  base::Result<void> accept(const ConnParam& param);
  base::Result<void> confirm();  // after kConnectResponse
  base::Result<void> reject(PrivateData data, wire::RejectReason reason);
  base::Result<void> disconnect();
  // For datagram ids that are bound to a vdevice and not connected. kMulticastJoin reports the
  // address to send to and the group to attach to. EINVAL if `group` is not multicast.
  base::Result<void> join(const verbs::Gid& group, uint32_t token);
  // Data arrived before the peer's confirmation (IBV_EVENT_COMM_EST): emits kEstablished.
  base::Result<void> establish();

  // Sets the attributes with which to modify the queue pair to `state` (kInit, kRtr, kRts) and
  // returns their mask. The caller must find the sgid_index from local().
  base::Result<uint32_t> qp_attributes(verbs::QpState state, verbs::QpAttributes* attributes) const;

  [[nodiscard]] CmIdState state() const { return kept_.state; }
  [[nodiscard]] CmService service() const { return kept_.service; }
  [[nodiscard]] const Address& local() const { return kept_.local; }
  [[nodiscard]] const Address& remote() const { return kept_.remote; }
  [[nodiscard]] Endpoint* endpoint() const { return kept_.route.endpoint; }
  [[nodiscard]] const Route& route() const { return kept_.route; }
  // ibv_mtu; 0: not known yet.
  [[nodiscard]] uint8_t path_mtu() const { return kept_.path_mtu; }

 private:
  void on_event(const Event& event) override;
  void on_request(Connection connection, const Req& req) override;
  void on_sidr_request(Connection connection, const SidrReq& req) override;

  [[nodiscard]] base::Result<void> in(std::initializer_list<CmIdState> states) const;
  [[nodiscard]] uint64_t service_id(uint16_t port) const {
    return wire::service_id(kept_.space, port);
  }
  [[nodiscard]] Path path() const;
  [[nodiscard]] std::vector<uint8_t> with_header(PrivateData data) const;
  [[nodiscard]] bool take_again(const CmIdRecord& record, Endpoint* endpoint);
  base::Result<void> begin_to_listen(Endpoint::Absent absent = Endpoint::Absent::kMayNot);
  base::Result<void> listen_on(Endpoint& endpoint,
                               Endpoint::Absent absent = Endpoint::Absent::kMayNot);
  // The program's ACK timeout if it set one, else `fitting`.
  [[nodiscard]] uint8_t chosen_timeout(uint8_t fitting) const {
    return kept_.ack_timeout != CmIdOptions::kAnyTimeout ? kept_.ack_timeout : fitting;
  }
  base::Result<void> use(const Route& route);
  void resolve(base::Duration timeout);
  void on_route(base::Result<Route> route);
  base::Result<void> pay_for_request();
  void refuse(Connection& connection) const;
  std::unique_ptr<CmId> child(Connection connection, const Path& path, PrivateData header);
  void bring(std::unique_ptr<CmId> id, const ConnParam& param);
  void tell(CmEventType type, int status = 0, const ConnParam& param = {});

  CmHost& host_;
  const uint64_t netns_;
  CmIdHandler* handler_;
  CmIdRecord kept_;  // except `bound` and `connection`, which are derived from:
  PortTable::Binding binding_;
  Connection connection_;
  std::shared_ptr<void> charge_;  // of the endpoint, if there is one and the peer is not charged
  std::vector<std::pair<Endpoint*, Listener>> listeners_;
  Route incomplete_;  // in kResolving
  Lookup lookup_;     // in kResolving, except before go_on()
};

}  // namespace vrdma::qp1mux
