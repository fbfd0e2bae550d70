// One exchange of messages: a connection or a SIDR, from its first message to the end of TIMEWAIT.
//
// Lives as long as the Mux needs its id and longer while a Connection holds it. It is `dead` when
// its endpoint has gone. on_event() may destroy the Connection: whoever calls emit() does it last
// and keeps the exchange alive meanwhile.
#pragma once

#include <memory>

#include "qp1mux/connection.h"
#include "qp1mux/due_queue.h"
#include "qp1mux/mux_state.h"

namespace vrdma::qp1mux {

// A code: no answer is waited for longer than 69 s, whatever a message or a caller says.
constexpr uint8_t kMaxResponse = 24;

[[nodiscard]] constexpr bool is_pending(State state) {
  return state == State::kReqSent || state == State::kReqReceived || state == State::kRepReceived ||
         state == State::kRepSent || state == State::kSidrReqSent ||
         state == State::kSidrReqReceived;
}
[[nodiscard]] constexpr bool is_waiting(State state) {  // for this side's program
  return state == State::kReqReceived || state == State::kSidrReqReceived;
}

struct Exchange : Due, ConnectionRecord, std::enable_shared_from_this<Exchange> {
  std::shared_ptr<EndpointState> endpoint;  // null: dead
  std::shared_ptr<ListenerState> listener;  // where it came from
  ConnectionHandler* handler = nullptr;
  // The vdevice of this host that asked and is charged for this side too, until this side accepts;
  // null: the endpoint itself is charged.
  std::shared_ptr<EndpointState> asker;

  base::Duration interval{};
  base::TimePoint give_up{};
  uint8_t retries_left = 0;  // that an MRA may still use

  // A new one in kIdle with an id of its own.
  static std::shared_ptr<Exchange> make(std::shared_ptr<EndpointState> endpoint);
  // Goes on with one of another process. nullptr: its id is in use.
  static std::shared_ptr<Exchange> restore(std::shared_ptr<EndpointState> endpoint,
                                           const ConnectionRecord& record);
  [[nodiscard]] static Connection hold(std::shared_ptr<Exchange> exchange);

  [[nodiscard]] MuxState& mux() const { return *endpoint->mux; }
  [[nodiscard]] Counters& counters() const { return endpoint->counters; }
  [[nodiscard]] bool sent_is(wire::CmAttribute attribute) const {
    return sent.header.attribute_id == static_cast<uint16_t>(attribute);
  }

  void enter(State next);

  // Makes the peer's number lead here, and forgets that.
  void know(PeerKey::Kind kind, uint32_t number);
  void forget(PeerKey::Kind kind, uint32_t number);

  // Begins the message that `sent` holds; it goes out with post() or post_repeated().
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
  void repeat();

  void compose_rej(const Rej& rej);
  void begin_dreq(PrivateData data = {});
  void send_drep(PrivateData data = {});
  void reply_sidr(const SidrRep& rep);

  void enter_timewait();
  void close();
  void abandon();      // the Connection has gone
  void end_at_once();  // the endpoint goes
  void on_due();
  // In `at`, to what it is charged.
  void count(State at, uint32_t one) const;
  void emit(const Event& event) const {
    if (handler != nullptr) handler->on_event(event);
  }
};

}  // namespace vrdma::qp1mux
