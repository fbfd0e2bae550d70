// The completions that one queue pair has for the CQ that the program polls, in rounds.
//
// A poll looks at all queues of its CQ, then returns what that look found: first sends, then
// receives. What a look finds are the receives that stand, and then the sends that stand. So a
// receive never comes before the send that caused it: the peer answered a message after it had
// arrived, and a send whose message has arrived has its result, or gets it in a moment
// (wait_until_settled). Programs count on this order, and adapters keep it: the acknowledgement of
// a message precedes the answer to it. A round ends, however many requests the program posts
// meanwhile, so neither kind can keep the other one waiting.
//
// All of it under Cq::mutex.
#pragma once

#include "client/device/objects.h"

namespace vrdma::client {

// Counts the receives of the queue pair that stand, at most `most`; they are due.
uint32_t look_for_receives(const Cq& cq, Qp& qp, uint32_t most);
// The same for an XRC SRQ.
uint32_t look_for_receives(Srq& srq, uint32_t most);
// Waits for the result of a request whose effect the peer may see already.
void wait_until_settled(const Cq& cq, Qp& qp);
// Then: the sends that stand are due.
void look_for_sends(const Cq& cq, Qp& qp);

// Returns what is due, at most `count` completions.
int take_sends(const Cq& cq, Qp& qp, int count, ibv_wc* wc);
int take_receives(const Cq& cq, Qp& qp, int count, ibv_wc* wc);
int take_receives(Srq& srq, int count, ibv_wc* wc);

// Whether the queue pair is in an error state, with requests to flush.
[[nodiscard]] inline bool has_to_flush(const Cq& cq, const Qp& qp) {
  return qp.state() >= verbs::QpState::kSqe &&
         ((qp.send_cq() == &cq && qp.has_outstanding_sends()) ||
          (qp.recv_cq() == &cq && qp.outstanding_receives() > 0));
}
// Whether there may be something for a round, or for the next one: a quick look.
[[nodiscard]] inline bool may_stand(const Cq& cq, const Qp& qp) {
  return (qp.send_cq() == &cq && qp.has_results()) || (qp.recv_cq() == &cq && qp.has_receives()) ||
         has_to_flush(cq, qp);
}
// Whether a completion stands. Settles unsignaled successes.
[[nodiscard]] bool stands(const Cq& cq, Qp& qp);

}  // namespace vrdma::client
