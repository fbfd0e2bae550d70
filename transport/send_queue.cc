#include "transport/send_queue.h"

#include <array>
#include <cstring>
#include <utility>

#include "core/rdma/xrc.h"

namespace vrdma::transport {

using ipc::Token;
using verbs::QpState;
using verbs::WcStatus;

namespace {

// IBTA table 45, in units of 10 us.
constexpr std::array<uint32_t, 32> kRnrTimer{65536, 1,    2,    3,     4,     6,     8,     12,
                                             16,    24,   32,   48,    64,    96,    128,   192,
                                             256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                             4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
constexpr uint8_t kRnrForEver = 7;

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

rdma::Pace* pace_of(const rdma::Qp& qp) { return qp.context->device->pace; }

}  // namespace

SendQueue::SendQueue(rdma::Qp& qp, Lane& lane) : Runnable(lane), qp_(qp) {}

SendQueue::~SendQueue() {
  forget_request();
  if (rdma::Pace* pace = pace_of(qp_)) pace->leave(*this);
  runner().remove(this);
}

bool SendQueue::ours() {
  uint32_t token = qp_.block->token.load(std::memory_order_acquire);
  if (!ipc::is_workers(token)) return false;
  const uint32_t mine = qp_.context->epoch;
  if (token == ipc::token_word(ipc::token_in(token), mine)) return true;
  // A dead daemon's, or given by a program that has not heard of us yet.
  return qp_.block->token.compare_exchange_strong(token, ipc::token_word(Token::kWorker, mine));
}

void SendQueue::kick() {
  if (qp_.link.out != nullptr && qp_.link.out->srq != nullptr) qp_.link.out->srq->check_limit();
  if (waits_among_ == nullptr && !timer_.active()) runner().activate(this);
}

void SendQueue::resume() {
  if (waits_among_ != nullptr) {
    waits_among_->remove(this);
    if (waits_among_->empty()) waiter_word_->store(0);
    waits_among_ = nullptr;
    recheck_.reset();
  }
  runner().activate(this);
}

void SendQueue::link_changed() {
  // What was begun on a link that has gone is begun anew, and then finds no link.
  if (path_ && has_request_) path_->abandon();
  stop_waiting();
  if (qp_.can_send()) return;
  has_request_ = false;
  change_.reset();
  if (ours()) (void)let_go();  // before anybody is told, so that the program can flush
}

void SendQueue::stop_waiting() {
  resume();
  timer_.reset();
  timer_expired_ = false;
  rnr_left_.reset();
  block(false);
}

void SendQueue::start_timer(base::Duration delay) {
  timer_ = runner().loop().after(delay, [this] {
    timer_.reset();
    timer_expired_ = true;
    runner().activate(this);
  });
}

void SendQueue::forget_request() {
  if (path_ && has_request_) path_->abandon();
  has_request_ = false;
  change_.reset();
  stop_waiting();
}

void SendQueue::block(bool blocked) {
  const uint32_t word = blocked ? 1 : 0;
  if (qp_.block->blocked.load(std::memory_order_relaxed) != word)
    qp_.block->blocked.store(word, std::memory_order_relaxed);
}

bool SendQueue::run(Turn& turn) {
  do {
    switch (step(turn)) {
      case Next::kMore:
        break;
      case Next::kYield:
        return true;
      case Next::kSleep:
        return false;
    }
  } while (!turn.over());
  return true;
}

SendQueue::Next SendQueue::step(Turn& turn) {
  if (!ours()) return Next::kSleep;
  if (!has_request_) {
    if (!qp_.can_send()) return let_go();
    if (qp_.state() == QpState::kSqd) return Next::kSleep;
    const Next next = fetch();
    if (!has_request_) return next;
    turn.spend(kRequestCost);
  }
  if (!permitted()) {
    complete(WcStatus::kLocalQpOperationError, 0);
    return Next::kMore;
  }
  if (verbs::is_local(static_cast<verbs::Opcode>(request_.wqe.opcode)) &&
      verbs::is_connected(qp_.type))
    return change_key();
  rdma::Pace* const pace = pace_of(qp_);
  if (pace != nullptr && !pace->admit(*this)) {
    block(true);
    return Next::kSleep;
  }
  const Progress progress = path_->execute(request_);
  turn.spend(progress.moved);
  if (pace != nullptr) pace->spend(progress.moved, 0);
  switch (progress.kind) {
    case Progress::Kind::kDone:
      complete(progress.status, progress.byte_len);
      return Next::kMore;
    case Progress::Kind::kAgain:
      if (progress.moved == 0) turn.spend(kRequestCost);
      return Next::kMore;
    case Progress::Kind::kPending:
      return Next::kSleep;
    case Progress::Kind::kNoReceive:
      return wait_for_receive();
    case Progress::Kind::kNoLink:
      return wait_for_link();
  }
  return Next::kSleep;
}

// A requester without resources for READ and atomics does not begin one (IBTA 10.7.2.2).
bool SendQueue::permitted() const {
  const auto opcode = static_cast<verbs::Opcode>(request_.wqe.opcode);
  const bool answered = opcode == verbs::Opcode::kRdmaRead || verbs::is_atomic(opcode);
  return !answered || qp_.attributes.max_rd_atomic > 0;
}

// Takes the next request out of the ring. What stands there is the program's: copied, then checked.
SendQueue::Next SendQueue::fetch() {
  // By CAS: the program may take its question back at this very moment.
  uint32_t asked = ipc::token_word(Token::kAsked, qp_.context->epoch);
  if (qp_.runs_direct() && qp_.block->token.compare_exchange_strong(asked, value(Token::kClient)))
    return Next::kSleep;
  tail_ = qp_.block->sq_tail.load(std::memory_order_acquire);
  const uint32_t queued = qp_.block->sq_head.load(std::memory_order_acquire) - tail_;
  if (queued == 0) return idle();
  idle_since_ = {};
  const uint8_t* from = qp_.sq + uint64_t{tail_ & (qp_.sq_depth - 1)} * qp_.send_stride;
  std::memcpy(&request_.wqe, from, sizeof request_.wqe);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const auto& wqe = request_.wqe;
  const bool is_inline = (wqe.flags & ipc::kInline) != 0;
  if (queued > qp_.sq_depth || wqe.opcode >= verbs::kOpcodeCount ||
      wqe.num_sge > qp_.max_send_sge || (is_inline && wqe.inline_length > qp_.max_inline)) {
    ++qp_.context->device->fabric->counters.rings_corrupt;
    if (qp_.context->on_corrupt) qp_.context->on_corrupt();
    return Next::kSleep;
  }
  const size_t length = is_inline ? wqe.inline_length : wqe.num_sge * sizeof(verbs::Sge);
  std::memcpy(request_.inline_data, from + sizeof wqe, length);
  has_request_ = true;
  if (std::exchange(doubtful_, false)) (void)settle();
  return Next::kMore;
}

void SendQueue::mark(ipc::Mark mark, uint32_t receive) {
  qp_.block->mark_receive.store(receive, std::memory_order_relaxed);
  qp_.block->mark.store(ipc::mark_word(mark, tail_), std::memory_order_release);
}

// What a dead worker had done of the request in hand. True: it is completed. One of which nobody
// can have noticed anything is simply begun again.
bool SendQueue::settle() {
  const uint32_t word = qp_.block->mark.load(std::memory_order_acquire);
  const bool begun = word == ipc::mark_word(ipc::Mark::kBegun, tail_);
  if (!begun && word != ipc::mark_word(ipc::Mark::kDone, tail_)) return false;
  const auto opcode = static_cast<verbs::Opcode>(request_.wqe.opcode);
  const uint32_t answered = verbs::is_atomic(opcode) ? sizeof(uint64_t) : 0;
  if (!begun) {
    complete(WcStatus::kSuccess, answered);
    return true;
  }
  if (verbs::consumes_receive(opcode)) {
    const uint32_t index = qp_.block->mark_receive.load(std::memory_order_relaxed);
    const bool delivered = path_->delivered(request_, index);
    if (delivered) complete(WcStatus::kSuccess, 0);
    return delivered;
  }
  if (path_->written(request_)) {
    complete(WcStatus::kSuccess, 0);
    return true;
  }
  // A moment of nanoseconds: it may have been done, or not.
  ++qp_.context->device->fabric->counters.requests_in_doubt;
  complete(WcStatus::kRetryExceeded, 0);
  return true;
}

SendQueue::Next SendQueue::idle() {
  if (!qp_.runs_direct() && runner().spin().count() > 0) {
    const auto now = base::EventLoop::now();
    if (idle_since_ == base::TimePoint{}) idle_since_ = now;
    if (now - idle_since_ < runner().spin()) return Next::kYield;
  }
  idle_since_ = {};
  return let_go();
}

// kFree, and if work came in between, back. A queue pair that may not send lets go of what it has:
// the program flushes it.
SendQueue::Next SendQueue::let_go() {
  auto& token = qp_.block->token;
  token.store(value(Token::kFree), std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!qp_.can_send()) return Next::kSleep;
  if (qp_.block->sq_head.load(std::memory_order_relaxed) ==
      qp_.block->sq_tail.load(std::memory_order_relaxed))
    return Next::kSleep;
  uint32_t free = value(Token::kFree);
  return token.compare_exchange_strong(free, ipc::token_word(Token::kWorker, qp_.context->epoch))
             ? Next::kMore
             : Next::kSleep;
}

SendQueue::Next SendQueue::wait_for_receive() {
  if (!verbs::is_reliable(qp_.type)) {  // the message is lost, its sender does not learn
    complete(WcStatus::kSuccess, 0);
    return Next::kMore;
  }
  rdma::Qp& responder = *qp_.link.out;
  if (timer_expired_) {
    timer_expired_ = false;
    if (rnr_left_ == 0) {
      complete(WcStatus::kRnrRetryExceeded, 0);
      return Next::kMore;
    }
    --*rnr_left_;
  }
  const uint8_t retries = qp_.attributes.rnr_retry;
  if (retries != kRnrForEver && !rnr_left_) {
    if (retries == 0) {
      complete(WcStatus::kRnrRetryExceeded, 0);
      return Next::kMore;
    }
    rnr_left_ = static_cast<uint8_t>(retries - 1);
  }
  if (waits_among_ == nullptr) {
    rdma::Srq* named =
        responder.domain != nullptr ? responder.domain->find(request_.wqe.srqn) : nullptr;
    waits_among_ = named != nullptr ? &named->waiters : &responder.receive_waiters();
    waiter_word_ = named != nullptr ? &named->block->waiter : &responder.waiter_word();
    waits_among_->push_back(this);
    waiter_word_->store(1, std::memory_order_relaxed);
    block(true);
    // Pairs with AsymmetricFence::light of ibv_post_recv: it sees the waiter, or we its receive.
    registered_ = base::EventLoop::now();
    fenced_ = lane().fence_since(registered_);
    return Next::kMore;  // look again, now registered
  }
  if (!fenced_ && !recheck_.active()) {
    // Until there may be a fence again, a receive that was just posted could be missed.
    recheck_ = runner().loop().after(lane().fence_interval(), [this] {
      recheck_.reset();
      if (waits_among_ == nullptr) return;
      fenced_ = lane().fence_since(registered_);
      runner().activate(this);
    });
  }
  if (rnr_left_ && !timer_.active()) {
    const auto delay =
        std::chrono::microseconds(10) * kRnrTimer[responder.attributes.min_rnr_timer & 31];
    start_timer(delay);
  }
  return Next::kSleep;
}

SendQueue::Next SendQueue::wait_for_link() {
  if (!verbs::is_reliable(qp_.type)) {
    complete(WcStatus::kSuccess, 0);
    return Next::kMore;
  }
  if (timer_expired_) {
    path_->abandon();  // a port may have gone down in the middle
    complete(WcStatus::kRetryExceeded, 0);
    return Next::kMore;
  }
  block(true);
  if (qp_.attributes.timeout != 0 && !timer_.active()) {
    const auto silence = std::chrono::nanoseconds(4096) * (1ull << (qp_.attributes.timeout & 31)) *
                         (qp_.attributes.retry_cnt + 1);
    start_timer(std::chrono::duration_cast<base::Duration>(silence));
  }
  return Next::kSleep;
}

// Needs no peer. Completed when nobody uses what the old key named any more: neither a program on
// a direct link nor a reach thread.
SendQueue::Next SendQueue::change_key() {
  if (!change_) {
    rdma::Qp* only = nullptr;
    WcStatus status = WcStatus::kSuccess;
    if (static_cast<verbs::Opcode>(request_.wqe.opcode) == verbs::Opcode::kBindWindow) {
      status = rdma::bind_window(qp_, request_.wqe);
    } else if (rdma::Mw* mw = rdma::invalidatable(qp_, request_.wqe.imm); mw != nullptr) {
      rdma::unbind_window(*qp_.context, *mw);
      only = &qp_;
    } else {
      status = WcStatus::kLocalQpOperationError;
    }
    if (status != WcStatus::kSuccess) {
      complete(status, 0);
      return Next::kMore;
    }
    change_ = std::make_shared<Change>(Change{rdma::KeyUsers(*qp_.context, only)});
    qp_.context->process->reach()->barrier([this, waits = std::weak_ptr(change_)] {
      const auto change = waits.lock();
      if (change == nullptr) return;
      change->reached_gone = true;
      runner().activate(this);
    });
  }
  if (!change_->users.gone()) return Next::kYield;
  if (!change_->reached_gone) return Next::kSleep;
  complete(WcStatus::kSuccess, 0);
  return Next::kMore;
}

void SendQueue::complete(WcStatus status, uint32_t byte_len) {
  has_request_ = false;
  change_.reset();
  if (waits_among_ != nullptr || timer_.active() || rnr_left_ || timer_expired_) stop_waiting();
  block(false);
  if (rdma::Pace* pace = pace_of(qp_)) pace->spend(0, 1);
  qp_.results[tail_ & (qp_.sq_depth - 1)] = {static_cast<uint32_t>(status), byte_len};
  ++tail_;
  qp_.block->sq_tail.store(tail_, std::memory_order_release);
  const bool failed = status != WcStatus::kSuccess;
  rdma::TrafficCounters& traffic = qp_.context->device->traffic;
  if (failed)
    traffic.count_failed(status);
  else
    traffic.count(qp_.type, bytes_of(request_));
  if (failed || (request_.wqe.flags & ipc::kSignaled) != 0) qp_.send_cq->notify(qp_.qpn, failed);
  if (!failed) return qp_.note_drained();
  if (verbs::is_reliable(qp_.type)) {
    qp_.fail();
  } else {
    qp_.set_state(QpState::kSqe);  // IBTA 10.3.1.7
    link_changed();
    qp_.send_cq->notify(qp_.qpn, true);
  }
}

}  // namespace vrdma::transport
