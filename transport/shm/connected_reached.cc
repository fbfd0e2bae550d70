// ConnectedSender, where memory must be reached: by relays where both sides must, and else slice by
// slice through a buffer.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/shm/connected.h"

namespace vrdma::transport {

using rdma::Outcome;
using rdma::Plan;
using verbs::WcStatus;

namespace {

// Of a relay; and of its buffer, which with what it comes from and goes to fits into a cache.
constexpr uint64_t kRelayed = 1u << 20, kRelayBuffer = 1u << 17;

bool all_reached(const rdma::PieceList& list) {
  return std::all_of(list.pieces, list.pieces + list.count,
                     [](const rdma::Piece& piece) { return piece.reached; });
}

std::vector<rdma::Reach::Part> parts_of(const rdma::PieceList& list, const rdma::Process& worker) {
  std::vector<rdma::Reach::Part> parts;
  uint64_t offset = 0;
  for (uint32_t i = 0; i < list.count; ++i) {
    parts.push_back(rdma::part_of(list.pieces[i], offset, worker));
    offset += list.pieces[i].length;
  }
  return parts;
}

}  // namespace

// What both sides must be reached for. After an interruption a slice is moved without, so that
// whoever changes keys all the time does not hold it up.
bool ConnectedSender::relay(const Plan& plan) {
  using rdma::Reach;
  if (std::exchange(relay_end_, Reach::RelayEnd::kDone) == Reach::RelayEnd::kInterrupted)
    return false;
  if (plan.length == 0 || !all_reached(plan.source) || !all_reached(plan.target)) return false;
  const bool to_local = plan.opcode == verbs::Opcode::kRdmaRead;
  rdma::Process& local = *qp_.context->process;
  rdma::Process& remote = *receiver_.home().process;
  const uint64_t most = qp_.context->device->pace != nullptr ? kReachedSlice : kRelayed;
  const bool writes = plan.opcode == verbs::Opcode::kRdmaWrite;
  const uint64_t left = plan.length - done_;
  uint64_t length = std::min(left, most);
  if (writes && length < left)  // the end stays whole
    length = std::min(length, left - end_of(plan.target, plan.length));
  rdma::Reach::Relay relay;
  relay.length = length;
  relay.from = parts_of(rdma::slice(plan.source, done_, length), to_local ? remote : local);
  relay.to = parts_of(rdma::slice(plan.target, done_, length), to_local ? local : remote);
  if (writes && length == left) {
    // The end by itself.
    rdma::Reach::Part& last = relay.to.back();
    const uint64_t before = last.length - std::min(last.length, end_of(plan.target, plan.length));
    if (before > 0) {
      rdma::Reach::Part end = last;
      last.length = before;
      end.addr += before;
      end.offset += before;
      end.length -= before;
      relay.to.push_back(std::move(end));
    }
    relay.mark = if_it_goes_on(ring_.marker());
  }
  relay.buffer = make_buffer(std::min(length, kRelayBuffer));
  if (relay.buffer == nullptr) return true;  // the queue runs again
  relay.arrival = (to_local ? qp_ : *qp_.link.out).arrival();
  relay.payer = qp_.context->device->meter;
  relay.done = [this, alive = std::weak_ptr(alive_)](uint64_t moved, rdma::Reach::RelayEnd how) {
    if (alive.expired()) return;
    --jobs_;
    relayed_ = moved;
    relay_end_ = how;
    resume();
  };
  relaying_ = (to_local ? remote : local)
                  .reach()
                  ->relay(*(to_local ? local : remote).reach(), std::move(relay));
  if (relaying_ != nullptr) ++jobs_;
  return relaying_ != nullptr;
}

// If it was interrupted, the keys have been looked at again since.
Progress ConnectedSender::relayed(rdma::WorkRequest& request, const Plan& plan) {
  relaying_ = nullptr;
  if (relay_end_ == rdma::Reach::RelayEnd::kNotRead ||
      relay_end_ == rdma::Reach::RelayEnd::kNotWritten) {
    stage_ = relay_end_ == rdma::Reach::RelayEnd::kNotRead ? Stage::kRead : Stage::kWritten;
    return refuse(failure(plan), plan, request);
  }
  done_ += relayed_;
  return go_on(request, plan, relayed_);
}

// One slice: source -> buffer -> target, each by pointers where the memory is in place and by the
// owner's reach thread where it is not. Entered again after each job; `stage_` tells how far it is.
Progress ConnectedSender::step_reached(rdma::WorkRequest& request, const Plan& plan) {
  const bool to_local = plan.opcode == verbs::Opcode::kRdmaRead;
  rdma::Process& local = *qp_.context->process;
  rdma::Process& remote = *receiver_.home().process;
  // What was read is moved, also if the target's end is another one since.
  const uint64_t length = stage_ == Stage::kStart ? slice_length(plan) : buffer_->size();
  const bool ends = plan.opcode == verbs::Opcode::kRdmaWrite && done_ + length == plan.length;
  if (stage_ == Stage::kStart && relay(plan)) return {Progress::Kind::kPending};
  if (stage_ == Stage::kStart) {
    buffer_ = make_buffer(length);
    if (buffer_ == nullptr) return {Progress::Kind::kPending};
    stage_ = Stage::kRead;
    if (!move(rdma::slice(plan.source, done_, length), to_local ? remote : local, nullptr, buffer_))
      return {Progress::Kind::kPending};
  }
  if (failed_) return refuse(failure(plan), plan, request);
  if (stage_ == Stage::kRead) {
    stage_ = Stage::kWritten;
    (void)move(rdma::slice(plan.target, done_, length), to_local ? local : remote,
               to_local ? &qp_ : qp_.link.out, buffer_, ends);
    if (jobs_ > 0) return {Progress::Kind::kPending};
    if (failed_) return refuse(failure(plan), plan, request);
  }
  done_ += length;
  return go_on(request, plan, length);
}

// The dead worker stored the end of the WRITE last. If the target's end has the bytes from before,
// the worker did not store it. If others have stored there since, the order is as if they had done
// so after this request.
Progress ConnectedSender::step_doubt(const rdma::WorkRequest& request, const Plan& plan) {
  const uint64_t end = end_of(plan.target, plan.length), from = plan.length - end;
  if (stage_ == Stage::kStart) {
    buffer_ = make_buffer(end);
    found_ = make_buffer(end);
    if (buffer_ == nullptr || found_ == nullptr) return {Progress::Kind::kPending};
    stage_ = Stage::kRead;
    (void)move(rdma::slice(plan.source, from, end), *qp_.context->process, nullptr, buffer_);
    (void)move(rdma::slice(plan.target, from, end), *receiver_.home().process, nullptr, found_);
    if (jobs_ > 0) return {Progress::Kind::kPending};
  }
  const bool failed = failed_;
  const bool stored = *found_ == *buffer_ ||
                      std::memcmp(found_->data(), &request.wqe.old_value, found_->size()) != 0;
  abandon();
  if (failed) return done(give_up_in_doubt());
  in_doubt_ = false;
  if (stored) return done(WcStatus::kSuccess);
  return {Progress::Kind::kAgain};
}

// The operand is what it was, and is changed now; or it is what it was to become. Else others have
// changed it since.
Progress ConnectedSender::step_doubtful_atomic(rdma::WorkRequest& request, const Plan& plan) {
  const uint64_t old = request.wqe.old_value, becomes = rdma::changed(request, old);
  uint64_t found = old;
  if (stage_ == Stage::kStart && becomes != old) {
    found_ = make_buffer(sizeof found);
    if (found_ == nullptr) return {Progress::Kind::kPending};
    stage_ = Stage::kRead;
    ++jobs_;
    bool ok = false;
    if (!receiver_.change(exchange_of(request, old, becomes), plan.source.pieces[0], found_,
                          qp_.context->device->meter, job_done(), &ok))
      return {Progress::Kind::kPending};
    --jobs_;
    failed_ = !ok;
  }
  if (found_ != nullptr) std::memcpy(&found, found_->data(), sizeof found);
  if (failed_ || (found != old && found != becomes)) {
    abandon();
    return done(give_up_in_doubt());
  }
  in_doubt_ = false;
  has_changed(old);
  return answer(request);
}

// Whose memory was not as its key promised.
Outcome ConnectedSender::failure(const Plan& plan) const {
  const bool to_local = plan.opcode == verbs::Opcode::kRdmaRead;
  const bool at_source = stage_ == Stage::kRead;
  if (at_source != to_local) return Outcome::kLocalProtection;
  return verbs::is_send(plan.opcode) ? Outcome::kReceiveProtection : Outcome::kRemoteAccess;
}

bool ConnectedSender::move(const rdma::PieceList& pieces, rdma::Process& process, rdma::Qp* written,
                           const rdma::Buffer& buffer, bool ends) {
  ++jobs_;
  const bool moved =
      transport::move(pieces, process, written, buffer, 0, qp_.context->device->meter, job_done(),
                      ends ? if_it_goes_on(ring_.marker()) : rdma::Reach::Marker());
  if (moved) --jobs_;
  return moved;
}

rdma::Reach::Marker ConnectedSender::if_it_goes_on(rdma::Reach::Marker mark) const {
  return [mark = std::move(mark), alive = std::weak_ptr(alive_)](ipc::Mark how, uint64_t stood) {
    if (!alive.expired()) mark(how, stood);
  };
}

std::function<void(bool)> ConnectedSender::job_done() {
  return [this, alive = std::weak_ptr(alive_)](bool ok) {
    if (alive.expired()) return;
    --jobs_;
    failed_ |= !ok;
    resume();
  };
}

}  // namespace vrdma::transport
