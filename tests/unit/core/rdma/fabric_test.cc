#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "core/rdma/device.h"
#include "tests/unit/core/rdma/world.h"

namespace vrdma::rdma {
namespace {

using test::gid_of;
using test::Party;
using test::World;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;
using verbs::QpState;

struct FakeSender final : Sender {
  explicit FakeSender(int* count) : changes(count) {}
  void kick() override {}
  void link_changed() override { ++*changes; }
  void receive_posted() override {}
  bool drained() const override { return true; }
  int* changes;
};

struct Fabrics : testing::Test {
  World world;
  Fabric& fabric = world.fabric;
  int changes = 0;

  Fabrics() {
    world.make_sender = [this](Qp&) { return std::make_unique<FakeSender>(&changes); };
  }
  static ipc::Link link(const Qp& qp) { return static_cast<ipc::Link>(qp.block->link.load()); }
  World::Pair strangers(const Party::QpOptions& options = {}) {
    World::Pair pair{world.add_qp(*world.a, options), world.add_qp(*world.b, options)};
    pair.a->set_state(QpState::kInit);
    pair.b->set_state(QpState::kInit);
    return pair;
  }
};

TEST_F(Fabrics, FindDevicesAndQueuePairs) {
  EXPECT_EQ(fabric.find(gid_of("10.0.0.1")), &world.a_device);
  EXPECT_EQ(fabric.find(gid_of("fe80::b")), &world.b_device);
  EXPECT_EQ(fabric.find(gid_of("10.0.0.3")), nullptr);
  Qp* qp = world.a->add_qp();
  EXPECT_EQ(fabric.find(gid_of("10.0.0.1"), qp->qpn), qp);
  EXPECT_EQ(fabric.find(gid_of("10.0.0.2"), qp->qpn), nullptr);
  fabric.remove(&world.a_device);
  EXPECT_EQ(fabric.find(gid_of("10.0.0.1"), qp->qpn), nullptr);
}

TEST_F(Fabrics, JoinWhoNameEachOther) {
  const auto pair = world.connected();
  EXPECT_EQ(pair.a->link.out, pair.b);
  EXPECT_EQ(pair.a->link.in, pair.b);
  EXPECT_EQ(pair.b->link.out, pair.a);
  EXPECT_EQ(pair.b->link.in, pair.a);
  EXPECT_GT(changes, 0);
}

TEST_F(Fabrics, LeaveOtherIslandsToTheNetwork) {
  const auto to_rts = [this](const World::Pair& pair) {
    world.name(*pair.a, *pair.b);
    world.name(*pair.b, *pair.a);
    for (Qp* qp : {pair.a, pair.b}) world.to_rtr(*qp);
    for (Qp* qp : {pair.a, pair.b}) world.to_rts(*qp);
    return pair.a->link.out == pair.b && pair.b->link.out == pair.a;
  };
  Device &a = world.a_device, &b = world.b_device;
  const auto begun = strangers();
  world.name(*begun.a, *begun.b);
  world.name(*begun.b, *begun.a);
  for (Qp* qp : {begun.a, begun.b}) world.to_rtr(*qp);
  world.to_rts(*begun.a);
  a.island = 1;
  b.island = 2;
  EXPECT_EQ(fabric.near(a, gid_of("10.0.0.1")), &a);
  EXPECT_EQ(fabric.near(a, gid_of("10.0.0.2")), nullptr);
  EXPECT_EQ(fabric.find(gid_of("10.0.0.2")), &b) << "the address is taken all the same";
  world.to_rts(*begun.b);
  EXPECT_EQ(begun.b->link.out, begun.a) << "what was begun in memory ends there";
  EXPECT_FALSE(to_rts(strangers()));
  b.island = 1;
  EXPECT_TRUE(to_rts(strangers()));
}

TEST_F(Fabrics, JoinOnlyOnceBothStandInRtr) {
  const auto pair = strangers();
  world.name(*pair.a, *pair.b);
  world.name(*pair.b, *pair.a);
  world.to_rtr(*pair.a);
  world.to_rts(*pair.a);
  EXPECT_EQ(pair.a->link.out, nullptr);
  world.to_rtr(*pair.b);
  EXPECT_EQ(pair.a->link.out, pair.b);
  EXPECT_EQ(pair.b->link.out, nullptr);
  world.to_rts(*pair.b);
  EXPECT_EQ(pair.b->link.out, pair.a);
}

TEST_F(Fabrics, JoinNobodyWhoNamesAnother) {
  const auto pair = strangers();
  Qp* third = world.add_qp(*world.b, {});
  world.name(*pair.a, *pair.b);
  world.name(*pair.b, *pair.a);
  pair.b->attributes.dest_qpn = pair.a->qpn + 1;
  for (Qp* qp : {pair.a, pair.b}) {
    world.to_rtr(*qp);
    world.to_rts(*qp);
  }
  EXPECT_EQ(pair.a->link.out, nullptr);
  EXPECT_EQ(pair.b->link.out, nullptr);
  // The number is right, the GID is not.
  world.name(*third, *pair.a);
  std::memcpy(third->attributes.av.dgid, gid_of("10.9.9.9").bytes.data(), 16);
  world.to_rtr(*third);
  EXPECT_EQ(third->link.out, nullptr);
  EXPECT_EQ(third->link.in, nullptr);
}

TEST_F(Fabrics, JoinNobodyWithAnotherSequenceNumber) {
  const auto pair = strangers();
  world.name(*pair.a, *pair.b);
  world.name(*pair.b, *pair.a);
  pair.b->attributes.rq_psn ^= 1;
  for (Qp* qp : {pair.a, pair.b}) {
    world.to_rtr(*qp);
    world.to_rts(*qp);
  }
  EXPECT_EQ(pair.a->link.out, nullptr);
  EXPECT_EQ(pair.b->link.out, pair.a);  // each direction for itself
}

TEST_F(Fabrics, JoinNobodyOfAnotherType) {
  const auto pair = strangers();
  world.name(*pair.a, *pair.b);
  world.name(*pair.b, *pair.a);
  pair.b->type = verbs::QpType::kUc;
  for (Qp* qp : {pair.a, pair.b}) {
    world.to_rtr(*qp);
    world.to_rts(*qp);
  }
  EXPECT_EQ(pair.a->link.out, nullptr);
}

TEST_F(Fabrics, JoinNobodyTwice) {
  const auto pair = world.connected();
  fabric.cut(*pair.a);
  EXPECT_EQ(link(*pair.a), ipc::Link::kNone);
  fabric.relink(*pair.a);
  fabric.relink(*pair.b);
  EXPECT_EQ(pair.a->link.out, nullptr);
  EXPECT_EQ(pair.b->link.out, nullptr);
}

TEST_F(Fabrics, JoinAgainAfterReset) {
  const auto pair = world.connected();
  for (Qp* qp : {pair.a, pair.b}) qp->context->reset_qp(*qp);
  world.name(*pair.a, *pair.b);
  world.name(*pair.b, *pair.a);
  for (Qp* qp : {pair.a, pair.b}) qp->set_state(QpState::kInit);
  for (Qp* qp : {pair.a, pair.b}) world.to_rtr(*qp);
  for (Qp* qp : {pair.a, pair.b}) world.to_rts(*qp);
  EXPECT_EQ(pair.a->link.out, pair.b);
  EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
}

// The peer moves to another host, and back.
TEST_F(Fabrics, MoveALinkAndBringItBack) {
  const auto pair = world.connected();
  EXPECT_EQ(pair.a->link.kind(), Link::Kind::kLocal);
  fabric.remove(&world.b_device);
  const int before = changes;
  ASSERT_TRUE(fabric.move_to(*pair.a, {gid_of("fe80::b"), pair.b->qpn, 7, 9}));
  EXPECT_EQ(pair.a->link.kind(), Link::Kind::kRemote);
  EXPECT_EQ(pair.a->link.remote->rq_psn, 9u);
  EXPECT_EQ(link(*pair.a), ipc::Link::kMediated);
  EXPECT_TRUE(pair.a->carries());
  EXPECT_GT(changes, before);
  EXPECT_EQ(pair.b->link.kind(), Link::Kind::kNone);
  EXPECT_EQ(link(*pair.b), ipc::Link::kNone);
  EXPECT_EQ(pair.b->state(), QpState::kRts);
  fabric.mediate(&world.a_device, rdma::Mediated::kPortDown, true);
  EXPECT_FALSE(pair.a->carries());
  fabric.mediate(&world.a_device, rdma::Mediated::kPortDown, false);
  fabric.relink(*pair.a);
  EXPECT_EQ(pair.a->link.kind(), Link::Kind::kRemote) << "the peer is not here";

  fabric.add(&world.b_device);
  fabric.relink(*pair.b);
  EXPECT_EQ(pair.a->link.kind(), Link::Kind::kLocal);
  EXPECT_EQ(pair.a->link.out, pair.b);
  EXPECT_EQ(pair.b->link.out, pair.a);
  EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
}

TEST_F(Fabrics, CutWhatIsRemote) {
  const auto pair = world.connected();
  ASSERT_TRUE(fabric.move_to(*pair.a, {gid_of("fe80::b"), pair.b->qpn, 7, 9}));
  pair.a->fail();
  EXPECT_EQ(pair.a->link.kind(), Link::Kind::kNone);
  EXPECT_EQ(link(*pair.a), ipc::Link::kNone);
  EXPECT_FALSE(pair.a->carries());
}

// The receiver's program finds all that arrives in one order: where the peer put it by itself.
TEST_F(Fabrics, CompleteReceivesInOneRing) {
  const auto pair = world.connected();
  const auto complete = [&](uint32_t slot) {
    ipc::RecvEntry entry{};
    entry.slot = slot;
    pair.a->deliver(entry);
  };
  complete(0);
  ASSERT_TRUE(fabric.move_to(*pair.a, {gid_of("fe80::b"), pair.b->qpn, 7, 9}));
  world.b.reset();
  complete(1);
  EXPECT_EQ(pair.a->completed_receives(), 2u);
  EXPECT_EQ(pair.a->link.peer_outbox->ring->entries()[1].slot, 1u);
  EXPECT_EQ(pair.a->inbox->head, 0u);
}

TEST_F(Fabrics, JoinAQueuePairToItself) {
  Qp* qp = world.add_qp(*world.a, {});
  world.name(*qp, *qp);
  qp->set_state(QpState::kInit);
  world.to_rtr(*qp);
  world.to_rts(*qp);
  EXPECT_EQ(qp->link.out, qp);
  EXPECT_EQ(qp->link.in, qp);
  EXPECT_EQ(link(*qp), ipc::Link::kMediated);
  qp->fail();
  EXPECT_EQ(qp->link.out, nullptr);
}

TEST_F(Fabrics, LinkDirectlyWhoTrusts) {
  const auto pair = world.connected();
  EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
  EXPECT_EQ(link(*pair.b), ipc::Link::kDirect);
  EXPECT_TRUE(pair.a->link.out_direct);
  EXPECT_EQ(pair.a->block->inbox_direct, 1u);
  ASSERT_NE(pair.a->link.outbox, nullptr);
  EXPECT_EQ(pair.a->link.outbox, pair.b->link.peer_outbox);
  EXPECT_EQ(pair.b->link.outbox, pair.a->link.peer_outbox);
  EXPECT_EQ(pair.a->link.outbox->depth, pair.b->rq_depth);
  fabric.cut(*pair.b);
  EXPECT_EQ(link(*pair.a), ipc::Link::kNone);
  EXPECT_EQ(link(*pair.b), ipc::Link::kNone);
}

TEST_F(Fabrics, MediateBetweenTenants) {
  World other("blue");
  const auto pair = other.connected();
  EXPECT_EQ(link(*pair.a), ipc::Link::kMediated);
  EXPECT_EQ(link(*pair.b), ipc::Link::kMediated);
  EXPECT_EQ(pair.a->link.outbox, nullptr);
  EXPECT_EQ(pair.b->block->inbox_direct, 0u);
  EXPECT_EQ(other.fabric.why_mediated(*pair.a), NotDirect::kTenant);
}

TEST_F(Fabrics, TakeDirectLinksToAWorkerAndGiveThemBack) {
  const auto pair = world.connected();
  for (Device* device : {&world.a_device, &world.b_device}) {
    fabric.mediate(device, rdma::Mediated::kRate, true);
    EXPECT_EQ(link(*pair.a), ipc::Link::kMediated);
    EXPECT_EQ(link(*pair.b), ipc::Link::kMediated);
    EXPECT_FALSE(pair.a->runs_direct());
    EXPECT_TRUE(pair.a->link.out_direct) << "completions go where they went";
    EXPECT_EQ(fabric.why_mediated(*pair.a), NotDirect::kRate);
    EXPECT_EQ(fabric.why_mediated(*pair.b), NotDirect::kRate);
    fabric.mediate(device, rdma::Mediated::kRate, false);
    EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
    EXPECT_EQ(link(*pair.b), ipc::Link::kDirect);
  }
  fabric.mediate(&world.a_device, rdma::Mediated::kRate, true);
  fabric.mediate(&world.b_device, rdma::Mediated::kRate, true);
  fabric.mediate(&world.a_device, rdma::Mediated::kRate, false);
  EXPECT_EQ(link(*pair.a), ipc::Link::kMediated) << "the other end is still limited";
  fabric.cut(*pair.a);
  fabric.mediate(&world.b_device, rdma::Mediated::kRate, false);
  EXPECT_EQ(link(*pair.a), ipc::Link::kNone);
}

// What the counters say must be what a walk over the queue pairs finds.
void expect_counted(const Device& device) {
  std::array<uint64_t, 7> states{};
  uint64_t direct = 0, mediated = 0;
  for (const auto& [qpn, qp] : device.qps) {
    ++states.at(static_cast<size_t>(qp->state()));
    if (qp->link.out != nullptr) ++(qp->runs_direct() ? direct : mediated);
  }
  for (size_t i = 0; i < states.size(); ++i) EXPECT_EQ(device.counters.qps[i], states[i]) << i;
  EXPECT_EQ(device.counters.links_direct, direct);
  EXPECT_EQ(device.counters.links_mediated, mediated);
}

TEST_F(Fabrics, CountStatesAndLinks) {
  const auto expect = [&](uint64_t direct, uint64_t mediated) {
    for (const Device* device : {&world.a_device, &world.b_device}) {
      expect_counted(*device);
      EXPECT_EQ(device->counters.links_direct, direct);
      EXPECT_EQ(device->counters.links_mediated, mediated);
    }
  };
  EXPECT_EQ(world.a_device.counters.contexts, 1u);
  const auto pair = world.connected();
  (void)world.connected();
  EXPECT_EQ(world.a_device.counters.qps[static_cast<size_t>(QpState::kRts)], 2u);
  expect(2, 0);
  fabric.mediate(&world.b_device, rdma::Mediated::kRate, true);
  expect(0, 2);
  fabric.mediate(&world.b_device, rdma::Mediated::kRate, false);
  expect(2, 0);
  pair.a->fail();
  expect(1, 0);
  EXPECT_EQ(world.a_device.counters.qps[static_cast<size_t>(QpState::kErr)], 1u);
  world.b->context.reset_qp(*pair.b);
  expect(1, 0);
  world.a->context.destroy_qp(*pair.a);
  expect(1, 0);
  EXPECT_EQ(world.a_device.counters.qps[static_cast<size_t>(QpState::kErr)], 0u);
  world.a.reset();
  EXPECT_EQ(world.a_device.counters.contexts, 0u);
  EXPECT_EQ(world.a_device.counters.qps[static_cast<size_t>(QpState::kRts)], 0u);
  EXPECT_EQ(world.a_device.counters.links_direct, 0u);
  expect_counted(world.b_device);
}

TEST_F(Fabrics, MediateWhileAPortIsDown) {
  fabric.mediate(&world.b_device, rdma::Mediated::kPortDown, true);
  const auto pair = world.connected();
  EXPECT_EQ(link(*pair.a), ipc::Link::kMediated);
  EXPECT_FALSE(pair.a->carries());
  fabric.mediate(&world.b_device, rdma::Mediated::kPortDown, false);
  EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
  EXPECT_TRUE(pair.a->carries());
  for (Device* device : {&world.a_device, &world.b_device}) {
    fabric.mediate(device, rdma::Mediated::kRate, true);
    fabric.mediate(device, rdma::Mediated::kPortDown, true);
    fabric.mediate(device, rdma::Mediated::kRate, false);
    for (const rdma::Qp* each : {pair.a, pair.b}) {
      EXPECT_EQ(link(*each), ipc::Link::kMediated) << "the port is still down";
      EXPECT_FALSE(each->carries());
    }
    fabric.mediate(device, rdma::Mediated::kPortDown, false);
    EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
    EXPECT_EQ(link(*pair.b), ipc::Link::kDirect);
  }
}

TEST_F(Fabrics, LinkNobodyDirectlyWhoIsLimited) {
  fabric.mediate(&world.b_device, rdma::Mediated::kRate, true);
  const auto pair = world.connected();
  EXPECT_EQ(link(*pair.a), ipc::Link::kMediated);
  EXPECT_EQ(pair.a->link.outbox, nullptr) << "nobody's memory is handed out";
  fabric.mediate(&world.b_device, rdma::Mediated::kRate, false);
  EXPECT_EQ(link(*pair.a), ipc::Link::kMediated);
}

TEST_F(Fabrics, MediateForAsLongAsThereIsAReason) {
  const auto pair = world.connected();
  Device* const device = &world.a_device;
  for (const Mediated reason : {Mediated::kCapture, Mediated::kMigration, Mediated::kPinned,
                                Mediated::kNotDirect, Mediated::kRate}) {
    fabric.mediate(device, reason, true);
    fabric.mediate(device, Mediated::kCapture, true);
    EXPECT_EQ(link(*pair.a), ipc::Link::kMediated);
    EXPECT_EQ(link(*pair.b), ipc::Link::kMediated);
    EXPECT_TRUE(pair.a->carries());
    fabric.mediate(device, Mediated::kCapture, false);
    EXPECT_EQ(link(*pair.a),
              reason == Mediated::kCapture ? ipc::Link::kDirect : ipc::Link::kMediated);
    fabric.mediate(device, reason, false);
    EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
    EXPECT_EQ(link(*pair.b), ipc::Link::kDirect);
  }
}

// What passes does not spoil a link that is made meanwhile.
TEST_F(Fabrics, LinkDirectlyAfterACapture) {
  fabric.mediate(&world.b_device, Mediated::kCapture, true);
  const auto pair = world.connected();
  EXPECT_EQ(link(*pair.a), ipc::Link::kMediated);
  fabric.mediate(&world.b_device, Mediated::kCapture, false);
  EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
}

TEST_F(Fabrics, LinkSharedReceiveQueuesDirectly) {
  Party::QpOptions shared;
  shared.srq = world.b->add_srq(8);
  const auto pair = world.connected({}, shared);
  EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
  EXPECT_EQ(link(*pair.b), ipc::Link::kDirect);
  EXPECT_EQ(pair.a->link.outbox->depth, shared.srq->depth);
  EXPECT_GE(pair.a->link.number, ipc::kFirstLink);
  EXPECT_EQ(pair.b->link.number, 0u) << "the peer has a receive queue of its own";
}

TEST_F(Fabrics, PairNobodyWhoIsTooLate) {
  const auto pair = strangers();
  world.name(*pair.a, *pair.b);
  world.name(*pair.b, *pair.a);
  pair.a->set_state(QpState::kRtr);  // without having been told of a link
  EXPECT_EQ((pair.b->set_state(QpState::kRtr), fabric.pair(*pair.b)), nullptr);
  fabric.relink(*pair.b);
  world.to_rts(*pair.a);
  EXPECT_EQ(link(*pair.a), ipc::Link::kMediated);
  EXPECT_EQ(fabric.why_mediated(*pair.a), NotDirect::kEarlier);
}

// Whose device has gone, and whose successor comes.
TEST_F(Fabrics, FindAParkedPeerWhoseDeviceIsRemoved) {
  const auto pair = world.connected();
  pair.b->context->parked = true;
  fabric.remove_parked(&world.b_device);
  EXPECT_EQ(fabric.find(test::gid_of("10.0.0.2")), nullptr);
  EXPECT_NE(fabric.why_mediated(*pair.a), NotDirect::kNone) << "it is linked as before";
  fabric.cut(*pair.a);
  EXPECT_TRUE(fabric.restore_link(*pair.a, true, true)) << "the peer comes back";
  EXPECT_EQ(pair.a->link.out, pair.b);
  fabric.cut(*pair.a);
  fabric.forget_parked(&world.b_device);
  EXPECT_FALSE(fabric.restore_link(*pair.a, true, true)) << "it does not";
}

// What a daemon knows that takes over between the two.
TEST_F(Fabrics, LinkDirectlyWhoCameToRtrUnderAnotherDaemon) {
  const auto pair = strangers();
  world.name(*pair.a, *pair.b);
  world.name(*pair.b, *pair.a);
  world.to_rtr(*pair.a);
  const uint64_t b_outbox = pair.b->link.outbox->range.offset();
  pair.a->link.peer_outbox = pair.b->link.peer_outbox = nullptr;
  fabric.restore_pair(*pair.a, b_outbox);
  fabric.restore_pair(*pair.b, 0);
  world.to_rtr(*pair.b);
  world.to_rts(*pair.a);
  world.to_rts(*pair.b);
  EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
  EXPECT_EQ(link(*pair.b), ipc::Link::kDirect);
}

TEST_F(Fabrics, FailWhoLosesItsGid) {
  const auto pair = world.connected();
  Qp* idle = world.add_qp(*world.a, {});
  Party::QpOptions datagram;
  datagram.type = verbs::QpType::kUd;
  Qp* ud = world.add_qp(*world.a, datagram);
  ud->set_state(QpState::kRts);
  EXPECT_EQ(fabric.set_gids(&world.a_device, {gid_of("10.0.0.1"), gid_of("fe80::c")}), 1U);
  EXPECT_EQ(pair.a->state(), QpState::kErr);
  EXPECT_EQ(idle->state(), QpState::kReset);
  EXPECT_EQ(ud->state(), QpState::kRts);
  EXPECT_EQ(pair.b->state(), QpState::kRts);
  EXPECT_EQ(pair.b->link.out, nullptr);
  EXPECT_EQ(fabric.find(gid_of("fe80::a")), nullptr);
  EXPECT_EQ(fabric.find(gid_of("fe80::c")), &world.a_device);
}

TEST_F(Fabrics, KeepWhoKeepsItsGid) {
  const auto pair = world.connected();
  EXPECT_EQ(fabric.set_gids(&world.a_device, {gid_of("fe80::c"), gid_of("fe80::a")}), 0U);
  EXPECT_EQ(pair.a->state(), QpState::kRts);
  EXPECT_EQ(pair.a->link.out, pair.b);
}

TEST_F(Fabrics, CutWhoDies) {
  const auto pair = world.connected();
  world.a.reset();
  EXPECT_EQ(pair.b->link.out, nullptr);
  EXPECT_EQ(pair.b->link.in, nullptr);
  EXPECT_EQ(pair.b->state(), QpState::kRts);
  EXPECT_EQ(link(*pair.b), ipc::Link::kNone);
}

// A daemon that dies while it writes down that two are linked has told it of one of them, or both.
TEST_F(Fabrics, RestoreALinkThatEitherSideRemembers) {
  const auto pair = world.connected();
  Qp &a = *pair.a, &b = *pair.b;
  const auto restore = [&](bool initiator_knows, bool responder_knows) {
    a.link.out = b.link.in = nullptr;
    a.link.out_made = initiator_knows;
    b.link.in_made = responder_knows;
    (void)fabric.restore_link(a, initiator_knows, true);
    (void)fabric.restore_link(b, true, responder_knows);
    EXPECT_EQ(link(a), a.link.out != nullptr ? link(b) : ipc::Link::kNone);
    return a.link.out == &b && b.link.in == &a && a.link.out_made && b.link.in_made;
  };
  EXPECT_FALSE(restore(false, false));
  EXPECT_TRUE(restore(true, true));
  EXPECT_TRUE(restore(true, false));
  EXPECT_TRUE(restore(false, true));
  b.set_state(QpState::kErr);
  EXPECT_FALSE(restore(true, true));
}

TEST_F(Fabrics, KnowTheMembersOfGroups) {
  const verbs::Gid group = gid_of("ff0e::1");
  Party::QpOptions datagram;
  datagram.type = verbs::QpType::kUd;
  Qp* first = world.add_qp(*world.a, datagram);
  Qp* second = world.add_qp(*world.b, datagram);
  EXPECT_EQ(fabric.members(group), nullptr);
  EXPECT_EQ(fabric.detach(*first, group).error().code(), EINVAL);
  ASSERT_TRUE(fabric.attach(*first, group));
  ASSERT_TRUE(fabric.attach(*first, group));  // as often as one likes
  ASSERT_TRUE(fabric.attach(*second, group));
  EXPECT_THAT(*fabric.members(group), SizeIs(2));
  world.b.reset();
  EXPECT_THAT(*fabric.members(group), SizeIs(1));
  ASSERT_TRUE(fabric.detach(*first, group));
  EXPECT_EQ(fabric.members(group), nullptr);
  EXPECT_EQ(fabric.detach(*first, group).error().code(), EINVAL);
}

TEST_F(Fabrics, TellADeviceWhichGroupsItIsIn) {
  const verbs::Gid group = gid_of("ff0e::1"), other = gid_of("::ffff:239.0.0.1");
  std::vector<std::pair<verbs::Gid, bool>> told;
  world.b_device.on_group = [&](const verbs::Gid& gid, bool in) { told.emplace_back(gid, in); };
  Party::QpOptions datagram;
  datagram.type = verbs::QpType::kUd;
  Qp* const foreign = world.add_qp(*world.a, datagram);
  Qp* const first = world.add_qp(*world.b, datagram);
  Qp* const second = world.add_qp(*world.b, datagram);
  for (Qp* const qp : {foreign, first, first, second}) ASSERT_TRUE(fabric.attach(*qp, group));
  EXPECT_THAT(told, ElementsAre(std::pair(group, true)));
  ASSERT_TRUE(fabric.detach(*first, group));
  ASSERT_TRUE(fabric.attach(*first, other));
  EXPECT_EQ(world.b_device.groups.size(), 2u);
  told.clear();
  world.b.reset();  // as by kill -9
  EXPECT_THAT(told, UnorderedElementsAre(std::pair(group, false), std::pair(other, false)));
  EXPECT_TRUE(world.b_device.groups.empty());
  world.b_device.on_group = nullptr;
}

}  // namespace
}  // namespace vrdma::rdma
