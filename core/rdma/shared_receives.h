// Claiming receives of a shared receive queue: by a worker, or by an initiator on a direct link.
//
// The theory is in core/ipc/layout.h ("A shared receive queue"). Everything here may be called by
// several initiators at a time; none of them is believed.
#pragma once

#include <cstdint>

#include "core/ipc/layout.h"
#include "core/rdma/executor.h"

namespace vrdma::rdma {

// A shared receive queue as its initiators see it.
struct SharedReceives {
  const ipc::SrqBlock* block = nullptr;
  ipc::SrqClaims* claims = nullptr;
  const uint8_t* wqes = nullptr;
  uint32_t depth = 0;  // a power of two
  uint32_t max_sge = 0;

  // Of the queue whose block stands at `block`, in an arena, and claims in a bell file.
  static SharedReceives at(const ipc::SrqBlock* block, ipc::SrqClaims* claims, uint32_t depth,
                           uint32_t max_sge);
  [[nodiscard]] const uint32_t* posted() const;
  [[nodiscard]] const uint32_t* returned() const;
};

// A receive that could be claimed.
struct Candidate {
  Receive receive;    // copied, and as it stands if the claim succeeds
  uint64_t word = 0;  // of its slot, when it was copied
  ipc::Word* hint = nullptr;
  uint32_t hint_was = 0, index = 0;  // in the ring that `hint` belongs to
};

// Copies the oldest receive that nobody has claimed. kDone, kNoReceive, or kPeerBroken.
[[nodiscard]] Outcome find_receive(const SharedReceives& queue, Candidate* candidate);

// Copies the receive in a slot that the caller has claimed. kDone or kPeerBroken.
[[nodiscard]] Outcome read_receive(const SharedReceives& queue, uint32_t slot, Receive* receive);

// Claims it. False: another one was faster, or its slot was posted anew.
[[nodiscard]] bool claim(const SharedReceives& queue, const Candidate& candidate, uint64_t claimer);

// How many receives wait, about: claims in progress may be counted or not.
[[nodiscard]] uint32_t count_waiting(const SharedReceives& queue);

}  // namespace vrdma::rdma
