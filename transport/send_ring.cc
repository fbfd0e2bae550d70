#include "transport/send_ring.h"

#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "core/ipc/bell.h"

namespace vrdma::transport {

using ipc::Token;
using verbs::WcStatus;

namespace {

uint32_t value(Token token) { return static_cast<uint32_t>(token); }

// What a request that succeeded moved, one way or the other.
uint64_t bytes_of(const rdma::WorkRequest& request) {
  const auto opcode = static_cast<verbs::Opcode>(request.wqe.opcode);
  if ((request.wqe.flags & ipc::kInline) != 0) return request.wqe.inline_length;
  if (opcode == verbs::Opcode::kAtomicWrite) return sizeof(uint64_t);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < request.wqe.num_sge; ++i) bytes += request.sges[i].length;
  return bytes;
}

// Counts a request that succeeded. The receiver of a datagram counts it too.
void count_traffic(rdma::Qp& qp, const rdma::WorkRequest& request) {
  rdma::TrafficCounters& traffic = qp.context->device->counters.traffic;
  const auto opcode = static_cast<verbs::Opcode>(request.wqe.opcode);
  const rdma::Traffic one{1, bytes_of(request)};
  traffic.count(qp.type, one.bytes);
  ++qp.by_worker.requests;
  qp.by_worker.bytes += one.bytes;
  if (verbs::is_local(opcode)) return;
  if (!verbs::is_connected(qp.type)) {
    const bool multicast = qp.type == verbs::QpType::kUd && request.wqe.ud.dgid[0] == 0xff;
    return traffic.port.send(one.bytes, multicast);
  }
  const bool answers = opcode == verbs::Opcode::kRdmaRead || verbs::is_atomic(opcode);
  qp.count_exchange(one, answers ? one : rdma::Traffic());
}

}  // namespace

// A dead daemon's, or given by a program that has not heard of us yet.
bool SendRing::make_ours(uint32_t token) {
  return qp_.block->token.compare_exchange_strong(
      token, ipc::token_word(Token::kWorker, qp_.context->epoch));
}

bool SendRing::has_requests() const {
  return ipc::is_workers(qp_.block->token.load(std::memory_order_acquire)) &&
         qp_.block->sq_head.load(std::memory_order_acquire) !=
             qp_.block->sq_tail.load(std::memory_order_acquire);
}

SendRing::Fetched SendRing::fetch(rdma::WorkRequest* request) {
  if (in_hand_ == 0) {
    // By CAS: the program may take its question back at this very moment.
    uint32_t asked = ipc::token_word(Token::kAsked, qp_.context->epoch);
    if (qp_.runs_direct() && qp_.block->token.compare_exchange_strong(asked, value(Token::kClient)))
      return Fetched::kGiven;
    tail_ = qp_.block->sq_tail.load(std::memory_order_acquire);
  }
  const uint32_t queued = qp_.block->sq_head.load(std::memory_order_acquire) - tail_;
  if (queued == in_hand_) return Fetched::kNothing;
  const uint32_t slot = (tail_ + in_hand_) & (qp_.sq_depth - 1);
  const uint8_t* from = qp_.sq + uint64_t{slot} * qp_.send_stride;
  std::memcpy(&request->wqe, from, sizeof request->wqe);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const auto& wqe = request->wqe;
  const bool is_inline = (wqe.flags & ipc::kInline) != 0;
  if (queued > qp_.sq_depth || queued < in_hand_ || wqe.opcode >= verbs::kOpcodeCount ||
      wqe.num_sge > qp_.max_send_sge || (is_inline && wqe.inline_length > qp_.max_inline)) {
    ++qp_.context->device->fabric->counters.rings_corrupt;
    if (qp_.context->on_corrupt) qp_.context->on_corrupt();
    return Fetched::kCorrupt;
  }
  const size_t length = is_inline ? wqe.inline_length : wqe.num_sge * sizeof(verbs::Sge);
  std::memcpy(request->inline_data, from + sizeof wqe, length);
  ++in_hand_;
  return Fetched::kRequest;
}

void SendRing::publish(const rdma::WorkRequest& request, WcStatus status, uint32_t byte_len) {
  --in_hand_;
  block(false);
  rdma::Device& device = *qp_.context->device;
  if (device.pace != nullptr) device.pace->spend(0, 1);
  qp_.results[tail_ & (qp_.sq_depth - 1)] = {static_cast<uint32_t>(status), byte_len};
  const bool failed = status != WcStatus::kSuccess;
  const bool tells = !failed && (request.wqe.flags & ipc::kSignaled) != 0;
  if (tells && !std::exchange(untold_, true)) qp_.send_cq->begin_telling();
  std::optional<rdma::Telling> telling;
  if (failed) telling.emplace(qp_);
  ++tail_;
  qp_.block->sq_tail.store(tail_, std::memory_order_release);
  if (failed)
    device.counters.traffic.count_failed(status);
  else
    count_traffic(qp_, request);
  if (!failed) {
    if (tells) ipc::announce(*qp_.send_cq->bell, qp_.qpn);
    if (in_hand_ == 0) qp_.note_drained();
    return;
  }
  // A program finds an error only in an error state, and is told of each completion once.
  qp_.failed_send = true;
  const bool reliable = verbs::is_reliable(qp_.type);
  if (reliable && qp_.state() != verbs::QpState::kErr) return qp_.fail();
  if (!reliable) {
    qp_.set_state(verbs::QpState::kSqe);  // IBTA 10.3.1.7
    if (qp_.sender) qp_.sender->link_changed();
  }
  qp_.tell_failed_send();
}

bool SendRing::let_go() {
  auto& token = qp_.block->token;
  token.store(value(Token::kFree), std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!qp_.can_send()) return false;
  if (qp_.block->sq_head.load(std::memory_order_relaxed) ==
      qp_.block->sq_tail.load(std::memory_order_relaxed))
    return false;
  uint32_t free = value(Token::kFree);
  return token.compare_exchange_strong(free, ipc::token_word(Token::kWorker, qp_.context->epoch));
}

rdma::Reach::Marker SendRing::marker(ipc::Mark done) const {
  uint8_t* const arena = qp_.context->arena->bytes();
  const uint64_t slot = tail_ & (qp_.sq_depth - 1);
  uint8_t* const wqe = arena + (qp_.sq - arena) + slot * qp_.send_stride;
  return [arena = qp_.context->arena, block = qp_.block, wqe, tail = tail_, done](ipc::Mark how,
                                                                                  uint64_t stood) {
    // Of an operand in place, the old value is known only when it has been changed.
    std::memcpy(wqe + offsetof(ipc::SendWqe, old_value), &stood, sizeof stood);
    if (how == ipc::Mark::kBegun)
      block->mark_receive.store(kOldValueStands, std::memory_order_relaxed);
    const auto mark = how == ipc::Mark::kDone ? done : how;
    block->mark.store(ipc::mark_word(mark, tail), std::memory_order_release);
  };
}

SendRing::Interrupted SendRing::interrupted() const {
  const uint32_t word = qp_.block->mark.load(std::memory_order_acquire);
  for (const auto mark : {ipc::Mark::kBegun, ipc::Mark::kDone, ipc::Mark::kChanged})
    if (word == ipc::mark_word(mark, tail_))
      return {mark, qp_.block->mark_receive.load(std::memory_order_relaxed)};
  return {ipc::Mark::kNone, 0};
}

}  // namespace vrdma::transport
