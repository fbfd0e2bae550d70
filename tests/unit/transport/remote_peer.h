// A peer on another host that exists only in a test, and the sender and the receiver that a network
// transport would have, without the network: what is sent lies in the peer at once, and is
// acknowledged when the test says so.
#pragma once

#include <cstring>
#include <deque>
#include <vector>

#include "tests/unit/core/rdma/world.h"
#include "transport/receiver.h"
#include "transport/send_ring.h"

namespace vrdma::transport {

struct RemotePeer {
  std::vector<uint8_t> memory = std::vector<uint8_t>(4096);  // its addresses begin at 0
  std::vector<std::vector<uint8_t>> messages;                // that SENDs brought
};

class NetworkSender final : public rdma::Sender {
 public:
  static constexpr uint32_t kWindow = 4;

  NetworkSender(rdma::Qp& qp, RemotePeer& peer) : qp_(qp), ring_(qp), peer_(peer) {}

  void kick() override { fill_window(); }
  void link_changed() override {
    ring_.put_back();
    window_.clear();
    if (!qp_.can_send() && ring_.ours()) (void)ring_.let_go();
    if (qp_.can_send()) fill_window();
  }
  void receive_posted() override {}
  [[nodiscard]] bool drained() const override { return window_.empty(); }

  [[nodiscard]] size_t in_flight() const { return window_.size(); }
  // The peer has done the `count` oldest requests.
  void acknowledge(size_t count) {
    for (; count > 0 && !window_.empty(); --count) {
      Sent& sent = window_.front();
      const bool reads = sent.plan.opcode == verbs::Opcode::kRdmaRead;
      const bool ok = !reads || move(sent.plan.target, *qp_.context->process, &qp_, sent.bytes, 0,
                                     nullptr, [](bool) {});
      const rdma::WorkRequest request = sent.request;
      const auto length = static_cast<uint32_t>(reads ? sent.plan.length : 0);
      window_.pop_front();
      ring_.complete(
          request, ok ? verbs::WcStatus::kSuccess : verbs::WcStatus::kLocalProtectionError, length);
    }
    fill_window();
  }
  // Sends nothing more; the peer has done all that was sent.
  void stop() {
    stopped_ = true;
    acknowledge(window_.size());
  }

 private:
  struct Sent {
    rdma::WorkRequest request;
    rdma::Plan plan;
    rdma::Buffer bytes;
  };

  void fill_window() {
    while (!stopped_ && window_.size() < kWindow && ring_.ours()) {
      Sent& sent = window_.emplace_back();
      const auto fetched = ring_.fetch(&sent.request);
      if (fetched != SendRing::Fetched::kRequest) {
        window_.pop_back();
        if (fetched == SendRing::Fetched::kNothing && window_.empty() && ring_.let_go()) continue;
        return;
      }
      if (rdma::prepare_requester(sent.request, {qp_.memory(), qp_.pd->handle}, &sent.plan) !=
          rdma::Outcome::kDone)
        return window_.pop_back(),
               ring_.complete(sent.request, verbs::WcStatus::kLocalProtectionError, 0);
      sent.bytes = std::make_shared<std::vector<uint8_t>>(sent.plan.length);
      transmit(sent);
    }
  }
  void transmit(Sent& sent) {
    std::vector<uint8_t>& bytes = *sent.bytes;
    const uint64_t at = sent.request.wqe.rdma.remote_addr;
    if (sent.plan.opcode == verbs::Opcode::kRdmaRead)
      return void(std::memcpy(bytes.data(), &peer_.memory.at(at), bytes.size()));
    (void)move(sent.plan.source, *qp_.context->process, nullptr, sent.bytes, 0, nullptr,
               [](bool) {});
    if (verbs::is_send(sent.plan.opcode))
      peer_.messages.push_back(bytes);
    else
      std::memcpy(&peer_.memory.at(at), bytes.data(), bytes.size());
  }

  rdma::Qp& qp_;
  SendRing ring_;
  RemotePeer& peer_;
  std::deque<Sent> window_;
  bool stopped_ = false;
};

// What the peer sends to `qp`.
class NetworkReceiver {
 public:
  NetworkReceiver(rdma::Qp& qp, base::EventLoop& loop) : qp_(qp), loop_(loop) {}

  // A whole message: of a READ or an atomic, `bytes` are what is answered. Of anything but kDone,
  // what the peer learns is in `nak`.
  [[nodiscard]] rdma::Outcome arrive(const ipc::SendWqe& wqe, std::vector<uint8_t>* bytes) {
    rdma::WorkRequest request{};
    request.wqe = wqe;
    rdma::Plan plan;
    plan.opcode = static_cast<verbs::Opcode>(wqe.opcode);
    plan.length = bytes->size();
    plan.reached = false;
    const rdma::Outcome outcome = receiver_.prepare(qp_, request, &plan);
    if (outcome == rdma::Outcome::kNoReceive) return outcome;
    if (outcome != rdma::Outcome::kDone) {
      nak = receiver_.refuse(outcome, request, plan);
      return outcome;
    }
    const auto buffer = std::make_shared<std::vector<uint8_t>>(*bytes);
    bool moved = false, over = false, ok = true;
    const auto then = [&](bool good) {
      over = true;
      ok = good;
    };
    if (verbs::is_atomic(plan.opcode)) {
      moved = receiver_.change(request, plan.source.pieces[0], buffer, nullptr, then, &ok);
    } else {
      const bool reads = plan.opcode == verbs::Opcode::kRdmaRead;
      moved = move(reads ? plan.source : plan.target, *receiver_.home().process,
                   reads ? nullptr : &qp_, buffer, 0, nullptr, then);
    }
    if (!moved) ok = test::run_until(loop_, [&] { return over; }) && ok;
    if (!ok) return rdma::Outcome::kRemoteAccess;
    receiver_.complete(request, plan);
    *bytes = *buffer;
    return rdma::Outcome::kDone;
  }

  verbs::WcStatus nak = verbs::WcStatus::kSuccess;

 private:
  rdma::Qp& qp_;
  base::EventLoop& loop_;
  Receiver receiver_;
};

}  // namespace vrdma::transport
