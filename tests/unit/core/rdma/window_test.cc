// Memory windows: what may be bound, used and invalidated, and by which queue pair.
#include "core/rdma/window.h"

#include <gtest/gtest.h>

#include "tests/unit/core/rdma/world.h"

namespace vrdma::rdma {
namespace {

using test::Party;
using test::World;
using verbs::WcStatus;

constexpr uint32_t kBindable = verbs::kLocalWrite | verbs::kAccessRemote | verbs::kMwBind;

struct Windows : testing::Test {
  World world;
  Party& a = *world.a;
  World::Pair pair = world.connected();
  Qp& qp = *pair.a;
  Mr& mr = *make_mr(a, kBindable, *a.pd);

  static Mr* make_mr(Party& party, uint32_t access, Pd& pd) {
    auto mr = std::make_unique<Mr>();
    mr->key = party.context.take_key({mr.get(), nullptr});
    mr->pd = &pd;
    mr->region.pd = pd.handle;
    mr->region.access = access;
    mr->region.addr = Party::kBase;
    mr->region.iova = 0x1000;
    mr->region.length = 4096;
    mr->region.way = ipc::Way::kInPlace;
    party.context.set_key(mr->key, &mr->region);
    return party.context.mrs.add(std::move(mr));
  }
  Mw& make_mw(bool type_2, Pd* pd = nullptr) {
    auto mw = std::make_unique<Mw>();
    mw->key = a.context.take_key({nullptr, mw.get()});
    mw->type_2 = type_2;
    mw->pd = pd != nullptr ? pd : a.pd;
    return *a.context.mws.add(std::move(mw));
  }
  static ipc::SendWqe wish(const Mw& mw, const Mr& region, uint32_t tag,
                           uint32_t access = verbs::kRemoteWrite, uint64_t addr = 0x1000 + 64,
                           uint64_t length = 128) {
    ipc::SendWqe wqe = test::wqe_of(verbs::Opcode::kBindWindow);
    wqe.bind = {addr, length, region.handle, access, mw.handle, (mw.key & ~0xffu) | tag};
    return wqe;
  }
  bool binds(const ipc::SendWqe& wqe) { return bind_window(qp, wqe) == WcStatus::kSuccess; }
  bool finds(uint32_t key, Region* region) { return find_region(a.context.keys(), key, region); }
};

TEST_F(Windows, AreBoundByAnotherDaemonAsTheyWere) {
  Mw& mw = make_mw(true);
  std::vector<Binding> told;
  a.context.on_window_changed = [&](const Mw& changed) {
    told.push_back(binding_of(a.context, changed));
  };
  ASSERT_TRUE(binds(wish(mw, mr, 9)));
  unbind_window(a.context, mw);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].mr, &mr);
  EXPECT_EQ(told[1].mr, nullptr);
  Region region;
  ASSERT_TRUE(restore_binding(a.context, mw, told[1]));
  EXPECT_FALSE(finds(told[0].key, &region));
  ASSERT_TRUE(restore_binding(a.context, mw, told[0]));
  ASSERT_TRUE(finds(mw.key, &region));
  EXPECT_EQ(region.addr, Party::kBase + 64);
  EXPECT_EQ(region.iova, 0x1000u + 64);
  EXPECT_EQ(region.qpn, qp.qpn);
  EXPECT_EQ(mr.windows, 1u);
  EXPECT_EQ(qp.windows, 1u);
  unbind_window(a.context, mw);
  const auto refused = [&](auto change) {
    Binding other = told[0];
    change(other);
    return !restore_binding(a.context, mw, other);
  };
  EXPECT_TRUE(refused([](Binding& other) { other.key += 1u << 8; })) << "another's slot";
  EXPECT_TRUE(refused([](Binding& other) { --other.addr, other.length = 4097; }));
  EXPECT_TRUE(refused([](Binding& other) { other.addr = Party::kBase - 64; }));
  EXPECT_TRUE(refused([](Binding& other) { other.access = verbs::kLocalWrite; }));
  EXPECT_TRUE(refused([](Binding& other) { other.qp = nullptr; })) << "of type 1";
  EXPECT_TRUE(refused([&](Binding& other) { other.mr = make_mr(a, verbs::kLocalWrite, *a.pd); }));
  EXPECT_EQ(mr.windows, 0u);
}

TEST_F(Windows, OfType1AreBoundAgainAndUnboundByLength0) {
  Mw& mw = make_mw(false);
  Region region;
  EXPECT_FALSE(finds(mw.key, &region));
  ASSERT_TRUE(binds(wish(mw, mr, 7)));
  EXPECT_EQ(mw.key & 0xff, 7u);
  ASSERT_TRUE(finds(mw.key, &region));
  EXPECT_TRUE(region.window);
  EXPECT_EQ(region.qpn, 0u);
  EXPECT_EQ(region.addr, Party::kBase + 64);
  EXPECT_EQ(region.iova, 0x1000u + 64);
  EXPECT_EQ(region.length, 128u);
  EXPECT_EQ(region.access, uint32_t{verbs::kRemoteWrite});
  EXPECT_EQ(mr.windows, 1u);

  Mr& other = *make_mr(a, kBindable, *a.pd);
  const uint32_t old = mw.key;
  ASSERT_TRUE(binds(wish(mw, other, 8)));
  EXPECT_FALSE(finds(old, &region));
  EXPECT_TRUE(finds(mw.key, &region));
  EXPECT_EQ(mr.windows, 0u);
  EXPECT_EQ(other.windows, 1u);

  ipc::SendWqe unbind = wish(mw, mr, 9);
  unbind.bind.mr = ipc::kNoObject;
  unbind.bind.addr = unbind.bind.length = 0;
  ASSERT_TRUE(binds(unbind));
  EXPECT_FALSE(finds(mw.key, &region));
  EXPECT_EQ(other.windows, 0u);
  EXPECT_EQ(invalidatable(qp, mw.key), nullptr);
}

TEST_F(Windows, OfType2BelongToTheQueuePair) {
  Mw& mw = make_mw(true);
  ASSERT_TRUE(binds(wish(mw, mr, 1)));
  Region region;
  ASSERT_TRUE(finds(mw.key, &region));
  EXPECT_EQ(region.qpn, qp.qpn);
  EXPECT_FALSE(binds(wish(mw, mr, 2)));  // bound
  EXPECT_EQ(mw.key & 0xff, 1u);

  Qp& other = *a.add_qp();
  EXPECT_EQ(invalidatable(other, mw.key), nullptr);
  EXPECT_EQ(invalidatable(qp, mw.key ^ 1), nullptr);
  EXPECT_EQ(invalidatable(qp, mr.key), nullptr);
  ASSERT_EQ(invalidatable(qp, mw.key), &mw);
  unbind_window(a.context, mw);
  EXPECT_FALSE(finds(mw.key, &region));
  EXPECT_EQ(invalidatable(qp, mw.key), nullptr);
  EXPECT_EQ(qp.windows, 0u);
  EXPECT_EQ(mr.windows, 0u);

  EXPECT_FALSE(binds(wish(mw, mr, 2, verbs::kRemoteWrite, 0x1000, 0)));
  EXPECT_TRUE(binds(wish(mw, mr, 2)));
}

TEST_F(Windows, GoWithTheQueuePairThatBoundThem) {
  Mw& mw = make_mw(true);
  ASSERT_TRUE(binds(wish(mw, mr, 1)));
  a.context.destroy_qp(qp);
  Region region;
  EXPECT_FALSE(finds(mw.key, &region));
  EXPECT_EQ(mr.windows, 0u);
  EXPECT_EQ(mw.qp, nullptr);
}

TEST_F(Windows, MayBeZeroBasedIfOfType2) {
  Mw& one = make_mw(false);
  Mw& two = make_mw(true);
  EXPECT_FALSE(binds(wish(one, mr, 1, verbs::kRemoteRead | verbs::kZeroBased)));
  ASSERT_TRUE(binds(wish(two, mr, 1, verbs::kRemoteRead | verbs::kZeroBased)));
  Region region;
  ASSERT_TRUE(finds(two.key, &region));
  EXPECT_EQ(region.iova, 0u);
  EXPECT_EQ(region.addr, Party::kBase + 64);
}

TEST_F(Windows, AreRefusedWhatTheRegionDoesNotAllow) {
  Pd& foreign = *a.add_pd();
  const Mr& unbindable = *make_mr(a, kBindable & ~verbs::kMwBind, *a.pd);
  const Mr& readable = *make_mr(a, verbs::kRemoteRead | verbs::kMwBind, *a.pd);
  const Mr& of_foreign = *make_mr(a, kBindable, foreign);
  const Mr& zero_based = *make_mr(a, kBindable | verbs::kZeroBased, *a.pd);
  for (const bool type_2 : {false, true}) {
    Mw& mw = make_mw(type_2);
    EXPECT_FALSE(binds(wish(mw, unbindable, 1)));
    EXPECT_FALSE(binds(wish(mw, readable, 1, verbs::kRemoteWrite)));
    EXPECT_FALSE(binds(wish(mw, readable, 1, verbs::kRemoteAtomic)));
    EXPECT_FALSE(binds(wish(mw, of_foreign, 1)));
    EXPECT_FALSE(binds(wish(mw, zero_based, 1)));
    EXPECT_FALSE(binds(wish(mw, mr, 1, verbs::kMwBind)));
    EXPECT_FALSE(binds(wish(mw, mr, 1, verbs::kRemoteRead, 0xfff, 64)));
    EXPECT_FALSE(binds(wish(mw, mr, 1, verbs::kRemoteRead, 0x1000, 4097)));
    EXPECT_FALSE(binds(wish(mw, mr, 1, verbs::kRemoteRead, 0x2001, 1)));
    EXPECT_FALSE(binds(wish(mw, mr, 1, verbs::kRemoteRead, UINT64_MAX, 2)));
    ipc::SendWqe wrong = wish(mw, mr, 1);
    wrong.bind.rkey ^= 0x100;
    EXPECT_FALSE(binds(wrong));
    wrong = wish(mw, mr, 1);
    wrong.bind.window += 100;
    EXPECT_FALSE(binds(wrong));
    wrong = wish(mw, mr, 1);
    wrong.bind.mr += 100;
    EXPECT_FALSE(binds(wrong));
    EXPECT_FALSE(binds(wish(make_mw(type_2, &foreign), of_foreign, 1)));  // not the queue pair's
    Region region;
    EXPECT_FALSE(finds(mw.key, &region));
    EXPECT_TRUE(binds(wish(mw, readable, 1, verbs::kRemoteRead)));
    EXPECT_EQ(mr.windows, 0u);
  }
}

// A request under a window's key, as the executor sees it.
TEST_F(Windows, AreNoLkeysAndBoundToTheirQueuePair) {
  Mw& one = make_mw(false);
  Mw& two = make_mw(true);
  ASSERT_TRUE(binds(wish(one, mr, 1)));
  ASSERT_TRUE(binds(wish(two, mr, 1)));
  const Qp& initiator = *pair.b;
  WorkRequest request{};
  Plan plan;
  const auto write = [&](uint32_t rkey, uint32_t qpn) {
    request.wqe = test::rdma_wqe(verbs::Opcode::kRdmaWrite, 0x1000 + 64, rkey);
    request.wqe.flags |= ipc::kInline;
    request.wqe.inline_length = 8;
    Responder responder;
    responder.memory = qp.memory();
    responder.pd = a.pd->handle;
    responder.qpn = qpn;
    responder.access = verbs::kRemoteWrite;
    return prepare(request, {initiator.memory(), world.b->pd->handle}, responder, &plan);
  };
  EXPECT_EQ(write(one.key, qp.qpn), Outcome::kDone);
  EXPECT_EQ(write(one.key, qp.qpn + 1), Outcome::kDone);
  EXPECT_EQ(write(two.key, qp.qpn), Outcome::kDone);
  EXPECT_EQ(write(two.key, qp.qpn + 1), Outcome::kRemoteAccess);

  const verbs::Sge by_window{0x1000 + 64, 8, one.key};
  PieceList pieces;
  uint64_t length = 0;
  bool reached = false;
  EXPECT_EQ(gather(&by_window, 1, qp.memory(), a.pd->handle, 0, &pieces, &length, &reached),
            Outcome::kLocalProtection);
}

TEST_F(Windows, WaitForWhoeverIsInTheMiddle) {
  KeyUsers nobody(a.context, nullptr);
  EXPECT_TRUE(nobody.gone());
  // As on a direct link, in the middle of a request.
  pair.b->link.out_direct = true;
  ASSERT_EQ(qp.link.in, pair.b);
  pair.b->block->busy.store(5);
  KeyUsers one(a.context, &qp), all(a.context, nullptr);
  EXPECT_FALSE(one.gone());
  EXPECT_FALSE(all.gone());
  pair.b->block->busy.store(7);  // that request is over
  EXPECT_TRUE(one.gone());
  KeyUsers stopped(a.context, &qp);
  EXPECT_TRUE(test::run_until(*world.loop, [&] { return stopped.gone(); }));
  pair.b->link.out_direct = false;
}

}  // namespace
}  // namespace vrdma::rdma
