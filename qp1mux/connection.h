// One connection, or one service ID resolution, from one side: commands in, events out.
//
// It provides what the kernel's ib_cm provides: the states and messages of IBTA 12.9. The layer
// above (rdma_cm) handles addresses, ports, and the queue pair's transitions.
//
// The active side creates a Connection with Endpoint::connection(); the passive side gets one from
// its Listener. Each serves a single connection and cannot be used again.
//
//   active                                        passive
//   kIdle                                         (Listener)
//     send_req        -> kReqSent      -- REQ ->  kReqReceived    on_request()
//                             [<- MRA --    send_mra: prolongs the active side's wait]
//     kRepReceived    <- kReqSent      <- REP --    send_rep      -> kRepSent
//     send_rtu        -> kEstablished  -- RTU ->    kRtuReceived  -> kEstablished
//
//   either side                                   the other
//     send_dreq       -> kDreqSent     -- DREQ -> kDreqReceived   (event kDreqReceived)
//     kDrepReceived   -> kTimewait     <- DREP --   send_drep     -> kTimewait
//     kTimewaitExit   -> kClosed                    kTimewaitExit -> kClosed
//
//   resolution of a service ID (SIDR, for datagrams)
//     send_sidr_req   -> kSidrReqSent  -- SIDR_REQ -> kSidrReqReceived  on_sidr_request()
//     kSidrRepReceived-> kClosed       <- SIDR_REP --   send_sidr_rep   -> kTimewait
//
// | event            | comes in states              | meaning                       | state after |
// |------------------|------------------------------|-------------------------------|-------------|
// | kReqError        | kReqSent                     | no final answer in time       | kTimewait   |
// | kMraReceived     | kReqSent, kRepSent           | the peer needs service_timeout| same        |
// | kRepReceived     | kReqSent                     | rep                           | kRepReceived|
// | kRtuReceived     | kRepSent                     | the connection is established | kEstablished|
// | kRepError        | kRepSent                     | no RTU came                   | kTimewait   |
// | kRejReceived     | kReqSent .. kDreqSent        | rejected: reason, ari         | kTimewait   |
// | kDreqReceived    | kRepReceived .. kEstablished | the peer disconnects          |kDreqReceived|
// | kDrepReceived    | kDreqSent                    | the peer agrees, or its DREQ  | kTimewait   |
// |                  |                              | crossed ours                  |             |
// | kDreqError       | kDreqSent                    | the peer does not answer      | kTimewait   |
// | kTimewaitExit    | kTimewait                    | nothing is in flight any more;| kClosed     |
// |                  |                              | only if it was established    |             |
// | kSidrReqError    | kSidrReqSent                 | no answer                     | kClosed     |
// | kSidrRepReceived | kSidrReqSent                 | sidr                          | kClosed     |
//
// Destroying a Connection ends it with the message for its state, without waiting. kReqSent: REJ
// kTimeout; kReqReceived, kRepReceived, kRepSent: REJ kConsumer; kEstablished: DREQ, repeated as
// needed; kDreqReceived: DREP; kSidrReqReceived: SIDR_REP kReject. The Mux keeps the state for
// TIMEWAIT.
//
// Repetition. An unanswered REQ, REP, DREQ or SIDR_REQ is sent again after 40 ms
// (Config::fast_resend), then after twice that, and so on up to the interval of the specification
// (response timeout plus twice the packet life time); after max_cm_retries + 1 of these it fails.
// So a lost REQ costs little, and a slow peer sees few duplicates, which it must tolerate anyway.
// To another host, a REP is repeated at most kMostUnasked times, and not after 30 s: that host may
// know nothing of the REQ that came in its name. To a host that has not named a communication id of
// the vdevice in the last ten minutes, a REP is repeated once, and the wait ends without a REJ
// after twice the response time of the REQ, which is 2 s at least and 10 s at most.
//
// The Mux answers duplicates, late and stale messages without an event. When a REQ or REP shows
// that the peer has lost an established connection, the Mux sends a DREQ for that connection, which
// enters kDreqSent and ends with kDrepReceived or kDreqError.
//
// Threads: only the Mux's. Errors of commands: EINVAL (wrong state, or a value out of range:
// private data that is too long, a QPN of more than 24 bits), EADDRNOTAVAIL (the local GID does not
// belong to the vdevice, or the private data contains another address), EPERM (the QPN does not
// belong to the vdevice), EAGAIN (a limit of the vdevice, see endpoint.h), ENODEV (the vdevice is
// gone). A command that fails has no effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/verbs/gid.h"
#include "core/wire/cm.h"
#include "core/wire/mad.h"
#include "qp1mux/packet.h"

namespace vrdma::qp1mux {

using PrivateData = std::span<const uint8_t>;

enum class State : uint8_t {
  kIdle,
  kReqSent,
  kReqReceived,
  kRepReceived,
  kRepSent,
  kEstablished,
  kDreqSent,
  kDreqReceived,
  kTimewait,
  kSidrReqSent,
  kSidrReqReceived,
  kClosed,
};
[[nodiscard]] const char* state_text(State state);  // "REQ_SENT"
// Its message is sent again until it is answered.
[[nodiscard]] constexpr bool is_repeated(State state) {
  return state == State::kReqSent || state == State::kRepSent || state == State::kDreqSent ||
         state == State::kSidrReqSent;
}

// The path between two queue pairs 1, which is also that of the connection.
struct Path {
  verbs::Gid local;
  verbs::Gid remote;
  RoceVersion roce = RoceVersion::kV2;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint8_t sl = 0;
  uint32_t flow_label = 0;
};

// Times are codes of 5 bits: 4.096 us * 2^code.
[[nodiscard]] base::Duration time_of(uint8_t code);

// The content of a REQ. To send: from this side's point of view. In on_request(): converted to this
// side's view, so that path.local is local, responder_resources is what our queue pair may have to
// serve, and initiator_depth what it may issue.
struct Req {
  Path path;
  uint64_t service_id = 0;
  uint64_t ca_guid = 0;  // of the active side; set when sent
  // kRc, kUc, or kExtended, which is XRC: the active side has the initiator, the other the target.
  wire::CmTransport transport = wire::CmTransport::kRc;
  uint32_t qpn = 0;           // of the active side
  uint32_t starting_psn = 0;  // the first PSN of the passive side's sends: the active side's rq_psn
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t path_mtu = 3;  // ibv_mtu
  uint8_t retry_count = 7;
  uint8_t rnr_retry_count = 7;
  uint8_t ack_timeout = 17;        // a code; TIMEWAIT lasts as long
  uint8_t packet_life = 16;        // a code; not on the wire
  uint8_t remote_cm_timeout = 20;  // a code: how long the passive side may take to answer
  uint8_t local_cm_timeout = 20;   // a code: how long the active side may take
  uint8_t max_cm_retries = 15;
  bool srq = false;
  bool flow_control = true;
  PrivateData
      private_data;  // at most 92 bytes when sent (rdma_cm: an IpHeader and 56), always 92 received
};

struct Rep {
  uint64_t ca_guid = 0;  // set when sent
  uint32_t qpn = 0;
  uint32_t starting_psn = 0;
  uint8_t responder_resources = 0;  // converted when received, as in Req
  uint8_t initiator_depth = 0;
  uint8_t target_ack_delay = 15;
  uint8_t failover = 1;  // 1: no alternate path
  uint8_t rnr_retry_count = 7;
  bool srq = false;
  bool flow_control = true;
  PrivateData private_data{};  // 196
};

struct Rej {
  wire::RejectReason reason = wire::RejectReason::kConsumer;
  wire::Answered answered = wire::Answered::kReq;  // set when sent
  std::span<const uint8_t> ari{};                  // 72
  PrivateData private_data{};                      // 148
};

struct SidrReq {
  Path path;
  uint64_t service_id = 0;
  uint8_t timeout = 20;  // a code; not on the wire
  uint8_t max_cm_retries = 15;
  PrivateData private_data{};  // 216 (rdma_cm: an IpHeader and 180)
};

struct SidrRep {
  wire::SidrStatus status = wire::SidrStatus::kValid;
  uint32_t qpn = 0;
  uint32_t qkey = 0;
  std::span<const uint8_t> info{};  // 72
  PrivateData private_data{};       // 136
};

// The state of a connection, for the Mux of another process to continue it (Endpoint::restore).
// Plain bytes, understood only by a program with the same definition.
struct ConnectionRecord {
  State state = State::kClosed;  // kClosed: there is no connection
  bool active = true;
  bool datagram = false;
  bool stood = false;  // was established, perhaps only on the peer's side
  uint8_t max_retries = 0;
  bool remote = false;  // the peer was on another host when it began
  uint16_t source_port = 0;
  uint32_t local_id = 0, remote_id = 0;
  uint32_t local_qpn = 0, remote_qpn = 0;
  wire::CmTransport transport = wire::CmTransport::kRc;
  uint64_t service_id = 0;
  Path path;
  uint64_t transaction = 0;       // of REQ or SIDR_REQ
  uint64_t dreq_transaction = 0;  // of the peer's DREQ
  base::TimePoint begun{};
  base::Duration response{};  // time to wait for an answer
  base::Duration timewait{};
  wire::Mad sent{};  // our last message, for repetitions; attribute 0: none
};
static_assert(std::is_trivially_copyable_v<ConnectionRecord>);
// A process that does not know `remote` leaves it 0: all its peers are on this host.
static_assert(offsetof(ConnectionRecord, remote) == 5 && offsetof(ConnectionRecord, local_id) == 8);

enum class EventKind : uint8_t {
  kReqError,
  kMraReceived,
  kRepReceived,
  kRtuReceived,
  kRepError,
  kRejReceived,
  kDreqReceived,
  kDrepReceived,
  kDreqError,
  kTimewaitExit,
  kSidrReqError,
  kSidrRepReceived,
};

// Valid during the call. Private data has the full length of its message field, because the message
// does not say how much of it the sender used.
struct Event {
  EventKind kind{};
  const Rep* rep = nullptr;          // kRepReceived
  const Rej* rej = nullptr;          // kRejReceived
  const SidrRep* sidr = nullptr;     // kSidrRepReceived
  base::Duration service_timeout{};  // kMraReceived
  PrivateData private_data{};        // of MRA, RTU, DREQ and DREP
};

class Connection;

class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;
  // May call any command of any connection, and may destroy this one and the handler itself.
  virtual void on_event(const Event& event) = 0;
};

struct Exchange;

// Move-only; the destructor ends it as described above. A default-constructed or moved-from
// Connection, or one whose Endpoint is gone, fails every command with ENODEV and gets no events.
class Connection {
 public:
  Connection() = default;
  Connection(Connection&& other) noexcept = default;
  Connection& operator=(Connection&& other) noexcept;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { reset(); }
  void reset();

  // Directs events to another handler (rdma_migrate_id), which must outlive the Connection or be
  // replaced. A connection from a Listener has none and loses its events, so set one inside
  // on_request().
  void set_handler(ConnectionHandler* handler);

  base::Result<void> send_req(const Req& req);
  base::Result<void> send_mra(uint8_t service_timeout, PrivateData data = {});  // a code; 222
  base::Result<void> send_rep(const Rep& rep);
  base::Result<void> send_rtu(PrivateData data = {});  // 224
  // In kReqReceived, kRepReceived, kRepSent, and in kReqSent, where it cancels the request.
  base::Result<void> send_rej(const Rej& rej);
  base::Result<void> send_dreq(PrivateData data = {});  // 220; in kRepSent and kEstablished
  base::Result<void> send_drep(PrivateData data = {});  // 224; in kDreqReceived
  // Data arrived before the RTU (IBV_EVENT_COMM_EST): kRepSent -> kEstablished without an event.
  base::Result<void> establish();
  base::Result<void> send_sidr_req(const SidrReq& req);
  base::Result<void> send_sidr_rep(const SidrRep& rep);

  [[nodiscard]] State state() const;         // kClosed if there is none
  [[nodiscard]] uint32_t local_id() const;   // unique on the host; 0 if there is none
  [[nodiscard]] uint32_t remote_id() const;  // 0 until known
  [[nodiscard]] Path path() const;
  // The peer is a vdevice of this host, which is charged for this side until this side accepts.
  [[nodiscard]] bool asker_pays() const;
  [[nodiscard]] ConnectionRecord record() const;
  // Another process may continue it from its record(): it sends nothing unasked and does not give
  // up, but notices and answers what comes. release() ends that, and sends unanswered messages
  // again.
  void hold();
  void release();
  // Ends it without a message: another process continues it. `beyond_host`: only if its peer is on
  // another host; else it ends as usual.
  void leave(bool beyond_host);

 private:
  friend struct Exchange;
  explicit Connection(std::shared_ptr<Exchange> exchange);
  std::shared_ptr<Exchange> exchange_;
};

class ListenHandler {
 public:
  virtual ~ListenHandler() = default;
  // A REQ for the service. `connection` is in kReqReceived: keep it, set its handler, and answer
  // now or later. Destroying it rejects the request with kConsumer.
  virtual void on_request(Connection connection, const Req& req) = 0;
  // A SIDR_REQ for the service. Destroying `connection` answers with kReject.
  virtual void on_sidr_request(Connection connection, const SidrReq& req) = 0;
};

struct ListenerState;

// Move-only; the destructor stops listening. Connections from it remain.
class Listener {
 public:
  Listener() = default;
  Listener(Listener&& other) noexcept = default;
  Listener& operator=(Listener&& other) noexcept;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { reset(); }
  void reset();
  [[nodiscard]] bool active() const { return state_ != nullptr; }

  // How many requests may wait for an answer. Further requests are dropped and counted, so that the
  // active side sends them again, as with TCP.
  void set_backlog(uint32_t backlog);

 private:
  friend class Endpoint;
  explicit Listener(std::shared_ptr<ListenerState> state) : state_(std::move(state)) {}
  std::shared_ptr<ListenerState> state_;
};

}  // namespace vrdma::qp1mux
