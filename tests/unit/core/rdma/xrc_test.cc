#include "core/rdma/xrc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/rdma/world.h"

namespace vrdma::rdma {
namespace {

using test::World;
using testing::IsEmpty;
using testing::SizeIs;
using verbs::Event;
using verbs::QpState;
using verbs::QpType;

struct CountingSender final : Sender {
  explicit CountingSender(int* count) : changes(count) {}
  void kick() override {}
  void link_changed() override { ++*changes; }
  void receive_posted() override {}
  void srq_gone(uint32_t) override { ++*changes; }
  bool drained() const override { return true; }
  int* changes;
};

struct Xrc : testing::Test {
  World world;
  int changes = 0;
  std::shared_ptr<XrcDomain> domain = std::make_shared<XrcDomain>();
  // Both processes have it open; in truth they would be of one device, which nothing here needs.
  Xrcd& at_a = open(world.a->context);
  Xrcd& at_b = open(world.b->context);

  Xrc() {
    world.make_sender = [this](Qp&) { return std::make_unique<CountingSender>(&changes); };
  }
  Xrcd& open(Context& context) {
    auto xrcd = std::make_unique<Xrcd>();
    xrcd->domain = domain;
    return *context.xrcds.add(std::move(xrcd));
  }
  Srq& srq_of(test::Party& party, Xrcd& xrcd) {
    Srq* srq = party.add_srq(8);
    srq->context = &party.context;
    srq->xrcd = &xrcd;
    srq->cq = party.add_cq();
    ++xrcd.users;
    ++srq->cq->users;
    domain->add(*srq);
    return *srq;
  }
};

TEST_F(Xrc, NumbersTheSrqsOfADomain) {
  Srq& first = srq_of(*world.a, at_a);
  Srq& second = srq_of(*world.a, at_a);
  EXPECT_NE(first.srqn, 0u);
  EXPECT_NE(first.srqn, second.srqn);
  EXPECT_EQ(domain->find(first.srqn), &first);
  const uint32_t gone = first.srqn;
  world.a->context.destroy_srq(first);
  EXPECT_EQ(domain->find(gone), nullptr);
  EXPECT_EQ(domain->find(second.srqn), &second);
  EXPECT_EQ(at_a.users, 1u);
}

TEST_F(Xrc, IsMadeByAnotherDaemonWithItsNumbers) {
  Srq& srq = *world.a->add_srq(8);
  domain->add(srq, 4711);
  EXPECT_EQ(domain->find(4711), &srq);
  domain->srqs.clear();
  Target* target = make_target(world.b->context, at_b, {7, 4712});
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(target->handle, 7u);
  EXPECT_EQ(domain->find_target(4712), target->qp);
  EXPECT_EQ(make_target(world.b->context, at_b, {8, 4712}), nullptr) << "the number is taken";
  EXPECT_EQ(open_target(world.b->context, at_b, *target->qp, 3)->handle, 3u);
}

TEST_F(Xrc, TellsAllOpenersOfATargetsChanges) {
  Target* target = make_target(world.b->context, at_b);
  Target* opened = open_target(world.a->context, at_a, *target->qp);
  std::vector<uint32_t> told;
  for (Context* context : {&world.a->context, &world.b->context})
    context->on_qp_changed = [&](const Qp&, uint32_t handle) { told.push_back(handle); };
  const uint32_t before = target->qp->changes;
  target->qp->set_state(QpState::kInit);
  EXPECT_THAT(told, testing::ElementsAre(target->handle | ipc::kTargetHandle,
                                         opened->handle | ipc::kTargetHandle));
  EXPECT_EQ(target->qp->changes, before + 1);
}

TEST_F(Xrc, AnInitiatorReachesATargetAndNobodyElse) {
  Target* target = make_target(world.b->context, at_b);
  Qp& receiver = *target->qp;
  test::Party::QpOptions options;
  options.type = QpType::kXrcInitiator;
  Qp* sender = world.add_qp(*world.a, options);
  for (Qp* qp : {sender, &receiver}) {
    world.name(*qp, qp == sender ? receiver : *sender);
    world.to_rtr(*qp);
  }
  world.to_rts(*sender);
  world.to_rts(receiver);
  EXPECT_EQ(sender->link.out, &receiver);
  EXPECT_EQ(receiver.link.in, sender);
  EXPECT_EQ(receiver.link.out, nullptr);
  EXPECT_FALSE(sender->link.out_direct);
  // What was begun at an SRQ that goes is begun anew.
  Srq& srq = srq_of(*world.b, at_b);
  const int before = changes;
  world.b->context.destroy_srq(srq);
  EXPECT_EQ(changes, before + 1);
  close_target(world.b->context, *target);
  EXPECT_EQ(sender->link.out, nullptr);
}

TEST_F(Xrc, ATargetBelongsToAllWhoHaveItOpen) {
  Target* first = make_target(world.a->context, at_a);
  Qp& qp = *first->qp;
  EXPECT_EQ(domain->find_target(qp.qpn), &qp);
  Target* second = open_target(world.b->context, at_b, qp);
  EXPECT_EQ(world.a->context.find_qp(first->handle | ipc::kTargetHandle), &qp);
  EXPECT_EQ(world.b->context.find_qp(second->handle | ipc::kTargetHandle), &qp);
  EXPECT_EQ(world.a->context.find_qp(first->handle), nullptr);
  qp.raise(Event::kQpRequestError);
  EXPECT_THAT(world.a->events(), SizeIs(1));
  EXPECT_THAT(world.b->events(), SizeIs(1));
  qp.set_state(QpState::kInit);
  qp.fail();
  EXPECT_EQ(qp.state(), QpState::kErr);
  world.a->context.reset_qp(qp);

  close_target(world.a->context, *first);
  EXPECT_EQ(at_a.users, 0u);
  EXPECT_EQ(qp.context, &world.b->context);
  qp.raise(Event::kQpRequestError);
  EXPECT_THAT(world.a->events(), IsEmpty());
  EXPECT_THAT(world.b->events(), SizeIs(1));
  const uint32_t qpn = qp.qpn;
  close_target(world.b->context, *second);
  EXPECT_EQ(domain->find_target(qpn), nullptr);
  EXPECT_THAT(domain->targets, IsEmpty());
}

TEST_F(Xrc, EndWithTheirProcess) {
  (void)make_target(world.b->context, at_b);
  (void)srq_of(*world.b, at_b);
  world.b.reset();
  EXPECT_THAT(domain->srqs, IsEmpty());
  EXPECT_THAT(domain->targets, IsEmpty());
}

}  // namespace
}  // namespace vrdma::rdma
