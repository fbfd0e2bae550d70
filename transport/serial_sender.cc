#include "transport/serial_sender.h"

#include <utility>

namespace vrdma::transport {

using verbs::QpState;
using verbs::WcStatus;

SerialSender::SerialSender(rdma::Qp& qp, Lane& lane) : Runnable(lane), qp_(qp), ring_(qp) {
  set_session(qp.context->id);
}

SerialSender::~SerialSender() {
  if (rdma::Pace* pace = qp_.context->device->pace) pace->leave(*this);
  runner().remove(this);
}

void SerialSender::kick() { runner().activate(this); }

void SerialSender::resume() { runner().activate(this); }

void SerialSender::link_changed() {
  // What was begun on a link that has gone is begun anew, and then finds no link.
  if (in_hand() != nullptr) abandon();
  ring_.block(false);
  resume();
  if (qp_.can_send()) return;
  ring_.put_back();
  if (ring_.ours()) (void)ring_.let_go();  // before anybody is told, so that the program can flush
}

// What it has in hand itself, it may have to fetch again: see rdma::begin_epoch().
void SerialSender::adopted() {
  if (in_hand() != nullptr) abandon();
  ring_.put_back();
  doubtful_ = true;
}

bool SerialSender::run(Turn& turn) {
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

SerialSender::Next SerialSender::step(Turn& turn) {
  if (qp_.context->parked) return Next::kSleep;
  if (!ring_.ours()) return Next::kSleep;
  if (in_hand() == nullptr) {
    if (!qp_.can_send()) return ring_.let_go() ? Next::kMore : Next::kSleep;
    if (qp_.state() == QpState::kSqd) return Next::kSleep;
    const Next next = fetch();
    if (in_hand() == nullptr) return next;
    turn.spend(kRequestCost);
  }
  const Progress progress = execute(request_);
  turn.spend(progress.moved);
  if (rdma::Pace* pace = qp_.context->device->pace) pace->spend(progress.moved, 0);
  switch (progress.kind) {
    case Progress::Kind::kDone:
      ring_.publish(request_, progress.status, progress.byte_len);
      tell_peer();
      ring_.tell();
      return Next::kMore;
    case Progress::Kind::kAgain:
      if (progress.moved == 0) turn.spend(kRequestCost);
      return Next::kMore;
    case Progress::Kind::kYield:
      return Next::kYield;
    case Progress::Kind::kPending:
      return Next::kSleep;
  }
  return Next::kSleep;
}

bool SerialSender::admitted() {
  rdma::Pace* const pace = qp_.context->device->pace;
  if (pace == nullptr || pace->admit(*this)) return true;
  ring_.block(true);
  return false;
}

SerialSender::Next SerialSender::fetch() {
  switch (ring_.fetch(&request_)) {
    case SendRing::Fetched::kNothing:
      return idle();
    case SendRing::Fetched::kGiven:
    case SendRing::Fetched::kCorrupt:
      return Next::kSleep;
    case SendRing::Fetched::kRequest:
      break;
  }
  idle_since_ = {};
  if (std::exchange(doubtful_, false)) settle();
  return Next::kMore;
}

SerialSender::Next SerialSender::idle() {
  if (!qp_.runs_direct() && runner().spin().count() > 0) {
    const auto now = runner().loop().now();
    if (idle_since_ == base::TimePoint{}) idle_since_ = now;
    if (now - idle_since_ < runner().spin()) return Next::kYield;
  }
  idle_since_ = {};
  return ring_.let_go() ? Next::kMore : Next::kSleep;
}

// What a dead worker had done of the request in hand.
void SerialSender::settle() {
  const SendRing::Interrupted interrupted = ring_.interrupted();
  const ipc::Mark mark = interrupted.mark;
  if (mark == ipc::Mark::kDone) {
    const auto opcode = static_cast<verbs::Opcode>(request_.wqe.opcode);
    return ring_.complete(request_, WcStatus::kSuccess,
                          verbs::is_atomic(opcode) ? sizeof(uint64_t) : 0);
  }
  if (mark == ipc::Mark::kNone) return;
  if (const auto status = after_crash(request_, interrupted)) ring_.complete(request_, *status, 0);
}

std::optional<WcStatus> SerialSender::after_crash(rdma::WorkRequest&,
                                                  const SendRing::Interrupted&) {
  return {};
}

}  // namespace vrdma::transport
