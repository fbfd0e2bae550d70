// One connection (or one service ID resolution), as who wants it sees it: commands in, events out.
//
// It is what the kernel's ib_cm offers, and no more: the states and messages of IBTA 12.9.
// Addresses, ports, and the queue pair's transitions are for the layer above (rdma_cm).
//
// The active side makes a Connection with Endpoint::connection(); the passive side gets one from
// its Listener. Each serves one connection: when it is over, make another.
//
//   active                                        passive
//   kIdle                                         (Listener)
//     send_req        -> kReqSent      -- REQ ->  kReqReceived    on_request()
//                                     [<- MRA --    send_mra: the asker waits longer]
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
// | event            | comes in states              | what happened                 | state after |
// |------------------|------------------------------|-------------------------------|-------------|
// | kReqError        | kReqSent                     | no answer, or none in time    | kTimewait   |
// | kMraReceived     | kReqSent, kRepSent           | the peer needs service_timeout| same        |
// | kRepReceived     | kReqSent                     | rep                           | kRepReceived|
// | kRtuReceived     | kRepSent                     | the connection stands         | kEstablished|
// | kRepError        | kRepSent                     | no RTU came                   | kTimewait   |
// | kRejReceived     | kReqSent .. kDreqSent        | refused: reason, ari          | kTimewait   |
// | kDreqReceived    | kRepReceived .. kEstablished | the peer ends it              |kDreqReceived|
// | kDrepReceived    | kDreqSent                    | the peer agrees, or had the   | kTimewait   |
// |                  |                              | same in mind (DREQs crossed)  |             |
// | kDreqError       | kDreqSent                    | the peer is silent            | kTimewait   |
// | kTimewaitExit    | kTimewait                    | all that was on the way is    | kClosed     |
// |                  |                              | gone; only if it ever stood   |             |
// | kSidrReqError    | kSidrReqSent                 | no answer                     | kClosed     |
// | kSidrRepReceived | kSidrReqSent                 | sidr                          | kClosed     |
//
// A destroyed Connection ends the connection with the message that fits, without waiting:
// kReqSent: REJ kTimeout; kReqReceived, kRepReceived, kRepSent: REJ kConsumer; kEstablished: DREQ,
// repeated as long as it takes; kDreqReceived: DREP; kSidrReqReceived: SIDR_REP kReject. The Mux
// keeps what TIMEWAIT needs.
//
// Repetition. A REQ, REP, DREQ or SIDR_REQ that stays unanswered is sent again 40 ms later
// (Config::fast_resend), then after twice that, and so on up to the interval that the
// specification has (response timeout and twice the packet life time), and given up after
// max_cm_retries + 1 of those. So a lost REQ costs little, and a peer that is slow sees a handful
// of duplicates, which it has to bear anyway.
//
// Duplicates, late and stale messages are answered by the Mux and not shown. When a REQ or REP
// shows that the peer has forgotten an established connection, the Mux begins a DREQ for that one:
// it goes to kDreqSent by itself and ends with kDrepReceived or kDreqError.
//
// Threads: that of the Mux. Errors of commands: EINVAL (wrong state, or a value out of range:
// private data that is too long, a QPN of more than 24 bits), EADDRNOTAVAIL (the local GID is not
// the vdevice's, or the address in the private data is another), EPERM (the QPN is not the
// vdevice's), EAGAIN (a limit of the vdevice, see endpoint.h), ENODEV (the vdevice is gone). A
// command that fails has done nothing.
#pragma once

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

// The way between two queue pairs 1, which is the connection's too.
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

// What a REQ says. To send one, as this side means it. In on_request(), turned round so that this
// side can use it as it stands: path.local is ours, responder_resources is what our queue pair may
// have to serve and initiator_depth what it may issue.
struct Req {
  Path path;
  uint64_t service_id = 0;
  uint64_t ca_guid = 0;  // of the asker; stamped when sent
  // kRc, kUc, or kExtended, which is XRC: the asker has the initiator, the other the target.
  wire::CmTransport transport = wire::CmTransport::kRc;
  uint32_t qpn = 0;           // of the asker
  uint32_t starting_psn = 0;  // for the receiver of the REQ to send with: the asker's rq_psn
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t path_mtu = 3;  // ibv_mtu
  uint8_t retry_count = 7;
  uint8_t rnr_retry_count = 7;
  uint8_t ack_timeout = 17;        // a code; TIMEWAIT lasts as long
  uint8_t packet_life = 16;        // a code; not on the wire
  uint8_t remote_cm_timeout = 20;  // a code: how long the receiver may take to answer
  uint8_t local_cm_timeout = 20;   // a code: how long the asker may take
  uint8_t max_cm_retries = 15;
  bool srq = false;
  bool flow_control = true;
  PrivateData
      private_data;  // 92 bytes at most when sent (rdma_cm: an IpHeader and 56), 92 received
};

struct Rep {
  uint64_t ca_guid = 0;  // stamped when sent
  uint32_t qpn = 0;
  uint32_t starting_psn = 0;
  uint8_t responder_resources = 0;  // turned round when received, as in Req
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
  wire::Answered answered = wire::Answered::kReq;  // stamped when sent
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

// What a connection is, for the Mux of another process that goes on with it (Endpoint::restore).
// Plain bytes, which only a program with the same definition understands.
struct ConnectionRecord {
  State state = State::kClosed;  // kClosed: there is none
  bool active = true;
  bool datagram = false;
  bool stood = false;  // was established, perhaps only for the peer
  uint8_t max_retries = 0;
  uint16_t source_port = 0;
  uint32_t local_id = 0, remote_id = 0;
  uint32_t local_qpn = 0, remote_qpn = 0;
  wire::CmTransport transport = wire::CmTransport::kRc;
  uint64_t service_id = 0;
  Path path;
  uint64_t transaction = 0;       // of REQ or SIDR_REQ
  uint64_t dreq_transaction = 0;  // of the peer's DREQ
  base::TimePoint begun{};
  base::Duration response{};  // until an answer must be there
  base::Duration timewait{};
  wire::Mad sent{};  // the last message of ours, for repetitions; attribute 0: none
};
static_assert(std::is_trivially_copyable_v<ConnectionRecord>);

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

// Valid during the call. Private data has the full length of its message: nobody says how much of
// it the sender meant.
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
  // May call any command of any connection, also destroy this one and itself.
  virtual void on_event(const Event& event) = 0;
};

struct Exchange;

// Move-only; the destructor ends it as said above. One that was default-constructed, moved from, or
// whose Endpoint has gone answers every command with ENODEV and gets no events.
class Connection {
 public:
  Connection() = default;
  Connection(Connection&& other) noexcept = default;
  Connection& operator=(Connection&& other) noexcept;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { reset(); }
  void reset();

  // Who gets the events from now on (rdma_migrate_id); must outlive this or be replaced. A
  // connection that comes from a Listener has none until it is given one: until then events are
  // lost, so give it one inside on_request().
  void set_handler(ConnectionHandler* handler);

  base::Result<void> send_req(const Req& req);
  base::Result<void> send_mra(uint8_t service_timeout, PrivateData data = {});  // a code; 222
  base::Result<void> send_rep(const Rep& rep);
  base::Result<void> send_rtu(PrivateData data = {});  // 224
  // In kReqReceived, kRepReceived, kRepSent and kReqSent (then it gives up).
  base::Result<void> send_rej(const Rej& rej);
  base::Result<void> send_dreq(PrivateData data = {});  // 220; in kRepSent and kEstablished
  base::Result<void> send_drep(PrivateData data = {});  // 224; in kDreqReceived
  // Data came before the RTU (IBV_EVENT_COMM_EST): kRepSent -> kEstablished without an event.
  base::Result<void> establish();
  base::Result<void> send_sidr_req(const SidrReq& req);
  base::Result<void> send_sidr_rep(const SidrRep& rep);

  [[nodiscard]] State state() const;         // kClosed if there is none
  [[nodiscard]] uint32_t local_id() const;   // unique on the host; 0 if there is none
  [[nodiscard]] uint32_t remote_id() const;  // 0 until known
  [[nodiscard]] Path path() const;
  // Came from a vdevice of this host, which is charged for this side until it accepts.
  [[nodiscard]] bool asker_pays() const;
  [[nodiscard]] ConnectionRecord record() const;

 private:
  friend struct Exchange;
  explicit Connection(std::shared_ptr<Exchange> exchange);
  std::shared_ptr<Exchange> exchange_;
};

class ListenHandler {
 public:
  virtual ~ListenHandler() = default;
  // A REQ for the service. `connection` is in kReqReceived: keep it, give it a handler, and answer
  // now or later; dropped, it refuses with kConsumer.
  virtual void on_request(Connection connection, const Req& req) = 0;
  // A SIDR_REQ for the service; dropped, it refuses with kReject.
  virtual void on_sidr_request(Connection connection, const SidrReq& req) = 0;
};

struct ListenerState;

// Move-only; the destructor stops listening. Connections that came from it stay.
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

  // Requests that may wait for an answer at once. More are dropped and counted, so that the asker
  // tries again, as TCP does.
  void set_backlog(uint32_t backlog);

 private:
  friend class Endpoint;
  explicit Listener(std::shared_ptr<ListenerState> state) : state_(std::move(state)) {}
  std::shared_ptr<ListenerState> state_;
};

}  // namespace vrdma::qp1mux
