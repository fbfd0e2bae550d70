#include "transport/net/sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/verbs/mtu.h"
#include "core/wire/mad.h"

namespace vrdma::transport::net {

using rdma::Outcome;
using rdma::Plan;
using rdma::WorkRequest;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

NetSender::NetSender(rdma::Qp& qp, Lane& lane, std::unique_ptr<Port> port, Counters& counters,
                     const Options& options)
    : Runnable(lane),
      qp_(qp),
      ring_(qp),
      counters_(counters),
      options_(options),
      port_(std::move(port)),
      attributes_(attributes()),
      responder_(attributes_, *this, counters),
      share_(port_->shared_window(), [this] { resume(); }) {
  set_session(qp.context->id);
}

NetSender::~NetSender() {
  if (rdma::Pace* pace = qp_.context->device->pace) pace->leave(*this);
  if (rdma::Buffers* buffers = qp_.context->device->buffers) buffers->leave(*this);
  stop_waiting_for_receive();
  lane().runner().remove(this);
}

Attributes NetSender::attributes() const {
  const verbs::QpAttributes& its = qp_.attributes;
  const auto& remote = qp_.link.remote;
  Attributes made;
  made.reliable = verbs::is_reliable(qp_.type);
  made.mtu = verbs::mtu_bytes(its.path_mtu);
  made.dest_qpn = qp_.dest_qpn();
  made.sq_psn = remote ? remote->sq_psn : its.sq_psn;
  made.rq_psn = remote ? remote->rq_psn : its.rq_psn;
  made.timeout = its.timeout;
  made.retry_cnt = its.retry_cnt;
  made.rnr_retry = its.rnr_retry;
  made.min_rnr_timer = its.min_rnr_timer;
  made.max_rd_atomic = its.max_rd_atomic;
  made.max_dest_rd_atomic = its.max_dest_rd_atomic;
  made.window = options_.window;
  made.keeps_early = options_.keeps_early;
  return made;
}

namespace {

bool is_response(const wire::Packet& packet) {
  return wire::info(packet.operation).family == wire::OperationInfo::Family::kResponse;
}

}  // namespace

wire::Service NetSender::service() const {
  return verbs::is_reliable(qp_.type) ? wire::Service::kRc : wire::Service::kUc;
}

bool NetSender::awaits(const wire::Packet& packet) const {
  if (packet.service != service()) return false;
  return is_response(packet) ? requester_ && requester_->in_flight(packet.psn)
                             : responder_.awaits(packet.psn);
}

void NetSender::receive(const wire::Packet& packet, bool marked, base::TimePoint now) {
  if (packet.service != service() && packet.service != wire::Service::kCnp) {
    ++counters_.bad_service;
    return;
  }
  if (!wire::pkeys_match(packet.pkey, wire::kDefaultPkey)) {
    ++counters_.bad_pkey;
    return;
  }
  if (packet.service == wire::Service::kCnp) {
    ++counters_.rp_cnp_handled;
    return congestion_.notified(now);
  }
  if (qp_.context->parked) return;  // it is sent again
  if (is_closing()) {
    ++counters_.bad_state;
    return;
  }
  // A mark counts only on a packet that the connection expects: any host can mark others.
  if (marked && awaits(packet)) note_mark(packet, now);
  if (is_response(packet)) {
    if (requester_ && qp_.can_send()) requester_->receive(packet, now);
    note_on_way();
  } else if (redoing_) {
    return;  // it comes again
  } else if (qp_.can_receive() || (responder_.is_over() && qp_.state() == QpState::kErr)) {
    responder_.receive(packet);
  } else {
    ++counters_.bad_state;
    return;
  }
  resume();
}

// Of acknowledgements the peer sends no more than it must anyway.
void NetSender::note_mark(const wire::Packet& packet, base::TimePoint now) {
  ++counters_.np_ecn_marked_roce_packets;
  if (packet.payload_length == 0 || now - cnp_at_ < Congestion::kCnpInterval) return;
  cnp_at_ = now;
  cnp_due_ = true;
}

void NetSender::link_changed() {
  resume();
  const bool closing = is_closing();
  if (!qp_.can_receive() || closing) {
    receiving_ = std::make_shared<int>(0);
    storing_ = redoing_ = false;
    stop_waiting_for_receive();
    receiver_.abandon();
    responder_.forget_pending();
  }
  if (!qp_.can_send() || closing) sending_ = std::make_shared<int>(0);
  if (qp_.can_send()) return;
  if (requester_) requester_->clear();
  window_.clear();
  waiting_.reset();
  key_change_.forget();
  if (rdma::Buffers* buffers = qp_.context->device->buffers) buffers->leave(*this);
  ring_.put_back();
  if (ring_.ours()) (void)ring_.let_go();  // before the program is told, so that it can flush
}

void NetSender::attributes_changed() {
  attributes_ = attributes();
  port_->attributes_changed();
  share_.move_to(port_->shared_window());
  resume();
}

std::optional<rdma::Sender::OnNetwork> NetSender::on_network() const {
  OnNetwork now;
  now.rate = static_cast<uint64_t>(congestion_.rate());
  if (!requester_) return now;
  const auto smoothed = requester_->round_trip().smoothed();
  now.round_trip_us = static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(smoothed).count());
  now.window = requester_->window();
  now.unanswered = requester_->unanswered();
  now.losses = requester_->losses();
  return now;
}

// --- turns ---

bool NetSender::run(Turn& turn) {
  const bool more = send(turn);
  note_on_way();
  share_.end_turn();
  return more;
}

bool NetSender::send(Turn& turn) {
  if (is_closing() || qp_.context->parked) return false;
  // Not one for each queue pair: it is large.
  static thread_local Burst scratch;
  if (std::exchange(look_again_, false)) responder_.resume();
  if (!responder_.lacks_receive()) stop_waiting_for_receive();
  do {
    Burst& burst = refused_ ? *refused_ : scratch;
    if (!refused_) {
      switch (next(&burst)) {
        case Next::kBurst:
          break;
        case Next::kAgain:
          turn.spend(kRequestCost);
          continue;
        case Next::kYield:
          return true;
        case Next::kNothing:
          watch(turn.now());
          return false;
      }
    }
    note_sent(0);
    note_received();
    // Out of a port that is down comes nothing.
    const uint32_t taken = qp_.context->device->port_active() ? port_->send(burst) : burst.count;
    const uint64_t bytes = burst.payload_bytes(taken);
    congestion_.sent(bytes, turn.now());
    note_on_way();
    turn.spend(bytes + kRequestCost);
    if (rdma::Pace* pace = qp_.context->device->pace) pace->spend(bytes, 0);
    if (taken < burst.count) {
      if (!refused_) refused_ = std::make_unique<Burst>(burst);
      refused_->drop(taken);
      scratch.bytes = nullptr;
      watch(turn.now());
      return false;
    }
    burst.bytes = nullptr;
    refused_.reset();
  } while (!turn.over());
  watch(turn.now());
  return true;
}

NetSender::Next NetSender::next(Burst* burst) {
  if (std::exchange(cnp_due_, false)) {
    burst->count = 0;
    burst->bytes = nullptr;
    burst->add() = wire::make_cnp(attributes_.dest_qpn);
    ++counters_.np_cnp_sent;
    return Next::kBurst;
  }
  const base::TimePoint now = lane().loop().now();
  paced_ = !congestion_.may_send(now);
  // They take turns: a peer that reads without end leaves time for requests.
  const bool requests_first = std::exchange(answered_, false);
  const auto answer = [&] { return answered_ = !paced_ && responder_.next(burst); };
  if (!requests_first && answer()) return Next::kBurst;
  const Next next = next_request(burst, now);
  if (next != Next::kNothing || !requests_first) return next;
  return answer() ? Next::kBurst : Next::kNothing;
}

NetSender::Next NetSender::next_request(Burst* burst, base::TimePoint now) {
  if (!qp_.can_send()) {
    if (ring_.ours()) (void)ring_.let_go();
    return Next::kNothing;
  }
  make_requester();
  if (waiting_ && window_.empty()) return finish_waiting();
  if (paced_) return Next::kNothing;
  requester_->set_burst(congestion_.burst(attributes_.mtu, Burst::kMost));
  // The pace is asked for each burst, also for one that is sent again.
  rdma::Pace* const pace = qp_.context->device->pace;
  if (pace != nullptr && (ring_.in_hand() > 0 || ring_.ours()) && !pace->admit(*this))
    return Next::kNothing;
  if (!requester_->has_lost() && !share_.may_send()) return Next::kNothing;
  if (requester_->next(burst, now)) return Next::kBurst;
  if (waiting_ || !requester_->wants_request() || qp_.state() == QpState::kSqd)
    return Next::kNothing;
  return fetch();
}

void NetSender::make_requester() {
  if (requester_) return;
  Requester::Memory& memory = *this;
  requester_.emplace(attributes_, memory, counters_);
}

NetSender::Next NetSender::fetch() {
  if (!ring_.ours()) return Next::kNothing;
  WorkRequest request;
  switch (ring_.fetch(&request)) {
    case SendRing::Fetched::kNothing:
      return idle();
    case SendRing::Fetched::kGiven:
    case SendRing::Fetched::kCorrupt:
      return Next::kNothing;
    case SendRing::Fetched::kRequest:
      break;
  }
  idle_since_ = {};
  begin(request);
  return Next::kAgain;
}

// As SerialSender::idle(): the token is kept for a moment.
NetSender::Next NetSender::idle() {
  if (ring_.in_hand() > 0) return Next::kNothing;
  if (lane().runner().spin().count() > 0) {
    const base::TimePoint now = lane().loop().now();
    if (idle_since_ == base::TimePoint{}) idle_since_ = now;
    if (now - idle_since_ < lane().runner().spin()) return Next::kYield;
  }
  idle_since_ = {};
  return ring_.let_go() ? Next::kAgain : Next::kNothing;
}

namespace {

// What a queue pair of an unreliable connection has (IBTA table 91).
bool is_unreliable_operation(Opcode opcode) {
  return opcode == Opcode::kSend || opcode == Opcode::kSendWithImm ||
         opcode == Opcode::kRdmaWrite || opcode == Opcode::kRdmaWriteWithImm;
}

}  // namespace

void NetSender::begin(WorkRequest& request) {
  const auto opcode = static_cast<Opcode>(request.wqe.opcode);
  const auto wait = [&](WcStatus status) {
    waiting_ = request;
    waiting_status_ = status;
  };
  if (verbs::is_local(opcode)) {
    if (after_takeover_ && ring_.in_hand() == 1 && ring_.interrupted().mark != ipc::Mark::kNone)
      key_change_.after_crash(request, qp_);
    after_takeover_ = false;
    return wait(WcStatus::kSuccess);
  }
  // A requester without resources for READ and atomics does not begin one (IBTA 10.7.2.2).
  if ((has_answer(opcode) && qp_.attributes.max_rd_atomic == 0) ||
      (!verbs::is_reliable(qp_.type) && !is_unreliable_operation(opcode)))
    return wait(WcStatus::kLocalQpOperationError);
  Plan plan;
  const Outcome outcome = rdma::prepare_requester(request, {qp_.memory(), qp_.pd->handle}, &plan);
  if (outcome != Outcome::kDone)
    return wait(outcome == Outcome::kLocalLength ? WcStatus::kLocalLengthError
                                                 : WcStatus::kLocalProtectionError);
  window_.push_back({request, next_number_++});
  Request made;
  made.opcode = opcode;
  made.length = plan.length;
  made.remote_addr = request.wqe.rdma.remote_addr;
  made.rkey = request.wqe.rdma.rkey;
  made.compare_add = request.wqe.rdma.compare_add;
  made.swap = request.wqe.rdma.swap;
  made.imm = request.wqe.imm;
  made.solicited = (request.wqe.flags & ipc::kSolicited) != 0;
  made.fence = (request.wqe.flags & ipc::kFence) != 0;
  requester_->post(made);
}

NetSender::Next NetSender::finish_waiting() {
  WcStatus status = waiting_status_;
  if (verbs::is_local(static_cast<Opcode>(waiting_->wqe.opcode))) {
    const Progress progress = key_change_.execute(*waiting_, qp_, ring_, [this] { resume(); });
    if (progress.kind == Progress::Kind::kYield) return Next::kYield;
    if (progress.kind != Progress::Kind::kDone) return Next::kNothing;
    status = progress.status;
  }
  const WorkRequest request = *std::exchange(waiting_, std::nullopt);
  ring_.complete(request, status, 0);
  return Next::kAgain;
}

void NetSender::watch(base::TimePoint now) {
  constexpr auto kNever = base::TimePoint::max();
  base::TimePoint at = kNever;
  if (requester_) at = requester_->deadline().value_or(kNever);
  // Also if it may send by now: nothing else would call it again.
  if (paced_ || !congestion_.may_send(now)) at = std::min(at, congestion_.free_at());
  if (at == kNever || (timer_.active() && timer_at_ <= at)) return;
  timer_at_ = at;
  timer_ = lane().loop().after(std::max(base::Duration(0), base::Duration(at - now)), [this] {
    timer_.reset();
    if (requester_ && !qp_.context->parked) requester_->tick(lane().loop().now());
    resume();
  });
}

// --- the requester's memory ---

NetSender::InHand* NetSender::find(uint32_t number) {
  const uint32_t index = window_.empty() ? 0 : number - window_.front().number;
  return index < window_.size() ? &window_[index] : nullptr;
}

// Keys are looked up again, so that memory that was deregistered meanwhile is not touched.
Access NetSender::gather(uint32_t number, uint64_t offset, uint32_t length, rdma::Buffer* bytes) {
  InHand* const in_hand = find(number);
  Plan plan;
  if (in_hand == nullptr ||
      rdma::prepare_requester(in_hand->request, {qp_.memory(), qp_.pd->handle}, &plan) !=
          Outcome::kDone)
    return Access::kFailed;
  rdma::Buffer buffer = rdma::make_buffer(qp_.context->device->buffers, length, *this);
  if (buffer == nullptr) return Access::kBusy;
  *bytes = buffer;
  const bool moved = move(rdma::slice(plan.source, offset, length), *qp_.context->process, nullptr,
                          buffer, 0, nullptr, when_done(sending_, [this, buffer](bool ok) {
                            requester_->gathered(ok ? buffer : nullptr);
                          }));
  return moved ? Access::kDone : Access::kPending;
}

Access NetSender::scatter(uint32_t number, uint64_t offset, const uint8_t* bytes, uint32_t length) {
  InHand* const in_hand = find(number);
  Plan plan;
  if (in_hand == nullptr ||
      rdma::prepare_requester(in_hand->request, {qp_.memory(), qp_.pd->handle}, &plan) !=
          Outcome::kDone)
    return Access::kFailed;
  rdma::Process& process = *qp_.context->process;
  rdma::Reach::Job job;
  job.write = true;
  // Only read.
  job.parts = move_in_place(rdma::slice(plan.target, offset, length), process, true,
                            const_cast<uint8_t*>(bytes));
  if (job.parts.empty()) return Access::kDone;
  job.buffer = rdma::make_buffer(qp_.context->device->buffers, length);
  if (job.buffer == nullptr) return Access::kBusy;
  std::memcpy(job.buffer->data(), bytes, length);
  const auto scattered = [this, number, offset](bool ok) {
    requester_->scattered(number, offset, ok);
  };
  job.done = while_arriving(qp_, when_done(sending_, scattered));
  process.reach()->submit(std::move(job));
  return Access::kPending;
}

// A completion with an error calls link_changed() on its way.
void NetSender::complete(uint32_t, WcStatus status, uint32_t byte_len) {
  const WorkRequest request = window_.front().request;
  window_.pop_front();
  if (status == WcStatus::kSuccess) note_sent(1);
  ring_.complete(request, status, byte_len);
  resume();
}

// --- waiting for a receive ---

void NetSender::receive_posted() {
  stop_waiting_for_receive();
  look_again_ = true;
  resume();
}

// The program rings when it posts a receive. It may have posted one just now.
void NetSender::wait_for_receive() {
  if (waiters_ != nullptr) return;
  waiters_ = &qp_.receive_waiters();
  waiter_word_ = qp_.srq != nullptr ? &qp_.srq->block->waiter : &qp_.block->rq_waiter;
  waiters_->push_back(this);
  waiter_word_->store(1, std::memory_order_relaxed);
  const base::TimePoint now = lane().loop().now();
  if (lane().fence_since(now)) {
    look_again_ = true;
    return resume();
  }
  recheck_ = lane().loop().after(lane().fence_interval(), [this, now] {
    recheck_.reset();
    if (waiters_ == nullptr) return;
    (void)lane().fence_since(now);
    look_again_ = true;
    resume();
  });
}

void NetSender::stop_waiting_for_receive() {
  if (waiters_ == nullptr) return;
  waiters_->remove(this);
  if (waiters_->empty()) waiter_word_->store(0);
  waiters_ = nullptr;
  recheck_.reset();
}

}  // namespace vrdma::transport::net
