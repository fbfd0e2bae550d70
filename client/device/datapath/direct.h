// What the two ways of executing on a direct link share: any request (direct.cc), and the short way
// of the plain ones (plain.cc). All of it under Qp::send_mutex.
#pragma once

#include "client/device/objects.h"
#include "core/base/asymmetric_fence.h"
#include "core/ipc/bell.h"

namespace vrdma::client {

[[nodiscard]] inline bool link_is_direct(const Qp& qp) {
  return qp.direct != nullptr && qp.block->link.load(std::memory_order_acquire) ==
                                     static_cast<uint32_t>(ipc::Link::kDirect);
}

[[nodiscard]] inline bool ring_is_empty(const Qp& qp) {
  return qp.block->sq_tail.load(std::memory_order_relaxed) == qp.sq_head;
}

// Writes the result of the first request of the ring.
inline void put_result(Qp& qp, uint32_t byte_len) {
  const uint32_t tail = qp.block->sq_tail.load(std::memory_order_relaxed);
  qp.results[tail & (qp.sq_depth - 1)] = {IBV_WC_SUCCESS, byte_len};
}

// Requests were carried out here: counted for whoever watches (core/rdma/traffic.h).
inline void add_to(std::atomic<uint64_t>& count, uint64_t more) {
  count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}
inline void count_direct(Qp& qp, uint64_t requests, uint64_t bytes) {
  add_to(qp.block->direct_requests, requests);
  add_to(qp.block->direct_bytes, bytes);
}
// One of them brings its bytes here.
inline void count_direct_read(Qp& qp, uint64_t bytes) {
  add_to(qp.block->direct_reads, 1);
  add_to(qp.block->direct_read_bytes, bytes);
}

// The first `requests` of the ring were carried out here and their results are written: they stand
// before the peer is told, so that its answer does not overtake them (standing.h). `sends`: entries
// were published in the outbox. The last two are of any of the requests.
[[gnu::always_inline]] inline void retire(Qp& qp, uint32_t requests, uint64_t bytes, bool sends,
                                          bool solicited, bool signaled) {
  const Direct& direct = *qp.direct;
  qp.block->sq_tail.store(qp.block->sq_tail.load(std::memory_order_relaxed) + requests,
                          std::memory_order_release);
  if (sends) {
    ipc::announce(*direct.bell, direct.responder.qpn);
    if (direct.wake.valid())
      ipc::tell(*direct.bell, direct.wake.get(), direct.bell_slot, solicited, ipc::kProgram);
  }
  count_direct(qp, requests, bytes);
  if (signaled) qp.send_cq()->notify(qp, false);
}

// Says where in the peer's memory the next stores go, before the first of them. False: the link or
// a key has ended since `keys` were counted (Peer::key_changes), so nothing may be stored. Who
// ended it either reads the new aim, or is seen here.
[[nodiscard]] inline bool aim(const Qp& qp, uint64_t addr, uint64_t length, uint32_t keys) {
  qp.block->aim.store(addr, std::memory_order_relaxed);
  qp.block->aim_length.store(length, std::memory_order_relaxed);
  base::AsymmetricFence::light(qp.context->cheap_fence);
  return qp.block->link.load(std::memory_order_acquire) ==
             static_cast<uint32_t>(ipc::Link::kDirect) &&
         qp.direct->peer->key_changes() == keys;
}

// All stores are done; what is left is the completion.
inline void say_nothing_follows(const Qp& qp) {
  qp.block->aim_length.store(0, std::memory_order_relaxed);
}

// Marks the link busy: until it is destroyed, no key is forgotten and no link is cut without being
// waited for, and a poll waits for the results of what others may have seen. An odd mark is stored
// before the first look at either (pairs with AsymmetricFence::heavy of Fabric::cut_out and
// Session::dereg_mr).
class Busy {
 public:
  Busy(ipc::Word& mark, bool cheap) : mark_(mark) {
    mark_.store(mark_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    base::AsymmetricFence::light(cheap);
  }
  ~Busy() { mark_.store(mark_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 private:
  ipc::Word& mark_;
};

}  // namespace vrdma::client
