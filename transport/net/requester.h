// The requester of a connected queue pair (RC, UC): turns work requests into packets, and answers
// into completions. It knows packets and a clock, and no socket.
//
// How to drive it: post() requests while wants_request() says so; call next() until it returns
// false, and send the bursts; give received responses to receive(); call tick() when deadline() has
// come; then next() again. All calls may complete requests, through Memory::complete().
//
// How lost packets are sent again. The only news that standard packets bring is "everything before
// PSN p was executed" (ACK, and NAK of p) and "p is missing" (NAK). A responder that knows only
// go-back-N has then dropped whatever followed p, says nothing until p comes, and needs all of it
// again. One that keeps early packets, as responder.h does, needs p alone. Nothing in a packet
// tells which kind it is, so the requester finds out:
//
//   * After a NAK of p it sends p alone, asks for an acknowledgement, and holds new requests back.
//     An answer that stands beyond what was sent again proves that the peer kept the rest. One that
//     stands exactly there shows that the peer lacks the next packet too: because that is lost as
//     well, or because it was dropped. So twice as many follow, and when that has happened a few
//     times, all that is left: the peer goes back.
//   * Of a peer that is known to keep, only what is missing is sent, while new requests go on. If
//     the next NAK names the packet right behind what was sent again, the hole is longer: the next
//     part is twice as long, and the next recovery begins with that: networks lose bursts whole. A
//     hole that grows to kGoBackAfter packets makes the requester go back.
//   * Of a peer that is known to go back, everything is sent again from p. Should an answer prove
//     that it had kept packets, it is known to keep from then on; if none does, it is tried anew
//     after some recoveries. The window is smaller, because each loss costs all that is in it.
//
// A wrong guess costs packets, never correctness: whatever the peer is, it gets in order what it
// says that it lacks.
//
// A loss that no NAK tells of (the last packet, the NAK itself, the packet that was sent again) is
// found by silence: after RoundTrip::silence() the oldest unanswered packet is sent once more.
// Every peer answers that one, whatever its state: with an ACK if the packet was a duplicate, which
// tells where the peer stands, and otherwise by accepting it. The local ACK timeout of the queue
// pair, after which retries are counted, is the last resort.
//
// Answers to READs may be lost too. READs are requested in pieces of kReadPiece bytes, so that no
// more comes at once than a receiver's buffer takes. Responses are stored in whatever order they
// come; what is missing is requested again, by a request for that part.
//
// Takeover. Another process can go on with what record() returns, if that is stored before each
// next() sends and before each Memory::complete(), in this order: the record, then the packets or
// the completion. The requests from the oldest on must be posted again, with their old content.
//
// Source: IBTA 9.7.5, 9.7.6, 9.9.2.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/rdma/sender.h"
#include "transport/net/connection.h"
#include "transport/net/round_trip.h"

namespace vrdma::transport::net {

// A work request, as far as packets depend on it.
struct Request {
  verbs::Opcode opcode{};
  uint64_t length = 0;
  uint64_t remote_addr = 0;
  uint64_t compare_add = 0, swap = 0;
  uint32_t rkey = 0;
  uint32_t imm = 0;  // as in ipc::SendWqe
  bool solicited = false;
  bool fence = false;
};

// How an access to memory went.
enum class Access : uint8_t {
  kDone,
  kPending,  // the answer comes later
  kBusy,     // no buffer is left: to be tried again later
  kFailed,
};

class Requester {
 public:
  // The memory and the completions of its requests. They are numbered as they are posted, from 0.
  class Memory {
   public:
    virtual ~Memory() = default;
    // Brings the bytes of a request from `offset` on into a buffer. kPending: gathered() follows.
    // kBusy: tick() or next() is called when it may be tried again.
    virtual Access gather(uint32_t number, uint64_t offset, uint32_t length,
                          rdma::Buffer* bytes) = 0;
    // Stores what answers a request. kPending: scattered() follows; `bytes` was copied. kBusy: the
    // answer counts as lost.
    virtual Access scatter(uint32_t number, uint64_t offset, const uint8_t* bytes,
                           uint32_t length) = 0;
    // The oldest request is over. It may call clear(); it must not destroy the requester.
    virtual void complete(uint32_t number, verbs::WcStatus status, uint32_t byte_len) = 0;
  };

  static constexpr uint32_t kReadPiece = kSlice;  // bytes
  static constexpr uint32_t kGoBackAfter = 64;    // packets
  static constexpr size_t kMostRequests = 128;    // in hand

  // `attributes`, `memory` and `counters` outlive it. It reads timeout, retry_cnt, rnr_retry and
  // max_rd_atomic at each use.
  Requester(const Attributes& attributes, Memory& memory, Counters& counters);

  // Whether another request should be posted: all earlier ones have been sent, and there is room.
  [[nodiscard]] bool wants_request() const;
  void post(const Request& request);
  // Fills `burst` with what must be sent now. False: nothing.
  [[nodiscard]] bool next(Burst* burst, base::TimePoint now);
  void receive(const wire::Packet& packet, base::TimePoint now);
  // The answers of Memory.
  void gathered(const rdma::Buffer& bytes);  // null: it failed
  void scattered(uint32_t number, uint64_t offset, bool ok);
  [[nodiscard]] std::optional<base::TimePoint> deadline() const;
  void tick(base::TimePoint now);

  // Forgets all requests without completing them.
  void clear();
  // The most packets without an answer, at most kSpan / 2.
  void set_window(uint32_t packets);
  // The most packets of one call of next(), at least 1.
  void set_burst(uint32_t packets) { most_burst_ = packets; }
  [[nodiscard]] uint32_t window() const { return window_; }
  [[nodiscard]] const RoundTrip& round_trip() const { return round_trip_; }
  // What Counters has of all queue pairs, of this one.
  [[nodiscard]] const rdma::Sender::Losses& losses() const { return losses_; }
  [[nodiscard]] size_t in_hand() const { return messages_.size(); }
  [[nodiscard]] uint32_t unanswered() const { return (next_ - oldest_) & verbs::kPsnMask; }
  [[nodiscard]] bool in_flight(uint32_t psn) const {
    return ((psn - oldest_) & verbs::kPsnMask) < unanswered();
  }
  // Those of them that are not taken for lost: the peer is not silent, and has dropped nothing for
  // want of a receive.
  [[nodiscard]] uint32_t on_way() const {
    return failed_ || rnr_until_ || probes_ > 0 || retries_ > 0 ? 0 : unanswered();
  }
  // Whether something will be sent again.
  [[nodiscard]] bool has_lost() const { return !again_.empty(); }

  struct Record {
    uint32_t request_psn = 0;  // the first one of the oldest request
    uint32_t oldest_psn = 0;   // the first one whose answer is not in memory
    uint32_t next_psn = 0;     // the first one that was never sent
    bool operator==(const Record&) const = default;
  };
  [[nodiscard]] Record record() const;
  // Before any request is posted.
  void restore(const Record& record);
  // Requests that the requester before this one had begun must be posted.
  [[nodiscard]] bool lacks_requests() const { return restored_end_.has_value(); }

 private:
  enum class Peer : uint8_t { kUnknown, kGoesBack, kKeeps };

  struct Message {
    Request request;
    uint32_t number = 0;
    uint32_t psn = 0, count = 0;
    std::vector<uint32_t> storing;  // answers on their way into memory
    verbs::WcStatus failure = verbs::WcStatus::kSuccess;

    [[nodiscard]] uint32_t end() const { return wire::psn_add(psn, count); }
    [[nodiscard]] bool contains(uint32_t at) const {
      return ((at - psn) & verbs::kPsnMask) < count;
    }
  };
  struct Slice {  // of a message, as packets
    enum class State : uint8_t { kNone, kAsked, kReady };
    State state = State::kNone;
    uint32_t number = 0;
    uint64_t offset = 0;
    uint32_t length = 0;
    rdma::Buffer bytes;
  };
  struct Answering {  // a READ request or an atomic on its way
    uint32_t psn = 0, count = 0;
  };

  [[nodiscard]] Message* find(uint32_t psn);
  [[nodiscard]] uint32_t piece_end(const Message& message, uint32_t psn) const;
  [[nodiscard]] bool may_begin(const Message& message) const;
  [[nodiscard]] bool send_again(Burst* burst, base::TimePoint now);
  [[nodiscard]] bool send_new(Burst* burst, base::TimePoint now);
  // Fills the burst with packets of `message` from `psn` on, at most `most` of them. Returns how
  // many sequence numbers they take; 0: memory has no bytes yet.
  [[nodiscard]] uint32_t fill(Burst* burst, Message& message, uint32_t psn, uint32_t most);
  void fill_question(Burst* burst, const Message& message, uint32_t psn, uint32_t count) const;
  void fill_data(wire::Packet* packet, const Message& message, uint32_t index) const;
  [[nodiscard]] bool bring(Message& message, uint64_t offset, uint32_t length);
  void sent(uint32_t from, uint32_t count, base::TimePoint now);

  // All requests before `psn` were executed. Returns false if an answer before it is missing.
  bool advance(uint32_t psn, base::TimePoint now);
  void forget_answers();
  void settle();
  void on_nak(uint32_t psn, base::TimePoint now);
  void on_rnr_nak(uint32_t psn, uint8_t timer, base::TimePoint now);
  void on_error(uint32_t psn, uint8_t syndrome, base::TimePoint now);
  void on_answer(const wire::Packet& packet, base::TimePoint now);
  void lost_answer(base::TimePoint now);
  [[nodiscard]] uint32_t end_of_hole(uint32_t psn);
  enum class Cause : uint8_t { kNak, kSilence, kNoReceive };
  void recover(uint32_t psn, Cause cause);
  void add_again(uint32_t psn);
  void go_back(uint32_t psn);
  void judge_peer(uint32_t executed);
  [[nodiscard]] base::TimePoint silent_at() const;
  [[nodiscard]] bool is_recent(base::TimePoint then, base::TimePoint now) const;
  void fail(verbs::WcStatus status);
  void shrink_window();
  void grow_window(uint32_t answered);

  const Attributes& attributes_;
  Memory& memory_;
  Counters& counters_;
  rdma::Sender::Losses losses_;

  std::deque<Message> messages_;
  uint32_t next_number_ = 0;
  size_t begin_ = 0;  // in messages_: the first that was not sent to its end
  // Of the next request; the first one that is unanswered; the first one that is not known to be
  // executed; the first one that was not sent.
  uint32_t post_psn_, oldest_, executed_, next_;
  std::optional<uint32_t> restored_end_;  // up to which a requester before this one had sent
  PsnSet again_;                          // to be sent again
  PsnSet answered_;  // answers that came before their turn, or whose message waits
  std::deque<Answering> answering_;
  Slice slice_;
  bool settling_ = false;
  bool failed_ = false;  // a request cannot be finished, so none behind it can

  uint32_t unasked_ = 0;  // packets since an acknowledgement was asked for
  uint32_t window_, most_window_;
  uint32_t most_burst_ = Burst::kMost;
  uint32_t read_piece_ = 1;  // packets that answer one READ request
  uint32_t grown_ = 0;       // packets answered since the window grew

  // A recovery: since something was found missing, until all that was sent before is answered.
  Peer peer_ = Peer::kUnknown;
  bool recovering_ = false;
  bool asking_ = false;           // new requests wait until the peer shows what it lacks
  bool proves_ = false;           // a NAK began it, so answers tell whether the peer keeps packets
  bool seen_keeping_ = false;     // an answer has proved that the peer keeps packets
  uint32_t recovered_end_ = 0;    // of what was sent before
  uint32_t again_end_ = 0;        // of what was sent again since
  base::TimePoint again_at_{};    // the last time
  uint32_t hole_ = 1;             // packets that are sent again at once
  uint32_t usual_hole_ = 1;       // with which a recovery begins, of a peer that keeps packets
  bool grew_ = false;             // the last one had to send more
  uint32_t believed_ = 0;         // recoveries since the peer was found to go back
  std::optional<uint32_t> lost_;  // the last answer that was missed
  uint32_t lost_end_ = 0;         // and the end of its hole
  base::TimePoint lost_at_{};

  RoundTrip round_trip_;
  base::TimePoint progress_at_{}, sent_at_{};
  uint32_t probes_ = 0, retries_ = 0, rnr_retries_ = 0;
  std::optional<base::TimePoint> rnr_until_;
  uint32_t rnr_psn_ = 0;
};

}  // namespace vrdma::transport::net
