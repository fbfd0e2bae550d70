// A World whose queue pairs are executed by real send queues on a runner of the world's loop.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/core/rdma/world.h"
#include "transport/runner.h"
#include "transport/shm/connected.h"
#include "transport/shm/datagram.h"

namespace vrdma::transport {

constexpr uint64_t kBase = test::Party::kBase;
constexpr uint32_t kQkey = 0x11111111;
constexpr uint32_t kAllAccess =
    verbs::kLocalWrite | verbs::kRemoteWrite | verbs::kRemoteRead | verbs::kRemoteAtomic;

struct Rig : testing::Test {
  explicit Rig(const std::string& b_tenant = "blue") : world(b_tenant) {
    world.make_sender = [this](rdma::Qp& qp) -> std::unique_ptr<rdma::Sender> {
      Lane& lane = qp.context == &a.context ? a_lane : b_lane;
      if (qp.type == verbs::QpType::kUd) return std::make_unique<DatagramSender>(qp, lane);
      return std::make_unique<ConnectedSender>(qp, lane);
    };
    a_key = a.register_all(kAllAccess);
    b_key = b.register_all(kAllAccess);
  }
  ~Rig() override {
    world.b.reset();  // before the runner
    world.a.reset();
  }

  bool wait_for(const std::function<bool()>& condition) {
    return test::run_until(*world.loop, condition);
  }
  void settle(int milliseconds = 5) {
    test::run_for(*world.loop, std::chrono::milliseconds(milliseconds));
  }
  // The statuses of `count` results, once they are there.
  std::vector<verbs::WcStatus> statuses(rdma::Qp& qp, size_t count) {
    test::Party& party = qp.context == &a.context ? a : b;
    EXPECT_TRUE(wait_for([&] { return party.results(qp).size() >= count; }));
    std::vector<verbs::WcStatus> all;
    for (const auto& result : party.results(qp))
      all.push_back(static_cast<verbs::WcStatus>(result.status));
    return all;
  }
  static ipc::Token token(const rdma::Qp& qp) {
    return static_cast<ipc::Token>(qp.block->token.load());
  }
  // A UD queue pair that can send and receive.
  rdma::Qp* add_datagrams(test::Party& party, rdma::Srq* srq = nullptr) {
    test::Party::QpOptions options;
    options.type = verbs::QpType::kUd;
    options.srq = srq;
    rdma::Qp* qp = world.add_qp(party, options);
    qp->attributes.qkey = kQkey;
    qp->set_state(verbs::QpState::kRts);
    return qp;
  }
  static ipc::SendWqe datagram_to(const std::string& gid, uint32_t qpn) {
    ipc::SendWqe wqe = test::wqe_of(verbs::Opcode::kSendWithImm);
    std::memcpy(wqe.ud.dgid, test::gid_of(gid).bytes.data(), 16);
    wqe.ud.qpn = qpn;
    wqe.ud.qkey = kQkey;
    return wqe;
  }
  // What a program does when it has posted a receive.
  static void ring(rdma::Qp& qp) {
    for (rdma::Sender* waiter : std::list(qp.receive_waiters())) waiter->receive_posted();
  }

  test::World world;
  // By which the turns' clock is ahead, as if this thread had lost the processor.
  static inline base::Duration ahead{};
  struct AheadClock final : base::Clock {
    [[nodiscard]] base::TimePoint now() const override { return steady().now() + ahead; }
  };
  AheadClock ahead_clock;
  Runner runner{*world.loop, ahead_clock};
  Lane a_lane{runner, "red"}, b_lane{runner, "blue"};
  test::Party& a = *world.a;
  test::Party& b = *world.b;
  uint32_t a_key = 0, b_key = 0;
};

// A connected pair whose parties have memory that is not in place, too: this process's own.
struct ReachedPair : Rig {
  static uint64_t at(const std::vector<uint8_t>& memory) {
    return reinterpret_cast<uint64_t>(memory.data());
  }
  static uint32_t reached(test::Party& party, const std::vector<uint8_t>& memory) {
    return party.register_memory(at(memory), memory.size(), kAllAccess, ipc::Way::kReached);
  }

  test::World::Pair pair = world.connected();
  std::vector<uint8_t> a_own = std::vector<uint8_t>(3u << 20);
  std::vector<uint8_t> b_own = std::vector<uint8_t>(3u << 20);
  uint32_t a_reached = reached(a, a_own), b_reached = reached(b, b_own);
};

}  // namespace vrdma::transport
