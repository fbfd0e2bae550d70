// The mediated side of a send queue: theory of operation.
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
// queue. What waits (for a receive, for a link) waits here, so nothing depends on the program
// calling the library again. Waiting for a receive is registered at the far queue, whose owner
// then rings (`rq_waiter`); the RNR timer only counts retries, the timeout only counts silence.
// To register safely takes a fence on all processors, of which each vdevice gets one in a
// millisecond (Lane::fence_since); beyond that the queue looks again after a millisecond.
//
// A device that may not be as fast as it can (rdma::Pace) is asked before each request and each
// piece of a long one, and told afterwards what it moved. Whoever posts pays: for each copy of what
// it sends, and for what its READs bring. A peer spends nothing of its device's.
//
// kWorker and kAsked name the daemon by its epoch. What a dead daemon held a new one makes its own
// (ours()), unless the program has taken it back before. Of the request at sq_tail the block's mark
// tells how far it was: see settle().
//
// A queue leaves the waiting states by kick(), link_changed(), receive_posted(), resume() and its
// timer; each just makes it run again, and run() finds out what is the case.
#pragma once

#include <memory>
#include <optional>

#include "core/rdma/device.h"
#include "core/rdma/window.h"
#include "transport/runner.h"
#include "transport/transport.h"

namespace vrdma::transport {

class SendQueue final : public rdma::Sender, public Runnable {
 public:
  SendQueue(rdma::Qp& qp, Lane& lane);
  ~SendQueue() override;

  void set_path(std::unique_ptr<Path> path) { path_ = std::move(path); }

  void kick() override;
  void link_changed() override;
  void receive_posted() override { resume(); }
  void port_changed() override { stop_waiting(); }
  void srq_gone(uint32_t srqn) override {
    if (has_request_ && request_.wqe.srqn == srqn) link_changed();
  }
  void adopted() override { doubtful_ = true; }
  [[nodiscard]] bool drained() const override { return !has_request_; }
  void resume();
  bool run(Turn& turn) override;
  // Of a path, about the request in hand: from here on others may notice what it does; they have
  // noticed all. With a request that completes a receive, its entry in the inbox tells.
  void mark(ipc::Mark mark, uint32_t receive = 0);

 private:
  enum class Next : uint8_t { kMore, kYield, kSleep };

  Next step(Turn& turn);
  Next idle();
  Next let_go();
  Next fetch();
  Next wait_for_receive();
  Next wait_for_link();
  Next change_key();
  bool settle();
  void complete(verbs::WcStatus status, uint32_t byte_len);
  void start_timer(base::Duration delay);
  void stop_waiting();
  void forget_request();
  void block(bool blocked);
  [[nodiscard]] bool permitted() const;
  [[nodiscard]] bool ours();

  [[nodiscard]] Runner& runner() const { return lane().runner(); }

  rdma::Qp& qp_;
  std::unique_ptr<Path> path_;
  uint32_t tail_ = 0;
  bool doubtful_ = false;
  bool has_request_ = false;  // request_ was fetched and is not completed
  rdma::WorkRequest request_{};

  // A request that changes keys was carried out, and who may still use the old one is waited for.
  // It is not undone when a link goes.
  struct Change {
    rdma::KeyUsers users;
    bool reached_gone = false;
  };
  std::shared_ptr<Change> change_;

  // Where we wait for a receive: who waits there, and the word that tells its owner so.
  std::list<rdma::Sender*>* waits_among_ = nullptr;
  ipc::Word* waiter_word_ = nullptr;
  // Since when, and whether its owner is certain to know. If not, we look again a moment later.
  base::TimePoint registered_{};
  bool fenced_ = false;
  base::EventLoop::Timer recheck_;
  std::optional<uint8_t> rnr_left_;
  bool timer_expired_ = false;
  base::EventLoop::Timer timer_;
  base::TimePoint idle_since_{};
};

}  // namespace vrdma::transport
