// Telling of a completion: the CQ's owner when it polls, and its completion channel. Used by
// whoever publishes a completion: the program itself, a peer on a direct link, a worker.
#pragma once

#include <unistd.h>

#include "core/ipc/layout.h"
#include "core/ipc/messages.h"

namespace vrdma::ipc {

// To be called after the publication: queue pair `qpn` has something in the CQ.
inline void announce(CqBell& bell, uint32_t qpn) {
  if (bell.many.load(std::memory_order_relaxed) == 0) return;
  const uint32_t bit = qpn % kNewsBits;
  // The first of a group tells that there is one. Its owner takes both in the same order.
  if (bell.news[bit / 64].fetch_or(1ull << (bit % 64), std::memory_order_release) == 0)
    bell.groups.fetch_or(1ull << (bit / 64), std::memory_order_release);
}

// To be called after the publication. If the owner of the CQ asked to be told (of a solicited
// completion only, perhaps), takes the request and writes the CQ's `slot` into its channel's pipe,
// of which `pipe` is a write end of the caller's own, non-blocking.
inline void tell(CqBell& bell, int pipe, uint32_t slot, bool solicited) {
  // Pairs with the fence of ibv_req_notify_cq: either it sees the completion, or we see the arm.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint32_t arm = bell.arm.load(std::memory_order_relaxed);
  if (arm == static_cast<uint32_t>(Arm::kNone)) return;
  if (arm == static_cast<uint32_t>(Arm::kSolicited) && !solicited) return;
  if (!bell.arm.compare_exchange_strong(arm, static_cast<uint32_t>(Arm::kNone))) return;
  const ChannelMessage message{slot, 0};
  // A full pipe belongs to a program that has stopped reading: it will find the completion.
  [[maybe_unused]] const ssize_t written = ::write(pipe, &message, sizeof message);
}

}  // namespace vrdma::ipc
