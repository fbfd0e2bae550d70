// Part of vrdmad-worker-poisoned, a worker for tests: it crashes when it executes a request of
// kPoison bytes, and takes memory without end at one of kGreed bytes. The linker (--wrap) passes
// the calls of prepare_requester() in other files to prepare_poisoned().
#include <cstdlib>
#include <cstring>

#include "core/rdma/executor.h"

namespace vrdma::rdma {

constexpr uint64_t kPoison = 48'879, kGreed = 48'880;

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
  if (outcome == Outcome::kDone && plan->length == kGreed) {
    constexpr size_t kPiece = 1 << 20;
    while (void* piece = std::malloc(kPiece)) std::memset(piece, 1, kPiece);
    std::abort();  // the host has less than the limit
  }
  return outcome;
}

}  // namespace vrdma::rdma
