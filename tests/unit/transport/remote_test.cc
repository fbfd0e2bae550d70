// What a transport to other hosts can be built on: SendRing on one side, Receiver on the other.
#include <mutex>
#include <numeric>

#include "tests/unit/transport/remote_peer.h"
#include "tests/unit/transport/rig.h"
#include "transport/selector.h"

namespace vrdma::transport {
namespace {

using rdma::Outcome;
using test::rdma_wqe;
using test::World;
using test::wqe_of;
using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

struct Remote : Rig {
  World::Pair pair = world.connected();
  rdma::Qp& qp = *pair.a;
  RemotePeer peer;
  NetworkSender* sender = nullptr;
  NetworkReceiver receiver{qp, *world.loop};
  std::vector<uint8_t> own = std::vector<uint8_t>(4096);  // that has to be reached
  uint32_t own_key = a.register_memory(at(own), own.size(), kAllAccess, ipc::Way::kReached);

  Remote() {
    world.a_device.choose_sender = [this](rdma::Qp& moved) {
      auto made = std::make_unique<NetworkSender>(moved, peer);
      sender = made.get();
      return made;
    };
    world.fabric.remove(&world.b_device);
    EXPECT_TRUE(world.fabric.move_to(qp, {test::gid_of("fe80::b"), pair.b->qpn, 7, 9}));
  }
  static uint64_t at(const std::vector<uint8_t>& memory) {
    return reinterpret_cast<uint64_t>(memory.data());
  }
  static std::vector<uint8_t> text(const char* bytes) {
    return {bytes, bytes + std::strlen(bytes)};
  }
};

TEST_F(Remote, CompletesAWindowOfRequests) {
  std::memcpy(a.memory(), "one two", 7);
  for (const uint64_t offset : {0, 4})
    ASSERT_TRUE(a.post_send(qp, wqe_of(Opcode::kSend), {{kBase + offset, 3, a_key}}));
  ASSERT_TRUE(a.post_send(qp, rdma_wqe(Opcode::kRdmaWrite, 100, 1), {{kBase + 4, 3, a_key}}));
  peer.memory[200] = 42;
  ASSERT_TRUE(a.post_send(qp, rdma_wqe(Opcode::kRdmaRead, 200, 1), {{kBase + 64, 1, a_key}}));
  ASSERT_TRUE(a.post_send(qp, wqe_of(Opcode::kSend), {{kBase, 7, a_key}}));
  EXPECT_EQ(sender->in_flight(), NetworkSender::kWindow) << "the last one waits for room";
  EXPECT_THAT(peer.messages, ElementsAre(text("one"), text("two")));
  EXPECT_EQ(std::memcmp(&peer.memory[100], "two", 3), 0);
  EXPECT_THAT(a.results(qp), SizeIs(0));

  sender->acknowledge(3);
  EXPECT_THAT(a.results(qp), SizeIs(3));
  EXPECT_THAT(peer.messages, SizeIs(3));
  EXPECT_EQ(*a.memory(kBase + 64), 0) << "the answer has not arrived";
  sender->acknowledge(2);
  EXPECT_EQ(*a.memory(kBase + 64), 42);
  EXPECT_THAT(statuses(qp, 5), Each(WcStatus::kSuccess));
  EXPECT_EQ(a.results(qp)[3].byte_len, 1u);
  EXPECT_EQ(token(qp), ipc::Token::kFree);
}

TEST_F(Remote, FlushesWhatIsInFlightWhenTheQueuePairFails) {
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(a.post_send(qp, wqe_of(Opcode::kSend), {{kBase, 1, a_key}}));
  sender->acknowledge(1);
  qp.fail();
  EXPECT_EQ(sender->in_flight(), 0u);
  EXPECT_EQ(token(qp), ipc::Token::kFree) << "so that the program can flush";
  EXPECT_THAT(a.results(qp), SizeIs(1));
}

TEST_F(Remote, ReceivesMessages) {
  std::vector<uint8_t> message = text("hello");
  EXPECT_EQ(receiver.arrive(wqe_of(Opcode::kSend), &message), Outcome::kNoReceive);
  ASSERT_TRUE(a.post_receive(qp, 1, {{kBase, 2, a_key}, {at(own), 100, own_key}}));
  EXPECT_EQ(receiver.arrive(wqe_of(Opcode::kSend), &message), Outcome::kDone);
  EXPECT_EQ(std::memcmp(a.memory(), "he", 2), 0);
  EXPECT_EQ(std::memcmp(own.data(), "llo", 3), 0);
  ASSERT_THAT(a.received(qp), SizeIs(1));
  EXPECT_EQ(a.received(qp)[0].byte_len, 5u);

  ASSERT_TRUE(a.post_receive(qp, 2, {{kBase, 2, a_key}}));
  EXPECT_EQ(receiver.arrive(wqe_of(Opcode::kSend), &message), Outcome::kReceiveTooSmall);
  EXPECT_EQ(receiver.nak, WcStatus::kRemoteInvalidRequest);
  ASSERT_THAT(a.received(qp), SizeIs(2));
  EXPECT_EQ(a.received(qp)[1].status, static_cast<uint8_t>(WcStatus::kLocalLengthError));
  EXPECT_EQ(qp.state(), QpState::kErr);
}

TEST_F(Remote, WritesAndReads) {
  for (const auto& [addr, key] : {std::pair{kBase + 100, a_key}, std::pair{at(own) + 4, own_key}}) {
    std::vector<uint8_t> bytes = text("written");
    EXPECT_EQ(receiver.arrive(rdma_wqe(Opcode::kRdmaWrite, addr, key), &bytes), Outcome::kDone);
    std::vector<uint8_t> answer(7);
    EXPECT_EQ(receiver.arrive(rdma_wqe(Opcode::kRdmaRead, addr, key), &answer), Outcome::kDone);
    EXPECT_EQ(answer, bytes);
    ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, addr + 12, key);
    add.rdma.compare_add = 5;
    std::vector<uint8_t> old(8);
    for (const int value : {0, 5}) {
      EXPECT_EQ(receiver.arrive(add, &old), Outcome::kDone);
      EXPECT_EQ(old[0], value);
    }
  }
  EXPECT_EQ(std::memcmp(a.memory(kBase + 100), "written", 7), 0);
  EXPECT_EQ(std::memcmp(&own[4], "written", 7), 0);
  EXPECT_THAT(a.received(qp), SizeIs(0));

  std::vector<uint8_t> bytes = text("x");
  EXPECT_EQ(receiver.arrive(rdma_wqe(Opcode::kRdmaWrite, kBase, a_key ^ 1), &bytes),
            Outcome::kRemoteAccess);
  EXPECT_EQ(receiver.nak, WcStatus::kRemoteAccessError);
  EXPECT_EQ(qp.state(), QpState::kErr);
}

TEST_F(Remote, TakesReceivesOfASharedQueueAndGivesThemBack) {
  test::Party::QpOptions shared;
  shared.srq = a.add_srq(8);
  rdma::Qp& with_srq = *world.add_qp(a, shared);
  with_srq.set_state(QpState::kRts);
  ASSERT_TRUE(a.post_receive(*shared.srq, 3, {{kBase, 100, a_key}}));
  rdma::WorkRequest request{};
  request.wqe = wqe_of(Opcode::kSend);
  rdma::Plan plan;
  plan.opcode = Opcode::kSend;
  plan.length = 5;
  plan.reached = false;
  {
    Receiver gone;  // with its connection, in the middle of a message
    ASSERT_EQ(gone.prepare(with_srq, request, &plan), Outcome::kDone);
    EXPECT_EQ(rdma::count_waiting(shared.srq->receives), 0u);
  }
  NetworkReceiver again{with_srq, *world.loop};
  std::vector<uint8_t> message = text("hello");
  EXPECT_EQ(again.arrive(request.wqe, &message), Outcome::kDone);
  ASSERT_THAT(a.received(with_srq), SizeIs(1));
  EXPECT_EQ(a.received(with_srq)[0].slot, 3u);
}

// The peer of a link leaves for another host and comes back, again and again, while the program
// posts. Each request completes once, and arrives once, in order.
struct Moving : Rig {
  explicit Moving(const std::string& b_tenant = "blue") : Rig(b_tenant) {
    transports.shm = [this](rdma::Qp& qp) {
      return std::make_unique<ConnectedSender>(qp, qp.context == &a.context ? a_lane : b_lane);
    };
    transports.network = [this](rdma::Qp& qp) {
      auto made = std::make_unique<NetworkSender>(qp, peer);
      network = made.get();
      return made;
    };
    world.a_device.choose_sender = [this](rdma::Qp& qp) { return transports.choose(qp); };
    fresh = world.connected();
  }
  void leave() {
    arrived_here();
    world.fabric.remove(&world.b_device);
    ASSERT_TRUE(world.fabric.move_to(*fresh.a, {test::gid_of("fe80::b"), fresh.b->qpn, 7, 9}));
    here = false;
  }
  void come_back() {
    network->stop();
    for (const auto& message : std::exchange(peer.messages, {})) arrived.push_back(number(message));
    world.fabric.add(&world.b_device);
    world.fabric.relink(*fresh.a);
    ASSERT_EQ(fresh.a->link.kind(), rdma::Link::Kind::kLocal);
    here = true;
  }
  void post(uint32_t value) {
    const uint64_t at = kBase + uint64_t{value % fresh.a->sq_depth} * 64;
    std::memcpy(a.memory(at), &value, sizeof value);
    ipc::SendWqe wqe = wqe_of(Opcode::kSend);
    wqe.wr_id = value;
    ASSERT_TRUE(a.post_send(*fresh.a, wqe, {{at, 4, a_key}}));
  }
  static uint32_t number(const std::vector<uint8_t>& bytes) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  // What the local peer has received since the last look.
  void arrived_here() {
    const ipc::RecvRing& ring =
        fresh.b->link.in_direct ? *fresh.b->link.peer_outbox->ring : *fresh.b->inbox;
    for (; seen != ring.head; ++seen) {
      const ipc::RecvEntry& entry = ring.entries()[seen & (fresh.b->inbox_depth - 1)];
      EXPECT_EQ(entry.status, static_cast<uint8_t>(WcStatus::kSuccess));
      arrived.push_back(number({b.memory(kBase + entry.slot * 64),
                                b.memory(kBase + entry.slot * 64) + sizeof(uint32_t)}));
    }
  }
  void post_receives(uint32_t count) {
    for (; count > 0; --count, ++receives)
      ASSERT_TRUE(b.post_receive(
          *fresh.b, receives, {{kBase + uint64_t{receives % fresh.b->rq_depth} * 64, 64, b_key}}));
    ring(*fresh.b);
  }
  void run() {
    uint32_t sent = 0;
    for (int round = 0; round < 40; ++round) {
      const uint32_t count = 1 + static_cast<uint32_t>(round) % 7;
      // On a local link, the peer has receives for some only: the rest waits, and moves.
      if (here) post_receives(count / 2);
      for (uint32_t i = 0; i < count && sent - fresh.a->block->sq_tail < fresh.a->sq_depth; ++i)
        post(sent++);
      if (here && round % 3 != 0) settle(1);
      if (here) {
        leave();
      } else {
        for (int i = 0; i < round % 4; ++i) network->acknowledge(2);
        come_back();
      }
    }
    if (here) {
      post_receives(sent - static_cast<uint32_t>(fresh.a->block->sq_tail));
      EXPECT_TRUE(wait_for([&] { return fresh.a->block->sq_tail == sent; }));
      arrived_here();
    } else {
      come_back();
    }
    EXPECT_EQ(fresh.a->block->sq_tail, sent);
    for (const WcStatus status : statuses(*fresh.a, fresh.a->sq_depth))
      EXPECT_EQ(status, WcStatus::kSuccess);
    std::vector<uint32_t> all(sent);
    std::iota(all.begin(), all.end(), 0u);
    EXPECT_EQ(arrived, all);
    EXPECT_EQ(fresh.a->state(), QpState::kRts);
  }

  Selector transports;
  RemotePeer peer;
  NetworkSender* network = nullptr;
  World::Pair fresh;
  bool here = true;
  uint32_t receives = 0, seen = 0;
  std::vector<uint32_t> arrived;
};

TEST_F(Moving, LosesNothing) {
  EXPECT_FALSE(fresh.a->link.out_direct);
  run();
}

struct MovingDirect : Moving {
  MovingDirect() : Moving("red") {}
};

TEST_F(MovingDirect, LosesNothing) {
  EXPECT_TRUE(fresh.a->link.out_direct);
  run();
}

TEST_F(Moving, WaitsWithAnAtomicThatWasDoneAndIsNotAnswered) {
  std::vector<uint8_t> own(64);  // memory that has to be reached
  const auto addr = reinterpret_cast<uint64_t>(own.data());
  const uint64_t aligned = (addr + 7) / 8 * 8;
  const uint32_t key = b.register_memory(addr, own.size(), kAllAccess, ipc::Way::kReached);
  ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, aligned, key);
  add.rdma.compare_add = 1;
  std::unique_lock slow(*b.context.process->reach()->memory()->changes);
  ASSERT_TRUE(a.post_send(*fresh.a, add, {{kBase, 8, a_key}}));
  const rdma::RemoteEnd end{test::gid_of("fe80::b"), fresh.b->qpn, 7, 9};
  EXPECT_TRUE(wait_for([&] { return !fresh.a->sender->may_begin_anew(); }));
  EXPECT_FALSE(world.fabric.move_to(*fresh.a, end));
  EXPECT_EQ(fresh.a->link.kind(), rdma::Link::Kind::kLocal);
  slow.unlock();
  EXPECT_TRUE(wait_for([&] { return fresh.a->block->sq_tail == 1; }));
  EXPECT_TRUE(world.fabric.move_to(*fresh.a, end));
  uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(aligned), sizeof value);
  EXPECT_EQ(value, 1u);
}

struct IdleSender final : rdma::Sender {
  void kick() override {}
  void link_changed() override {}
  void receive_posted() override {}
  [[nodiscard]] bool drained() const override { return true; }
};

TEST(Selectors, ChooseByLinkPinAndParent) {
  World world;
  const World::Pair pair = world.connected();
  rdma::Qp& qp = *pair.a;
  std::string made;
  const auto maker = [&](const char* name) {
    return [&made, name](rdma::Qp&) -> std::unique_ptr<rdma::Sender> {
      made = name;
      return std::make_unique<IdleSender>();
    };
  };
  Selector transports{maker("shm"), {}, {}, {}};
  const auto chosen = [&] {
    (void)transports.choose(qp);
    return made;
  };
  EXPECT_EQ(chosen(), "shm");
  transports.pinned = maker("pinned");
  EXPECT_EQ(chosen(), "shm") << "the peer is here";
  world.fabric.cut(qp);
  EXPECT_EQ(chosen(), "shm") << "its GID is, and it may come";
  world.fabric.remove(&world.b_device);
  EXPECT_EQ(chosen(), "pinned");
  transports.pinned = nullptr;
  EXPECT_EQ(chosen(), "shm") << "there is no other";
  transports.network = maker("network");
  EXPECT_EQ(chosen(), "network");
  transports.parent = maker("parent");
  EXPECT_EQ(chosen(), "parent");
  transports.parent = [](rdma::Qp&) { return nullptr; };
  EXPECT_EQ(chosen(), "network") << "the parent's does not lead to the peer";
  transports.network = [](rdma::Qp&) { return nullptr; };
  EXPECT_EQ(chosen(), "shm");
}

}  // namespace
}  // namespace vrdma::transport
