// Part of vrdmad-worker-poisoned, a worker for tests: it crashes when it executes a request of
// kPoison bytes. The linker (--wrap) passes the calls of prepare_requester() in other files to
// prepare_poisoned().
#include "core/rdma/executor.h"

namespace vrdma::rdma {

constexpr uint64_t kPoison = 48'879;

Outcome prepare_really(WorkRequest& request, const Requester& requester, Plan* plan) asm(
    "__real__ZN5vrdma4rdma17prepare_requesterERNS0_11WorkRequestERKNS0_9RequesterEPNS0_4PlanE");
Outcome prepare_poisoned(WorkRequest& request, const Requester& requester, Plan* plan) asm(
    "__wrap__ZN5vrdma4rdma17prepare_requesterERNS0_11WorkRequestERKNS0_9RequesterEPNS0_4PlanE");

Outcome prepare_poisoned(WorkRequest& request, const Requester& requester, Plan* plan) {
  const Outcome outcome = prepare_really(request, requester, plan);
  if (outcome == Outcome::kDone && plan->length == kPoison) {
    volatile int* volatile nowhere = nullptr;
    *nowhere = 0;
  }
  return outcome;
}

}  // namespace vrdma::rdma
