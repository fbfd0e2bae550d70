// Two queue pairs of two devices, connected by memory in place of a network.
#pragma once

#include <random>

#include "tests/unit/transport/rig.h"
#include "transport/net/sender.h"

namespace vrdma::transport::net {

using test::rdma_wqe;
using verbs::Opcode;
using verbs::QpState;

struct Net;

// Gives packets to the other end, in a later pass of the loop.
class MemoryPort final : public Port {
 public:
  MemoryPort(Net& net, bool to_b) : net_(net), to_b_(to_b) {}
  uint32_t send(const Burst& burst) override;

 private:
  Net& net_;
  bool to_b_;
};

struct Net : Rig {
  // Reached memory of each.
  std::vector<uint8_t> a_own = pattern(100'000), b_own = pattern(100'000);
  uint32_t a_own_key = a.register_memory(at(a_own), a_own.size(), kAllAccess, ipc::Way::kReached);
  uint32_t b_own_key = b.register_memory(at(b_own), b_own.size(), kAllAccess, ipc::Way::kReached);
  rdma::Qp* qp_a = nullptr;
  rdma::Qp* qp_b = nullptr;
  Counters a_counters, b_counters;
  std::mt19937 random{5};
  double loss = 0, marks = 0;
  bool b_is_mute = false;  // its packets are lost
  int refuse = 0;          // bursts
  uint64_t packets = 0;
  std::shared_ptr<int> alive = std::make_shared<int>(0);

  Net() { world.make_sender = nullptr; }
  ~Net() override { alive.reset(); }

  static std::vector<uint8_t> pattern(size_t size) {
    std::vector<uint8_t> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
    return bytes;
  }
  static uint64_t at(const std::vector<uint8_t>& memory) {
    return reinterpret_cast<uint64_t>(memory.data());
  }
  void connect(test::Party::QpOptions a_options = {}, test::Party::QpOptions b_options = {}) {
    qp_a = world.add_qp(a, a_options);
    qp_b = world.add_qp(b, b_options);
    world.name(*qp_a, *qp_b);
    world.name(*qp_b, *qp_a);
    for (rdma::Qp* qp : {qp_a, qp_b}) {
      qp->attributes.path_mtu = 3;
      qp->attributes.max_rd_atomic = qp->attributes.max_dest_rd_atomic = 4;
      qp->set_state(QpState::kInit);
      qp->set_state(QpState::kRtr);
      rdma::Qp* const peer = qp == qp_a ? qp_b : qp_a;
      qp->link.remote = rdma::RemoteEnd{peer->context->device->gids[0], peer->qpn,
                                        qp->attributes.sq_psn, qp->attributes.rq_psn};
      qp->sender = std::make_unique<NetSender>(
          *qp, qp == qp_a ? a_lane : b_lane, std::make_unique<MemoryPort>(*this, qp == qp_a),
          qp == qp_a ? a_counters : b_counters, NetSender::Options{});
    }
    for (rdma::Qp* qp : {qp_a, qp_b}) {
      qp->set_state(QpState::kRts);
      qp->sender->link_changed();
    }
  }
  NetSender& sender(rdma::Qp* qp) { return static_cast<NetSender&>(*qp->sender); }
  ipc::SendWqe remote(Opcode opcode, uint64_t addr, uint32_t key) {
    return rdma_wqe(opcode, addr, key);
  }
};

inline uint32_t MemoryPort::send(const Burst& burst) {
  uint32_t count = burst.count;
  if (net_.refuse > 0) {
    --net_.refuse;
    NetSender& self = net_.sender(to_b_ ? net_.qp_a : net_.qp_b);
    net_.world.loop->post([&self, alive = std::weak_ptr(net_.alive)] {
      if (!alive.expired()) self.resume();
    });
    count /= 2;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const wire::Packet& packet = burst.packets[i];
    ++net_.packets;
    if (net_.b_is_mute && !to_b_) continue;
    if (std::uniform_real_distribution<>(0, 1)(net_.random) < net_.loss) continue;
    std::vector<uint8_t> frame(wire::packet_bytes(packet));
    const size_t headers = wire::encode(packet, frame.data());
    if (packet.payload_length > 0)
      std::memcpy(&frame[headers], packet.payload, packet.payload_length);
    const bool marked = std::uniform_real_distribution<>(0, 1)(net_.random) < net_.marks;
    net_.world.loop->post(
        [&net = net_, to_b = to_b_, frame, marked, alive = std::weak_ptr(net_.alive)] {
          if (alive.expired()) return;
          const auto decoded = wire::decode(frame);
          ASSERT_TRUE(decoded);
          rdma::Qp* const to = to_b ? net.qp_b : net.qp_a;
          if (to->sender == nullptr) return;  // its worker has died
          net.sender(to).receive(*decoded, marked, base::Clock::steady().now());
        });
  }
  return count;
}

}  // namespace vrdma::transport::net
