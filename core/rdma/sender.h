// Who executes a queue pair's mediated work requests, and how fast a device's may be executed.
//
// A queue pair has its sender from the moment when it is connected, or from its creation if it is
// of datagrams. All calls are of the thread that owns the fabric.
#pragma once

#include <cstdint>
#include <optional>

namespace vrdma::rdma {

struct Srq;

// transport/ implements it.
class Sender {
 public:
  // What a queue pair on the network has lost, by the names of transport/net/connection.h.
  struct Losses {
    uint64_t packet_seq_err = 0, implied_nak_seq_err = 0, local_ack_timeout_err = 0;
    uint64_t rnr_nak_retry_err = 0, retransmitted = 0;
    bool operator==(const Losses&) const = default;
  };
  // How it gets on with its peer, for operators.
  struct OnNetwork {
    uint32_t round_trip_us = 0;  // 0: not measured yet
    uint32_t window = 0;         // the most packets without an answer
    uint32_t unanswered = 0;     // packets
    uint64_t rate = 0;           // bytes per second that congestion leaves; 0: no limit
    Losses losses;
    bool operator==(const OnNetwork&) const = default;
  };

  virtual ~Sender() = default;
  virtual void kick() = 0;                       // the program rang the doorbell
  virtual void called() { kick(); }              // its turn in a line has come, or there is none
  virtual void link_changed() = 0;               // the queue pair's link or state changed
  virtual void attributes_changed() { kick(); }  // the program has modified the queue pair
  virtual void receive_posted() = 0;             // the receive that it waits for may be there
  virtual void port_changed() {}                 // of the queue pair's device, or of its peer's
  virtual void adopted() {}                      // another may have begun the first request
  virtual void srq_gone(uint32_t) {}  // the peer's XRC domain has no SRQ of that number any more
  [[nodiscard]] virtual bool drained() const = 0;  // no request was begun and is not completed
  // Whether requests were posted that it can carry out, or send to its peer, without waiting for
  // anybody: an adapter has them on the wire before the program's next call.
  [[nodiscard]] virtual bool gets_on() const { return false; }
  // Whether another sender may begin anew what this one has in hand: nothing was done of it that
  // must not be done twice.
  [[nodiscard]] virtual bool may_begin_anew() const { return true; }
  // Empty: its peers are on this host.
  [[nodiscard]] virtual std::optional<OnNetwork> on_network() const { return std::nullopt; }
  // Whether it has taken over the receive of `srq` in that slot, which a dead worker had claimed.
  [[nodiscard]] virtual bool holds(const Srq&, uint32_t) const { return false; }
};

// How fast a device's work requests may be carried out; vrdmad implements it. A sender that may
// not go on waits in a line, and is called when its turn has come.
class Pace {
 public:
  virtual ~Pace() = default;
  // Whether `sender` may carry out a request, or a piece of one, now.
  [[nodiscard]] virtual bool admit(Sender& sender) = 0;
  virtual void spend(uint64_t bytes, uint64_t messages) = 0;  // after it was
  virtual void leave(Sender& sender) = 0;                     // the line, before it goes
};

}  // namespace vrdma::rdma
