// One exchange of messages: a connection or a SIDR, from its first message to the end of TIMEWAIT.
//
// Lives while the Mux needs its id, and longer while a Connection holds it. After its
// endpoint is gone (null), it is dead: its commands fail. on_event() may destroy the Connection, so
// emit() must be the last action of a caller, which must keep the exchange alive until then.
#pragma once

#include <memory>

#include "qp1mux/connection.h"
#include "qp1mux/due_queue.h"
#include "qp1mux/mux_state.h"

namespace vrdma::qp1mux {

// A code: never wait longer than 69 s for an answer, whatever a message or a caller requests.
constexpr uint8_t kMaxResponse = 24;

// How often, and how long, a REP is repeated to another host that answers nothing. Its own REQ,
// repeated, brings one more each time.
constexpr uint32_t kMostUnasked = 8;
constexpr base::Duration kMostOfStranger = std::chrono::seconds(30);
// The same for a host that is not proven. It has twice the time that its REQ says, within bounds.
constexpr uint32_t kMostUnaskedOfUnproven = 1;
constexpr base::Duration kLeastOfUnproven = std::chrono::seconds(2),
                         kMostOfUnproven = std::chrono::seconds(10);

[[nodiscard]] constexpr bool is_pending(State state) {
  return state == State::kReqSent || state == State::kReqReceived || state == State::kRepReceived ||
         state == State::kRepSent || state == State::kSidrReqSent ||
         state == State::kSidrReqReceived;
}
[[nodiscard]] constexpr bool is_waiting(State state) {  // for the program on this side
  return state == State::kReqReceived || state == State::kSidrReqReceived;
}

struct Exchange : Due, ConnectionRecord, std::enable_shared_from_this<Exchange> {
  std::shared_ptr<EndpointState> endpoint;  // null: dead
  std::shared_ptr<ListenerState> listener;  // the listener that it came from
  ConnectionHandler* handler = nullptr;
  // The vdevice of this host that sent the request and is charged for this side too until this side
  // accepts; null: the endpoint itself is charged.
  std::shared_ptr<EndpointState> asker;

  base::Duration interval{};
  base::TimePoint give_up{};
  uint8_t retries_left = 0;  // that MRAs may still use up
  uint32_t unasked = 0;      // repetitions to a stranger
  // No memory leads to its peer, which is on another host or in another island of this one: anybody
  // may send in its name, and `asker` is null.
  bool foreign = false;
  bool of_unproven = false;  // its host was not proven when it asked
  bool held = false;         // see Connection::hold()

  // Creates an exchange in kIdle with a new id.
  static std::shared_ptr<Exchange> make(std::shared_ptr<EndpointState> endpoint);
  // Continues an exchange of another process. nullptr: its id is in use.
  static std::shared_ptr<Exchange> restore(std::shared_ptr<EndpointState> endpoint,
                                           const ConnectionRecord& record);
  [[nodiscard]] static Connection hold(std::shared_ptr<Exchange> exchange);

  [[nodiscard]] MuxState& mux() const { return *endpoint->mux; }
  [[nodiscard]] Counters& counters() const { return endpoint->counters; }
  [[nodiscard]] bool sent_is(wire::CmAttribute attribute) const {
    return sent.header.attribute_id == static_cast<uint16_t>(attribute);
  }

  void enter(State next);
  // When it begins.
  void set_path(const Path& way);

  // Adds to, and removes from, the table of peers an entry for this exchange.
  void know(PeerKey::Kind kind, uint32_t number);
  void forget(PeerKey::Kind kind, uint32_t number);

  // Starts a message in `sent`; post() or post_repeated() sends it.
  template <class T>
  T& compose(uint64_t transaction_id) {
    T& message = wire::begin<T>(sent, transaction_id);
    if constexpr (requires { message.local_id; }) {
      message.local_id = local_id;
      if constexpr (requires { message.remote_id; }) message.remote_id = remote_id;
    }
    return message;
  }
  void post() { mux().send(*endpoint, path, sent); }
  void post_repeated();
  [[nodiscard]] bool is_answer_to_stranger() const;
  // The peer named `local_id`.
  void prove_peer() const;
  [[nodiscard]] bool is_proven() const;
  void repeat();
  void release();  // see Connection::release()

  void compose_rej(const Rej& rej);
  void begin_dreq(PrivateData data = {});
  void send_drep(PrivateData data = {});
  void reply_sidr(const SidrRep& rep);

  void enter_timewait();
  void close();
  void abandon();      // the Connection was destroyed
  void end_at_once();  // the endpoint detaches
  void on_due();
  [[nodiscard]] bool is_fruitless(State at) const;
  // Adds `one` to what the state `at` is charged for.
  void count(State at, uint32_t one) const;
  void emit(const Event& event) const {
    if (handler != nullptr) handler->on_event(event);
  }
};

}  // namespace vrdma::qp1mux
