// The fast path of the most frequent requests.
//
// A SEND or an RDMA WRITE of one element, whose memory at both ends is in place, to a queue pair
// with a private receive queue. The general executor's prepare() looks everything up for each
// request; this path uses the work request and cached lookups. It executes the request by the
// executor's copy_ordered() and receive_entry(), and retires it like any request on a direct link.
// Consecutive requests form a *run*: marked busy, published and announced once. A request that does
// not qualify has no effect here and goes to the executor, which also reports its errors.
#include <cstddef>
#include <cstring>

#include "client/device/datapath/direct.h"

namespace vrdma::client {

namespace {

// A run ends after this many bytes, and a message of as many is one of its own, so that a thread
// that waits for the mark or for a completion waits no longer than for one long message.
constexpr uint64_t kRunBytes = 16384;

// The address of a request's payload. nullptr: unknown.
const uint8_t* source_of(const Qp& qp, const ibv_send_wr& wr, const ibv_sge& sge) {
  // Not always the element's address: a region may have another iova.
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) return qp.source.find(sge.lkey, sge.addr, sge.length);
  return sge.length <= qp.cap.max_inline_data ? reinterpret_cast<const uint8_t*>(sge.addr)
                                              : nullptr;
}

// Executes one request, except for its result. False: a lookup is not cached, or a key has ended
// since `keys` were counted.
bool write(const Qp& qp, const ibv_send_wr& wr, const ibv_sge& sge, const uint8_t* from,
           uint32_t keys) {
  const Direct& direct = *qp.direct;
  const uint32_t access = direct.block->access.load(std::memory_order_relaxed);
  uint8_t* const to = direct.target.find(wr.wr.rdma.rkey, wr.wr.rdma.remote_addr, sge.length);
  if (to == nullptr || (access & verbs::kRemoteWrite) == 0) return false;
  if (!aim(qp, direct.target.address_of(to), sge.length, keys)) return false;
  rdma::copy_ordered(to, from, sge.length);
  return true;
}

bool send(const Qp& qp, const ibv_send_wr& wr, const ibv_sge& sge, const uint8_t* from,
          uint32_t keys) {
  const Direct& direct = *qp.direct;
  const uint32_t index = direct.outbox->head.load(std::memory_order_relaxed);
  const verbs::Sge* const receive = direct.ahead.find(index);
  if (receive == nullptr || receive->length < sge.length) return false;
  uint8_t* const to = direct.receive.find(receive->lkey, receive->addr, sge.length);
  if (to == nullptr) return false;
  if (!aim(qp, direct.receive.address_of(to), sge.length, keys)) return false;
  rdma::copy_ordered(to, from, sge.length);
  ipc::publish(direct.outbox, direct.outbox_depth, index,
               rdma::receive_entry(index & (direct.responder.receives.depth - 1), sge.length,
                                   verbs::Opcode::kSend, (wr.send_flags & IBV_SEND_SOLICITED) != 0,
                                   0, verbs::WcStatus::kSuccess));
  return true;
}

bool is_plain(const ibv_send_wr& wr, ibv_wr_opcode opcode) {
  return wr.opcode == opcode && wr.num_sge == 1 &&
         wr.sg_list[0].length - 1 < verbs::kMaxMessage;  // a key of zero bytes is not checked
}

// Executes the requests of this opcode at the beginning of the list, at most `room` > 0.
template <ibv_wr_opcode opcode>
ibv_send_wr* run(Qp& qp, ibv_send_wr* wr, uint32_t room) {
  constexpr bool kSends = opcode == IBV_WR_SEND;
  Direct& direct = *qp.direct;
  const Busy busy(qp.block->busy, qp.context->cheap_fence);
  if (qp.block->link.load(std::memory_order_acquire) != static_cast<uint32_t>(ipc::Link::kDirect) ||
      !qp.may_execute())
    return wr;
  const uint32_t keys = direct.peer->key_changes();
  const uint32_t begin = qp.sq_head;
  uint32_t head = begin;
  uint64_t bytes = 0;
  unsigned flags = qp.sq_sig_all ? IBV_SEND_SIGNALED : 0;  // of all requests of the run
  const unsigned always = flags;
  for (; wr != nullptr && head - begin != room && is_plain(*wr, opcode); wr = wr->next) {
    const ibv_sge& sge = wr->sg_list[0];
    if (head != begin && sge.length >= kRunBytes) break;
    const uint8_t* const from = source_of(qp, *wr, sge);
    if (from == nullptr) break;
    if (!(kSends ? send(qp, *wr, sge, from, keys) : write(qp, *wr, sge, from, keys))) break;
    const uint32_t slot = head++ & (qp.sq_depth - 1);
    const unsigned its = wr->send_flags | always;
    flags |= its;
    qp.posted[slot] = {wr->wr_id, static_cast<uint8_t>(opcode), (its & IBV_SEND_SIGNALED) != 0};
    qp.results[slot] = {IBV_WC_SUCCESS, 0};
    bytes += sge.length;
    if (bytes >= kRunBytes) room = head - begin;
  }
  if (head == begin) return wr;
  qp.sq_head = head;
  retire(qp, head - begin, bytes, kSends, (flags & IBV_SEND_SOLICITED) != 0,
         (flags & IBV_SEND_SIGNALED) != 0);
  qp.block->sq_head.store(head, std::memory_order_relaxed);
  return wr;
}

// Copies the known posted receives from `index` on, so that not every message has to fetch a cache
// line of the peer. False: none is posted.
bool read_ahead(Direct& direct, uint32_t index) {
  rdma::ReceiveQueue& queue = direct.responder.receives;
  ReceivesAhead& ahead = direct.ahead;
  if (!rdma::is_known(queue, index)) queue.known_head = queue.head->load(std::memory_order_acquire);
  ahead.begin = ahead.end = index;
  while (ahead.end - index < ahead.kMost && rdma::is_known(queue, ahead.end)) {
    const uint8_t* const wqe = rdma::receive_at(queue, ahead.end);
    const auto elements = __atomic_load_n(
        reinterpret_cast<const uint32_t*>(wqe + offsetof(ipc::RecvWqe, num_sge)), __ATOMIC_RELAXED);
    verbs::Sge& sge = ahead.sges[ahead.end++ % ahead.kMost];
    std::memcpy(&sge, wqe + sizeof(ipc::RecvWqe), sizeof sge);
    if (elements != 1) sge.length = 0;  // too short for any message
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return ahead.end != index;
}

// Looks up what the request needs and is not cached. False: the request does not qualify.
[[gnu::noinline]] bool learn(Qp& qp, const ibv_send_wr& wr) {
  Direct& direct = *qp.direct;
  const rdma::Responder& responder = direct.responder;
  if (!is_plain(wr, IBV_WR_RDMA_WRITE) && !is_plain(wr, IBV_WR_SEND)) return false;
  const ibv_sge& sge = wr.sg_list[0];
  bool learned = false;
  const auto look_up = [&learned, length = sge.length](
                           KnownStretch& stretch, const rdma::Memory& memory, rdma::KeyUser user,
                           uint32_t access, uint32_t key, uint64_t addr) {
    if (stretch.find(key, addr, length) != nullptr) return true;
    learned = true;
    return stretch.learn(memory, user, access, key, addr, length);
  };
  if ((wr.send_flags & IBV_SEND_INLINE) == 0 &&
      !look_up(qp.source, qp.context->memory(), {qp.pd_handle}, 0, sge.lkey, sge.addr))
    return false;
  if (wr.opcode == IBV_WR_RDMA_WRITE)
    return look_up(direct.target, responder.memory, {responder.pd, responder.qpn},
                   verbs::kRemoteWrite, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr) &&
           learned;
  if (direct.shared.block != nullptr) return false;
  const uint32_t index = direct.outbox->head.load(std::memory_order_relaxed);
  if (direct.ahead.find(index) == nullptr) learned = read_ahead(direct, index);
  const verbs::Sge* const receive = direct.ahead.find(index);
  return receive != nullptr && receive->length >= sge.length &&
         look_up(direct.receive, responder.memory, {responder.receive_pd}, verbs::kLocalWrite,
                 receive->lkey, receive->addr) &&
         learned;
}

}  // namespace

ibv_send_wr* execute_plainly(Qp& qp, ibv_send_wr* wr) {
  while (wr != nullptr && qp.owns_token && ring_is_empty(qp)) {
    const uint32_t room = room_of(qp);
    if (room == 0) break;
    ibv_send_wr* const rest = wr->opcode == IBV_WR_SEND ? run<IBV_WR_SEND>(qp, wr, room)
                                                        : run<IBV_WR_RDMA_WRITE>(qp, wr, room);
    if (rest == wr && !learn(qp, *wr)) break;
    wr = rest;
  }
  return wr;
}

}  // namespace vrdma::client
