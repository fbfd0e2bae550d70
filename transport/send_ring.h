// The mediated side of a send queue's ring: theory of operation.
//
// A queue pair's send queue is executed by one party at a time, the *token* says by whom:
//
//   kClient   the program executes by itself (direct link only); outside of the library the queue
//             is then empty. Leaves by the program: a request that cannot finish now is written
//             to the ring, token = kWorker, doorbell.
//   kWorker   we execute. Leaves by us: the queue is empty -> kFree, fence, look again.
//   kAsked    we execute; the program, inside the library, would like to. Between two requests we
//             give: token = kClient. If that takes too long it goes back to kWorker by CAS.
//   kFree     nobody: the queue was empty. The program takes it by CAS, to kClient or, to have us
//             work, to kWorker with a doorbell.
//
// We read the token but never believe it: what a program does to its token is done to its own
// queue.
//
// kWorker and kAsked name the daemon by its epoch. What a dead daemon held a new one makes its own
// (ours()), unless the program has taken it back before. Of the request at sq_tail the block's mark
// tells how far it was: see interrupted().
//
// A sender may have several requests in hand: it fetches them in order, and completes them in
// order. Whoever posts pays for each (rdma::Pace). No other code knows how the ring is laid out.
#pragma once

#include <utility>

#include "core/rdma/device.h"

namespace vrdma::transport {

class SendRing {
 public:
  explicit SendRing(rdma::Qp& qp) : qp_(qp) {}

  // Whether the token is the worker's.
  [[nodiscard]] bool ours() {
    const uint32_t token = qp_.block->token.load(std::memory_order_acquire);
    if (!ipc::is_workers(token)) return false;
    return token == ipc::token_word(ipc::token_in(token), qp_.context->epoch) || make_ours(token);
  }

  // Whether the program has published requests for a worker that are not complete. It may be wrong
  // about its ring; nothing but time depends on that.
  [[nodiscard]] bool has_requests() const;

  enum class Fetched : uint8_t {
    kRequest,
    kNothing,  // there is none
    kGiven,    // the program has got the token that it asked for
    kCorrupt,  // the session ends
  };
  // Copies the next request out of the ring, checked, into the sender's hand.
  [[nodiscard]] Fetched fetch(rdma::WorkRequest* request);
  [[nodiscard]] uint32_t in_hand() const { return in_hand_; }
  // The number of the oldest request that is not complete; they are counted without end.
  [[nodiscard]] uint32_t oldest() const {
    return in_hand_ > 0 ? tail_ : qp_.block->sq_tail.load(std::memory_order_acquire);
  }
  // Completes the oldest request in hand, of which `request` is the copy. One that failed moves the
  // queue pair to ERR or SQE, and its sender hears of that (Sender::link_changed).
  void complete(const rdma::WorkRequest& request, verbs::WcStatus status, uint32_t byte_len) {
    publish(request, status, byte_len);
    tell();
  }
  // The same in two steps: the result stands; then, if the request succeeded, the program is told.
  void publish(const rdma::WorkRequest& request, verbs::WcStatus status, uint32_t byte_len);
  void tell() {
    if (!std::exchange(untold_, false)) return;
    qp_.send_cq->notify(false);
    qp_.send_cq->end_telling();
  }
  // The next owner of the token fetches again what is in hand.
  void put_back() { in_hand_ = 0; }

  // The token is nobody's from now on. True: work came in between, and it is ours again. A queue
  // pair that may not send lets go of what it has: the program flushes it.
  bool let_go();
  // Whether the sender waits for something: then to ask for the token is in vain.
  void block(bool blocked) {
    const uint32_t word = blocked ? 1 : 0;
    if (qp_.block->blocked.load(std::memory_order_relaxed) != word)
      qp_.block->blocked.store(word, std::memory_order_relaxed);
  }

  [[nodiscard]] bool is_blocked() const {
    return qp_.block->blocked.load(std::memory_order_relaxed) != 0;
  }

  // About the oldest request in hand: from here on others may notice what it does; they have
  // noticed all. With one that completes a receive, its entry in the inbox tells.
  void mark(ipc::Mark mark, uint32_t receive = 0) {
    qp_.block->mark_receive.store(receive, std::memory_order_relaxed);
    qp_.block->mark.store(ipc::mark_word(mark, tail_), std::memory_order_release);
  }
  // The same from another thread, about the oldest request in hand as it is now. What stood where
  // it stores goes to SendWqe::old_value. `done`: what kDone is told as.
  [[nodiscard]] rdma::Reach::Marker marker(ipc::Mark done = ipc::Mark::kDone) const;
  // How far a dead worker had come with the oldest request in hand, and the entry that it marked.
  // kNone: nobody can have noticed anything, and it is simply begun again.
  struct Interrupted {
    ipc::Mark mark;
    uint32_t receive;  // of what is kBegun by marker(), kOldValueStands
  };
  static constexpr uint32_t kOldValueStands = 1;
  [[nodiscard]] Interrupted interrupted() const;

 private:
  [[nodiscard]] bool make_ours(uint32_t token);

  rdma::Qp& qp_;
  uint32_t tail_ = 0;  // of the oldest in hand
  uint32_t in_hand_ = 0;
  bool untold_ = false;
};

}  // namespace vrdma::transport
