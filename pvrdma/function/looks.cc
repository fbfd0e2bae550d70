// What work() must look at: once in each of the two lists, however often a guest asks for it, so
// that the lists are never longer than the tables of objects.
#include <algorithm>
#include <utility>

#include "pvrdma/function/attachment.h"

namespace vrdma::pvrdma {

Pending* Attachment::pending(const Due& due) const {
  switch (due.what) {
    case Due::What::kSends:
      if (Qp* const qp = qps_.find(due.handle); qp != nullptr) return &qp->pending_sends;
      break;
    case Due::What::kReceives:
      if (Qp* const qp = qps_.find(due.handle); qp != nullptr) return &qp->pending_receives;
      break;
    case Due::What::kShared:
      if (Srq* const srq = srqs_.find(due.handle); srq != nullptr) return &srq->shared;
      break;
    case Due::What::kCompletions:
      if (Cq* const cq = cqs_.find(due.handle); cq != nullptr) return &cq->completions;
      break;
    case Due::What::kReminder:
      if (Cq* const cq = cqs_.find(due.handle); cq != nullptr) return &cq->reminder;
      break;
  }
  return nullptr;
}

// In the next work().
void Attachment::look(const Due& due) {
  Pending* const pending = this->pending(due);
  if (pending != nullptr && !std::exchange(pending->is_due, true)) due_.push_back(due);
}

// Until there may be room.
void Attachment::wait(const Due& due) {
  Pending* const pending = this->pending(due);
  if (pending != nullptr && !std::exchange(pending->waits, true)) waiting_.push_back(due);
}

void Attachment::look_again() {
  for (const Due& one : std::exchange(waiting_, {})) {
    if (Pending* const pending = this->pending(one); pending != nullptr) pending->waits = false;
    look(one);
  }
}

// The object has gone.
void Attachment::forget(std::initializer_list<Due::What> whats, uint32_t handle) {
  const auto is_of_it = [&](const Due& due) {
    return due.handle == handle && std::ranges::find(whats, due.what) != whats.end();
  };
  std::erase_if(due_, is_of_it);
  std::erase_if(waiting_, is_of_it);
}

}  // namespace vrdma::pvrdma
