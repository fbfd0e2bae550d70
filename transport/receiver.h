// The receiving side of a queue pair: what a request of its peer does to its receives and to its
// memory, whoever brings it, a sender on this host or a network.
//
// For a connected queue pair, a Receiver has one request in hand: prepare() checks it and finds
// the memory that its bytes go to, or come from; the bytes are moved (rdma::perform, move.h, or
// change()); then complete() or refuse(). Where a request must wait or go in slices, prepare() is
// called again before each, so that memory that was deregistered meanwhile is not touched.
#pragma once

#include <optional>

#include "core/rdma/device.h"
#include "transport/move.h"

namespace vrdma::transport {

class Receiver {
 public:
  Receiver() = default;
  ~Receiver() { abandon(); }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // What `request` does at `qp`: the responder's half of rdma::prepare(). The receive that it
  // completes stays in hand.
  [[nodiscard]] rdma::Outcome prepare(rdma::Qp& qp, const rdma::WorkRequest& request,
                                      rdma::Plan* plan);
  // What prepare() found: the SRQ that receives are taken from, if it is one (of XRC, the one that
  // the request names), and in whose memory the request acts.
  [[nodiscard]] rdma::Srq* srq() const { return srq_; }
  [[nodiscard]] rdma::Context& home() const { return *home_; }

  // Changes an atomic's operand in one step, and puts the old value into `buffer`: at once where it
  // is in place. True, and *ok tells whether it could; else `done` does.
  [[nodiscard]] bool change(const rdma::WorkRequest& request, const rdma::Piece& operand,
                            const rdma::Buffer& buffer, std::shared_ptr<base::CpuMeter> payer,
                            std::function<void(bool ok)> done, bool* ok,
                            rdma::Reach::Marker mark = {}) const;

  // The entry of its inbox as which the receive of the request will complete.
  [[nodiscard]] uint32_t next_entry() const;
  // The slot of an SRQ whose receive is in hand.
  [[nodiscard]] std::optional<uint32_t> claimed() const {
    if (claimed_from_ == nullptr) return std::nullopt;
    return receive_.slot;
  }
  // A dead worker had that in hand, at `qp`, and what is still to come of a message goes there.
  void take_over(rdma::Qp& qp, uint32_t slot);
  // A dead worker had invalidated the key of the request that comes next, and done no more of it.
  void has_invalidated() { invalidated_ = true; }
  void forget_invalidated() { invalidated_ = false; }  // another request comes next
  // All of the request is done: its receive, if it takes one, completes.
  void complete(const rdma::WorkRequest& request, const rdma::Plan& plan) {
    publish(request, plan);
    tell();
  }
  // The same in two steps. A requester on this host gets its result in between, before the receiver
  // can answer.
  void publish(const rdma::WorkRequest& request, const rdma::Plan& plan);
  void tell();
  // It failed here. A receive that is why completes with an error, and the queue pair goes to ERR
  // as its NAK would tell (IBTA 9.9.3). Returns what the requester learns.
  [[nodiscard]] verbs::WcStatus refuse(rdma::Outcome outcome, const rdma::WorkRequest& request,
                                       const rdma::Plan& plan);
  // The request is forgotten; the receive goes back.
  void abandon();

 private:
  void publish(const rdma::WorkRequest& request, const rdma::Plan& plan, verbs::WcStatus status);

  rdma::Qp* qp_ = nullptr;
  rdma::Srq* srq_ = nullptr;
  rdma::Context* home_ = nullptr;
  rdma::Srq* claimed_from_ = nullptr;
  rdma::Receive receive_;     // claimed from it
  bool invalidated_ = false;  // see has_invalidated()
  std::optional<ipc::RecvEntry> untold_;
};

// The compare-and-swap that makes `becomes` of a word that is `was`, at the operand of `atomic`.
[[nodiscard]] rdma::WorkRequest exchange_of(rdma::WorkRequest atomic, uint64_t was,
                                            uint64_t becomes);

// Puts a datagram or a frame into the next receive of `target`, which then completes with `entry`,
// its slot filled in. False: there is no receive, or none that it fits into; it is lost. `payer`
// pays for what `target`'s reach does; nullptr: `target`'s vdevice.
[[nodiscard]] bool receive_message(rdma::Qp& target, const rdma::Buffer& message,
                                   ipc::RecvEntry entry,
                                   std::shared_ptr<base::CpuMeter> payer = nullptr);

}  // namespace vrdma::transport
