// The responder of a connected queue pair (RC, UC): executes the requests that packets bring, in
// order and once, and answers them. It knows packets, and neither a clock nor a socket.
//
// How to drive it: give received requests to receive(), then call next() until it returns false,
// and send the bursts. Between two calls of next() any number of packets may be received: what is
// acknowledged at the end is acknowledged once.
//
// Packets that come before their turn are kept, up to kMostHeld, and executed when the gap is
// filled. The peer learns of a gap by one NAK, as of any responder; when it is filled and there is
// another one, by another. So a requester that sends only what is missing gets on, and one that
// knows go-back-N meets duplicates (requester.h has the other half of this). Packets that come
// while memory is busy, or no receive is posted, are kept in the same way. So after an RNR NAK the
// responder goes on as soon as a receive is posted, without the peer's sending again.
//
// READ data are read from memory when they are sent, under a key that is checked again. Answers go
// out in the order of their requests, because a peer takes an answer behind a missing one as a
// loss. No ACK has the number of a READ or an atomic: rxe, as a requester, takes it for the answer.
//
// Everything in a packet is the peer's word. Lengths, keys and the order of opcodes are checked
// before anything is touched; what is kept is bounded by kMostHeld packets, and by the buffers of
// the vdevice; what is saved for repetition, by max_dest_rd_atomic.
//
// Takeover. Another process can go on with record() and resources(), if these are stored after each
// change of them and before the answer is sent. A packet whose execution was not recorded is sent
// again by the peer and executed again. That is harmless for bytes that nobody has seen, and must
// be prevented for what others notice: the completion of a receive, the change of an operand, the
// end of a WRITE. Before that step the target stores record_when_placed(), together with the step;
// the next process looks whether it was taken, and takes it first if not.
//
// Source: IBTA 9.7.3, 9.7.4, 9.7.5, 9.7.7, 9.9.3.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>

#include "transport/net/connection.h"

namespace vrdma::transport::net {

// What the peer asks for.
struct PeerRequest {
  verbs::Opcode opcode{};
  uint64_t length = 0;  // of a SEND: as far as it has come
  uint64_t remote_addr = 0;
  uint64_t compare_add = 0, swap = 0;
  uint32_t rkey = 0;
  uint32_t imm = 0;  // as in ipc::SendWqe
  bool solicited = false;
  bool operator==(const PeerRequest&) const = default;
};

enum class Verdict : uint8_t {
  kDone,
  kPending,         // the verdict comes later
  kBusy,            // no buffer is left: as if the packet had been lost
  kNoReceive,       // RNR NAK
  kInvalidRequest,  // the others: a NAK, and the connection is over
  kRemoteAccess,
  kOperational,
};

class Responder {
 public:
  using Bytes = std::span<const uint8_t>;

  // The queue pair's receives and memory. One access at a time is pending.
  class Target {
   public:
    virtual ~Target() = default;
    // Stores the bytes of `parts` from `offset` of the message on. `last`: then the message is
    // complete, and with it its receive. kPending: placed() follows, `parts` were copied.
    virtual Verdict place(const PeerRequest& message, uint64_t offset, std::span<const Bytes> parts,
                          bool last) = 0;
    // Changes the operand of an atomic. kPending: placed() follows.
    virtual Verdict change(const PeerRequest& atomic, uint64_t* original) = 0;
    // Whether a READ may be answered.
    virtual Verdict check(const PeerRequest& read) = 0;
    // Brings bytes that answer a READ. kPending: brought() follows. kBusy: next() must be called
    // again when there may be a buffer. `again`: it was answered before, so that it is no error if
    // its key has ended.
    virtual Verdict bring(const PeerRequest& read, uint64_t offset, uint32_t length, bool again,
                          rdma::Buffer* bytes) = 0;
    // The message that was begun will not be finished.
    virtual void forget() = 0;
    // The peer broke the protocol, so that the responder has refused a request without asking the
    // target: the queue pair goes to ERR, as where the target refuses one (IBTA 9.9.3).
    virtual void broken() = 0;
    // A buffer to keep a packet in; nullptr: there is none.
    virtual rdma::Buffer hold(size_t length) = 0;
  };

  static constexpr uint32_t kMostHeld = kSpan / 2;
  static constexpr uint32_t kMostResources = 128;

  // `attributes`, `target` and `counters` outlive it. It reads min_rnr_timer and max_dest_rd_atomic
  // at each use.
  Responder(const Attributes& attributes, Target& target, Counters& counters);

  // A request, of the right service.
  void receive(const wire::Packet& packet);
  // Whether it would execute a packet of this number, now or when those before it are there.
  [[nodiscard]] bool awaits(uint32_t psn) const {
    const int32_t ahead = wire::psn_distance(expected_, psn);
    return ahead >= 0 && static_cast<uint32_t>(ahead) < kMostHeld;
  }
  [[nodiscard]] bool next(Burst* burst);
  // Answers of Target. `original`: of an atomic.
  void placed(Verdict verdict, uint64_t original = 0);
  void brought(Verdict verdict, const rdma::Buffer& bytes);
  // A receive was posted, or a buffer came free.
  void resume();
  // The target will not answer any more what is pending: the queue pair is in an error state. What
  // was refused is still said.
  void forget_pending();
  [[nodiscard]] bool lacks_receive() const { return lacks_receive_; }
  // It has refused a request: it executes nothing more, and only repeats its NAK.
  [[nodiscard]] bool is_over() const { return over_.has_value(); }

  struct Resource {  // a READ or an atomic that was executed
    PeerRequest request;
    uint32_t psn = 0, count = 0;
    uint64_t original = 0;

    [[nodiscard]] bool contains(uint32_t at) const {
      return ((at - psn) & verbs::kPsnMask) < count;
    }
  };
  struct Record {
    uint32_t next_psn = 0, msn = 0;
    bool open = false;    // a message has begun and not ended
    PeerRequest message;  // the last one
    uint64_t offset = 0;
    // The number of the oldest resource that it remembers, counted from 0, and how many there are.
    uint32_t first_resource = 0, resources = 0;
    bool operator==(const Record&) const = default;
  };
  [[nodiscard]] Record record() const;
  [[nodiscard]] const std::deque<Resource>& resources() const { return resources_; }
  // What they are after placed(Verdict::kDone, original), while that is in hand.
  // The resource is only that of an atomic.
  [[nodiscard]] Record record_when_placed() const;
  [[nodiscard]] Resource resource_when_placed(uint64_t original) const {
    return {message_, expected_, step_.psns, original};
  }
  // Before any packet, of one that has refused nothing. It tells the peer by a NAK where it stands:
  // what was on its way is lost, and the peer would else wait for its timers.
  void restore(const Record& record, std::span<const Resource> resources);

 private:
  using Family = wire::OperationInfo::Family;
  struct Held {
    wire::Packet packet;
    rdma::Buffer payload;
  };
  struct Answer {
    PeerRequest request;  // of a READ: its rest
    uint32_t psn = 0, count = 0;
    uint32_t sent = 0;  // packets
    uint64_t original = 0;
    bool again = false;  // it was given before
  };
  struct Step {  // packets in execution
    Family family = Family::kNone;
    uint32_t psns = 0;
    uint64_t length = 0;
    bool ends = false;
    bool ack_request = false;
  };
  struct Nak {
    uint32_t psn = 0;
    uint8_t syndrome = 0;
  };

  void receive_unreliable(const wire::Packet& packet);
  // Executes the first of these packets, and those behind it that go on with its message.
  void execute(std::span<const wire::Packet* const> packets);
  void execute_data(std::span<const wire::Packet* const> packets);
  void execute_read(const wire::Packet& packet);
  void execute_atomic(const wire::Packet& packet);
  [[nodiscard]] bool is_in_order(const wire::Packet& packet) const;
  [[nodiscard]] bool has_room();
  void forget_old(uint32_t psns);
  void finish(Verdict verdict, uint64_t original);
  void repeat(const wire::Packet& packet);
  void answer_again(const Resource& resource, const wire::Packet& packet);
  void drain();
  [[nodiscard]] bool drain_gap();
  void hold(const wire::Packet& packet, uint32_t ahead);
  void refuse(uint8_t syndrome);
  void refuse_unasked();
  void drop_message();
  [[nodiscard]] bool next_answer(Burst* burst);
  [[nodiscard]] uint32_t last_without_answer() const;
  void fill(wire::Packet* packet, wire::Operation operation, uint32_t psn, uint8_t syndrome) const;
  // What it remembers of READs and atomics at most.
  [[nodiscard]] uint32_t most_resources() const {
    return std::min<uint32_t>(attributes_.max_dest_rd_atomic, kMostResources);
  }
  [[nodiscard]] bool is_stuck() const { return busy_ || lacks_receive_; }

  const Attributes& attributes_;
  Target& target_;
  Counters& counters_;

  uint32_t expected_;
  uint64_t turn_ = 0;  // of the expected packet, counted without wrapping
  uint32_t msn_ = 0;
  bool open_ = false;
  PeerRequest message_;
  uint64_t offset_ = 0;
  Step step_;
  bool busy_ = false;              // with step_
  bool lacks_receive_ = false;     // the expected packet waits for one
  bool said_gap_ = false;          // by a NAK
  std::map<uint64_t, Held> held_;  // by turn

  std::deque<Resource> resources_;
  uint32_t first_resource_ = 0;
  std::deque<Answer> answers_;
  enum class Bringing : uint8_t { kNo, kAsked, kReady };
  Bringing bringing_ = Bringing::kNo;
  Verdict brought_verdict_ = Verdict::kDone;
  rdma::Buffer brought_;
  bool ack_due_ = false;
  std::optional<Nak> nak_;   // due
  std::optional<Nak> over_;  // the last one
  // The packet for which a receive was found missing; it is said once, if the peer does not ask.
  std::optional<uint32_t> lacking_;
  bool asked_ = true;
  uint32_t repeated_ = 0;
};

}  // namespace vrdma::transport::net
