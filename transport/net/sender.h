// A queue pair (RC, UC) whose peer is beyond a network: its requests from the ring to packets, and
// the peer's packets to its receives and memory.
//
// The engine is requester.h and responder.h; this connects them with SendRing, Receiver and the
// memory of processes, and gives them turns in the lane of the vdevice. A Port carries the packets.
//
// How a transport drives it: make one from Selector::network, with a Port; find the queue pair of
// each packet that comes (its destination QPN, and addresses that are those of the path), verify
// the ICRC, and call receive(). The sender answers in its next turn, so packets that came at once
// are acknowledged at once. Call resume() when the Port, having refused packets, has room again.
//
// An initiator or target of XRC has no packets here: a Selector must not choose this for one.
//
// If the queue pair's context has Notes, it notes its progress there (progress.h), and adopted()
// goes on from the notes of a dead worker's sender: with the same sequence numbers, and the
// requests that the ring has since the oldest that is not complete.
//
// A queue pair that a refused request of its peer has moved to ERR still repeats its NAK, until it
// is destroyed or RESET.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <optional>

#include "transport/key_change.h"
#include "transport/net/congestion.h"
#include "transport/net/progress.h"
#include "transport/net/shared_window.h"
#include "transport/receiver.h"

namespace vrdma::transport::net {

// Where packets go; transport/roce has a socket behind it, a test memory.
class Port {
 public:
  virtual ~Port() = default;
  // Sends the packets of `burst`, in order, and returns how many. For the rest there is no room
  // now. What gets lost later gets lost.
  [[nodiscard]] virtual uint32_t send(const Burst& burst) = 0;
  // Of all that send to the same host; null: there is none.
  [[nodiscard]] virtual std::shared_ptr<SharedWindow> shared_window() { return nullptr; }
  // The queue pair has another address vector, perhaps: packets leave as it says.
  virtual void attributes_changed() {}
};

class NetSender final : public rdma::Sender,
                        public Runnable,
                        private Requester::Memory,
                        private Responder::Target {
 public:
  struct Options {
    uint32_t window = 256;    // packets
    bool keeps_early = true;  // see Attributes
  };

  // At RTR or later. `counters` are the device's.
  NetSender(rdma::Qp& qp, Lane& lane, std::unique_ptr<Port> port, Counters& counters,
            const Options& options);
  ~NetSender() override;

  // A packet of the peer, whose ICRC is right. Its payload is not needed after that. `marked`: by a
  // router, which was congested.
  void receive(const wire::Packet& packet, bool marked, base::TimePoint now);
  // Whether it waits for a packet of this service and sequence number. Other hosts can forge any
  // packet, but must guess that.
  [[nodiscard]] bool awaits(const wire::Packet& packet) const;
  void resume() { lane().runner().activate(this); }

  void kick() override { resume(); }
  void link_changed() override;
  void attributes_changed() override;
  void receive_posted() override;
  void port_changed() override { resume(); }
  void adopted() override;
  [[nodiscard]] bool holds(const rdma::Srq& srq, uint32_t slot) const override {
    return &srq == qp_.srq && receiver_.claimed() == slot;
  }
  [[nodiscard]] bool drained() const override { return ring_.in_hand() == 0; }
  // It is active while it can send, and a refused burst waits for room in the socket.
  [[nodiscard]] bool gets_on() const override {
    return qp_.state() == verbs::QpState::kRts && ring_.has_requests() &&
           (is_active() || refused_ != nullptr);
  }
  // What was sent may have been executed.
  [[nodiscard]] bool may_begin_anew() const override { return ring_.in_hand() == 0; }
  [[nodiscard]] std::optional<OnNetwork> on_network() const override;
  bool run(Turn& turn) override;

  // For takeover; null before RTS.
  [[nodiscard]] Requester* requester() { return requester_ ? &*requester_ : nullptr; }
  [[nodiscard]] Responder& responder() { return responder_; }
  [[nodiscard]] const Congestion& congestion() const { return congestion_; }

 private:
  struct InHand {
    rdma::WorkRequest request;
    uint32_t number = 0;
  };
  enum class Next : uint8_t { kBurst, kAgain, kYield, kNothing };

  // Requester::Memory.
  Access gather(uint32_t number, uint64_t offset, uint32_t length, rdma::Buffer* bytes) override;
  Access scatter(uint32_t number, uint64_t offset, const uint8_t* bytes, uint32_t length) override;
  void complete(uint32_t number, verbs::WcStatus status, uint32_t byte_len) override;
  // Responder::Target.
  Verdict place(const PeerRequest& message, uint64_t offset,
                std::span<const Responder::Bytes> parts, bool last) override;
  Verdict change(const PeerRequest& atomic, uint64_t* original) override;
  Verdict check(const PeerRequest& read) override;
  Verdict bring(const PeerRequest& read, uint64_t offset, uint32_t length, bool again,
                rdma::Buffer* bytes) override;
  void forget() override;
  void broken() override;
  rdma::Buffer hold(size_t length) override;

  [[nodiscard]] Attributes attributes() const;
  [[nodiscard]] wire::Service service() const;
  bool send(Turn& turn);
  void note_on_way() {
    if (requester_) share_.set(uint64_t{requester_->on_way()} * attributes_.mtu);
  }
  void note_mark(const wire::Packet& packet, base::TimePoint now);
  Next next(Burst* burst);
  [[nodiscard]] Next next_request(Burst* burst, base::TimePoint now);
  void make_requester();
  Next fetch();
  Next idle();
  // Checks a request and gives it to the requester, or says how it ends when all before it have.
  void begin(rdma::WorkRequest& request);
  [[nodiscard]] Next finish_waiting();
  [[nodiscard]] InHand* find(uint32_t number);
  void watch(base::TimePoint now);

  [[nodiscard]] static rdma::WorkRequest request_of(const PeerRequest& message);
  [[nodiscard]] rdma::Outcome prepare(const PeerRequest& message, rdma::WorkRequest* request,
                                      rdma::Plan* plan);
  // The same again, for a request whose plan has become old.
  [[nodiscard]] rdma::Outcome prepare(const rdma::WorkRequest& request, rdma::Plan* plan);
  void count_answer(uint64_t length);
  // What the peer learns of an outcome; one that ends the connection does it here.
  [[nodiscard]] Verdict verdict_of(rdma::Outcome outcome, const rdma::WorkRequest& request,
                                   const rdma::Plan& plan);
  template <class F>
  void fail_pending(rdma::Outcome outcome, const rdma::WorkRequest& request, const rdma::Plan& plan,
                    F tell);
  Verdict placed_all(const rdma::WorkRequest& request, const rdma::Plan& plan, bool last);
  // Stores the last bytes of a WRITE, at `offset` of it. False: they are not in place.
  [[nodiscard]] bool place_end(const rdma::Plan& plan, uint64_t offset,
                               std::span<const uint8_t> bytes);
  Verdict try_change(const rdma::WorkRequest& request, const rdma::Plan& plan, uint64_t* original,
                     bool bring_page);
  // The same where the step is noted: in place, the old value is read, then exchanged if it is
  // still that. Where it is reached, the marks of the job tell the next worker what it was.
  Verdict try_exchange(const rdma::WorkRequest& request, const rdma::Plan& plan, uint64_t* original,
                       bool bring_page);
  void exchange_in_place(const rdma::WorkRequest& request, const rdma::Plan& plan);
  [[nodiscard]] Verdict bring_operand(const rdma::WorkRequest& request, const rdma::Plan& plan);

  // Its program closes the device: nothing of what still comes may be stored, nor of what came and
  // waits for a job, and its state stays.
  [[nodiscard]] bool is_closing() const { return !qp_.link.remote && qp_.can_receive(); }

  // sender_progress.cc
  [[nodiscard]] bool notes_progress() const {
    return qp_.context->notes != nullptr && qp_.link.remote.has_value();
  }
  // Before packets leave, and, with 1, before the oldest request is complete.
  void note_sent(uint32_t completing);
  void note_received();
  // Before the last step of what is placed or changed. `original`: of an atomic.
  void note_step(const StepNote& step, std::optional<uint64_t> original = std::nullopt);
  void note_step_over();
  // Before the last bytes of a WRITE are stored by a thread, which calls the result.
  [[nodiscard]] rdma::Reach::Marker note_store(std::span<const uint8_t> bytes);
  // The same before the operand of an atomic is changed by a thread.
  [[nodiscard]] rdma::Reach::Marker note_change();
  [[nodiscard]] rdma::Reach::Marker note_job(StepNote step);
  template <class T>
  void put(uint32_t number, const T& note);
  void put_received(const ReceivedNote& note);
  [[nodiscard]] ReceivedNote received() const;
  void put_step(const StepNote& step, const Responder::Record& then, uint64_t original);
  void adopt_received();
  // False: the notes do not have its resources.
  [[nodiscard]] bool restore(const Responder::Record& record);
  void adopt_sent();
  void take(const StepNote& step, const PeerRequest& message);
  void take_word(const StepNote& step, const PeerRequest& message);
  void take_store(const StepNote& step);
  void take_change(const StepNote& step);
  // The dead worker has done it, and has not noted that.
  void has_changed(const StepNote& step, uint64_t original);
  // The last bytes of what `message` stores, or the operand that it changes.
  [[nodiscard]] std::optional<rdma::Piece> end_of_target(const PeerRequest& message,
                                                         uint32_t length);
  // byte_len of one that succeeded.
  [[nodiscard]] static uint32_t answer_bytes(const rdma::WorkRequest& request);
  void wait_for_receive();
  void stop_waiting_for_receive();
  // Runs `then(ok)` when a job of a reach has ended, if `half` still waits for it.
  using Half = std::shared_ptr<int>;
  template <class F>
  [[nodiscard]] std::function<void(bool)> when_done(const Half& half, F then);

  rdma::Qp& qp_;
  SendRing ring_;
  Counters& counters_;

  // As they were noted.
  std::optional<SentNote> sent_;
  std::optional<ReceivedNote> received_;
  uint32_t next_resource_ = 0;   // to be noted
  bool in_step_ = false;         // a store was noted, and not that it was done
  bool after_takeover_ = false;  // the ring's mark may tell of a dead worker
  bool redoing_ = false;         // the step of a dead worker
  bool storing_ = false;         // a job does what was noted
  bool refusing_ = false;        // see fail_pending()
  const Options options_;
  std::unique_ptr<Port> port_;
  Attributes attributes_;               // as the program has set them
  std::optional<Requester> requester_;  // from RTS on
  Receiver receiver_;
  Responder responder_;

  std::deque<InHand> window_;
  uint32_t next_number_ = 0;
  // The last request in hand, which must wait until all before it are complete: a change of keys,
  // or one that ends with an error.
  std::optional<rdma::WorkRequest> waiting_;
  verbs::WcStatus waiting_status_{};
  KeyChange key_change_;
  std::unique_ptr<Burst> refused_;  // by the port
  SharedWindow::Member share_;
  Congestion congestion_;
  bool answered_ = false;     // the last burst was of the responder
  bool paced_ = false;        // it allowed nothing when last asked
  base::TimePoint cnp_at_{};  // the last one
  bool cnp_due_ = false;
  base::EventLoop::Timer timer_;
  base::TimePoint timer_at_{};
  base::TimePoint idle_since_{};

  // While the peer's request waits for a receive.
  std::list<rdma::Sender*>* waiters_ = nullptr;
  ipc::Word* waiter_word_ = nullptr;
  bool look_again_ = false;
  base::EventLoop::Timer recheck_;
  // Jobs that began before one of these was replaced are not heard.
  Half sending_ = std::make_shared<int>(0), receiving_ = std::make_shared<int>(0);
};

template <class F>
std::function<void(bool)> NetSender::when_done(const Half& half, F then) {
  return [this, then, waits = std::weak_ptr(half)](bool ok) {
    if (waits.expired()) return;
    then(ok);
    resume();
  };
}

}  // namespace vrdma::transport::net
