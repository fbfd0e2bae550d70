// How a connected sender waits for what its peer lacks: a receive, or being there at all.
//
// Waiting for a receive is registered at the far queue, whose owner then rings (`rq_waiter`); the
// RNR timer only counts retries, the timeout only counts silence. To register safely takes a fence
// on all processors, of which each vdevice gets one in a millisecond (Lane::fence_since); beyond
// that the sender looks again after a millisecond.
#pragma once

#include <list>
#include <optional>

#include "transport/serial_sender.h"

namespace vrdma::transport {

class Waiting {
 public:
  // Resumes `sender` when there is something to look at.
  Waiting(const rdma::Qp& qp, Lane& lane, SerialSender& sender)
      : qp_(qp), lane_(lane), sender_(sender) {}

  enum class Verdict : uint8_t { kLook, kWait, kGiveUp };
  // The responder has no receive among those that `waiters` wait for, whose owner looks at `word`.
  // kLook: it is registered now, so one that was posted meanwhile must be looked for.
  [[nodiscard]] Verdict for_receive(std::list<rdma::Sender*>& waiters, ipc::Word& word,
                                    uint8_t min_rnr_timer);
  // There is no link that carries anything.
  [[nodiscard]] Verdict for_link();

  // A kick is in vain.
  [[nodiscard]] bool is_patient() const { return waiters_ != nullptr || timer_.active(); }
  void unregister();  // a receive was posted
  // Nothing is waited for any more, and retries are counted from the beginning.
  void stop() {
    if (waiters_ != nullptr || timer_.active() || rnr_left_ || timer_expired_) forget();
  }

 private:
  void forget();
  void start_timer(base::Duration delay);

  const rdma::Qp& qp_;
  Lane& lane_;
  SerialSender& sender_;
  // Where it waits for a receive: who waits there, and the word that tells the owner so.
  std::list<rdma::Sender*>* waiters_ = nullptr;
  ipc::Word* word_ = nullptr;
  // Since when, and whether the owner is certain to know. If not, it looks again a moment later.
  base::TimePoint registered_{};
  bool fenced_ = false;
  base::EventLoop::Timer recheck_;
  std::optional<uint8_t> rnr_left_;
  bool timer_expired_ = false;
  base::EventLoop::Timer timer_;
};

}  // namespace vrdma::transport
