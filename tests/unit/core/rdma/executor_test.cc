#include "core/rdma/executor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "tests/unit/core/rdma/world.h"

namespace vrdma::rdma {
namespace {

using test::Party;
using test::rdma_wqe;
using test::World;
using test::wqe_of;
using verbs::Opcode;
using verbs::Sge;

constexpr uint32_t kAllAccess =
    verbs::kLocalWrite | verbs::kRemoteWrite | verbs::kRemoteRead | verbs::kRemoteAtomic;
constexpr uint64_t kBase = Party::kBase;
constexpr uint64_t kBorder = kBase + Party::kBytes / 2;  // of two windows

struct Executor : testing::Test {
  World world;
  Party& a = *world.a;
  Party& b = *world.b;
  World::Pair pair = world.connected();
  uint32_t a_key = a.register_all(kAllAccess), b_key = b.register_all(kAllAccess);
  WorkRequest request{};
  Plan plan;
  uint32_t access = verbs::kRemoteWrite | verbs::kRemoteRead | verbs::kRemoteAtomic;

  static AddressSpace* space_of(Party& party) { return party.context.process->space(); }
  Outcome prepare(ipc::SendWqe wqe, const std::vector<Sge>& sges) {
    wqe.num_sge = static_cast<uint16_t>(sges.size());
    request.wqe = wqe;
    std::copy(sges.begin(), sges.end(), request.sges);
    return prepare_again();
  }
  Outcome prepare_inline(ipc::SendWqe wqe, const std::string& bytes) {
    wqe.flags |= ipc::kInline;
    wqe.inline_length = static_cast<uint32_t>(bytes.size());
    request.wqe = wqe;
    std::memcpy(request.inline_data, bytes.data(), bytes.size());
    return prepare_again();
  }
  Outcome prepare_again() {
    const Requester requester{pair.a->memory(), a.pd->handle};
    Responder responder;
    responder.memory = pair.b->memory();
    responder.pd = responder.receive_pd = b.pd->handle;
    responder.qpn = pair.b->qpn;
    responder.access = access;
    responder.receives = pair.b->receives;
    responder.next_receive = pair.b->inbox_head;
    return rdma::prepare(request, requester, responder, &plan);
  }
  Outcome run(const ipc::SendWqe& wqe, const std::vector<Sge>& sges) {
    const Outcome outcome = prepare(wqe, sges);
    if (outcome == Outcome::kDone) {
      EXPECT_TRUE(perform(request, plan));
    }
    return outcome;
  }
  ipc::SendWqe write(uint64_t addr) const { return rdma_wqe(Opcode::kRdmaWrite, addr, b_key); }
  ipc::SendWqe read(uint64_t addr) const { return rdma_wqe(Opcode::kRdmaRead, addr, b_key); }
  void fill(Party& party) {
    for (uint64_t i = 0; i < Party::kBytes; ++i) party.memory()[i] = static_cast<uint8_t>(i * 7);
  }
};

Piece at(uint64_t addr, uint64_t length, AddressSpace* space) {
  return {nullptr, addr, length, false, space, nullptr};
}

TEST_F(Executor, WritesAndReads) {
  fill(a);
  ASSERT_EQ(run(write(kBase + 3), {{kBase + 100, 1000, a_key}}), Outcome::kDone);
  EXPECT_EQ(plan.length, 1000u);
  EXPECT_FALSE(plan.receives);
  EXPECT_EQ(std::memcmp(b.memory(kBase + 3), a.memory(kBase + 100), 1000), 0);
  EXPECT_EQ(b.memory()[2], 0);
  EXPECT_EQ(b.memory()[1003], 0);
  ASSERT_EQ(run(read(kBase + 3), {{kBase + 5000, 1000, a_key}}), Outcome::kDone);
  EXPECT_EQ(std::memcmp(a.memory(kBase + 5000), a.memory(kBase + 100), 1000), 0);
}

TEST_F(Executor, WritesEightBytesAtOnce) {
  ipc::SendWqe wqe = rdma_wqe(Opcode::kAtomicWrite, kBase + 64, b_key);
  wqe.rdma.compare_add = 0x1122334455667788;
  ASSERT_EQ(run(wqe, {}), Outcome::kDone);
  uint64_t seen = 0;
  std::memcpy(&seen, b.memory(kBase + 64), sizeof seen);
  EXPECT_EQ(seen, 0x1122334455667788u);
  wqe.rdma.remote_addr = kBase + 68;
  EXPECT_EQ(prepare(wqe, {}), Outcome::kRemoteInvalid);
}

TEST_F(Executor, CrossesWindowsOnBothSides) {
  fill(a);
  for (const uint64_t before : {1u, 7u, 8u, 4096u}) {
    const uint64_t from = kBorder - 2 * before, to = kBorder - before;
    ASSERT_EQ(run(write(to), {{from, 20'000, a_key}}), Outcome::kDone);
    EXPECT_EQ(std::memcmp(b.memory(to), a.memory(from), 20'000), 0) << before;
  }
}

TEST_F(Executor, GathersSixteenElements) {
  fill(a);
  std::vector<Sge> sges;
  std::string wanted;
  for (uint32_t i = 0; i < ipc::kMaxSge; ++i) {
    const uint64_t from = kBase + (15 - i) * 10'000;
    sges.push_back({from, i * 13, a_key});  // the first one is empty
    wanted.append(reinterpret_cast<char*>(a.memory(from)), i * 13);
  }
  ASSERT_EQ(run(write(kBase), sges), Outcome::kDone);
  EXPECT_EQ(plan.length, wanted.size());
  EXPECT_EQ(std::memcmp(b.memory(), wanted.data(), wanted.size()), 0);
  EXPECT_EQ(b.memory()[wanted.size()], 0);
}

TEST_F(Executor, ScattersAReadAndASend) {
  fill(b);
  ASSERT_EQ(run(read(kBase + 50),
                {{kBase + 9, 5, a_key}, {kBase + 1000, 1, a_key}, {kBase + 2000, 300, a_key}}),
            Outcome::kDone);
  EXPECT_EQ(std::memcmp(a.memory(kBase + 9), b.memory(kBase + 50), 5), 0);
  EXPECT_EQ(*a.memory(kBase + 1000), *b.memory(kBase + 55));
  EXPECT_EQ(std::memcmp(a.memory(kBase + 2000), b.memory(kBase + 56), 300), 0);

  fill(a);
  ASSERT_TRUE(b.post_receive(*pair.b, 77, {{kBorder - 3, 5, b_key}, {kBase, 100, b_key}}));
  ipc::SendWqe send = wqe_of(Opcode::kSendWithImm, ipc::kSolicited);
  send.imm = 0xaabbccdd;
  ASSERT_EQ(run(send, {{kBase + 11, 4, a_key}, {kBase + 500, 46, a_key}}), Outcome::kDone);
  EXPECT_TRUE(plan.receives);
  EXPECT_EQ(plan.receive.wr_id, 77u);
  EXPECT_EQ(plan.length, 50u);
  EXPECT_EQ(std::memcmp(b.memory(kBorder - 3), a.memory(kBase + 11), 4), 0);
  EXPECT_EQ(*b.memory(kBorder + 1), *a.memory(kBase + 500));
  EXPECT_EQ(std::memcmp(b.memory(kBase), a.memory(kBase + 501), 45), 0);

  ipc::publish(pair.b->inbox, pair.b->inbox_depth, 0, receive_entry(request, plan));
  const auto entries = b.received(*pair.b);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].slot, 0u);
  EXPECT_EQ(entries[0].byte_len, 50u);
  EXPECT_EQ(entries[0].imm, 0xaabbccdd);
  EXPECT_EQ(entries[0].flags, ipc::kRecvSolicited);
  EXPECT_EQ(entries[0].opcode, static_cast<uint8_t>(Opcode::kSendWithImm));
}

TEST_F(Executor, SendsInlineDataFromTheRequest) {
  ASSERT_EQ(prepare_inline(write(kBase), "inline data"), Outcome::kDone);
  ASSERT_TRUE(perform(request, plan));
  EXPECT_EQ(std::memcmp(b.memory(), "inline data", 11), 0);
  ASSERT_EQ(prepare_inline(write(kBase), std::string(ipc::kMaxInline, 'x')), Outcome::kDone);
  ASSERT_TRUE(perform(request, plan));
  EXPECT_EQ(*b.memory(kBase + ipc::kMaxInline - 1), 'x');
}

TEST_F(Executor, HasNoInlinePlaceForAnswers) {
  EXPECT_EQ(prepare_inline(read(kBase), "12345678"), Outcome::kLocalProtection);
  EXPECT_EQ(prepare_inline(rdma_wqe(Opcode::kFetchAdd, kBase, b_key), "12345678"),
            Outcome::kLocalProtection);
}

TEST_F(Executor, TransfersNothingWithoutLookingAtKeys) {
  EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaWrite, 1, 999), {}), Outcome::kDone);
  EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaRead, 1, 999), {{1, 0, 888}}), Outcome::kDone);
  EXPECT_EQ(plan.length, 0u);
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {}));
  EXPECT_EQ(run(wqe_of(Opcode::kSend), {}), Outcome::kDone);
  EXPECT_EQ(prepare_inline(write(1), ""), Outcome::kDone);
  EXPECT_TRUE(perform(request, plan));
}

TEST_F(Executor, NeedsAReceiveOnlyWhereOneIsConsumed) {
  const std::vector<Sge> data{{kBase, 10, a_key}};
  EXPECT_EQ(prepare(wqe_of(Opcode::kSend), data), Outcome::kNoReceive);
  EXPECT_EQ(prepare(rdma_wqe(Opcode::kRdmaWriteWithImm, kBase, b_key), data), Outcome::kNoReceive);
  EXPECT_EQ(prepare(write(kBase), data), Outcome::kDone);
  // The receive of a WRITE with immediate data needs no room.
  ASSERT_TRUE(b.post_receive(*pair.b, 5, {}));
  EXPECT_EQ(prepare(rdma_wqe(Opcode::kRdmaWriteWithImm, kBase, b_key), data), Outcome::kDone);
  EXPECT_TRUE(plan.receives);
}

TEST_F(Executor, RefusesLocalMemoryThatIsNotTheKeys) {
  const uint32_t part = a.register_memory(kBase + 100, 50, 0);
  rdma::Pd* other = a.add_pd();
  const uint32_t foreign = a.register_memory(kBase, 100, kAllAccess, ipc::Way::kInPlace, other);
  const auto refused = [&](const Sge& sge) { return prepare(write(kBase), {sge}); };
  EXPECT_EQ(refused({kBase + 100, 50, part}), Outcome::kDone);
  EXPECT_EQ(refused({kBase + 99, 2, part}), Outcome::kLocalProtection);
  EXPECT_EQ(refused({kBase + 149, 2, part}), Outcome::kLocalProtection);
  EXPECT_EQ(refused({kBase, 2, foreign}), Outcome::kLocalProtection);
  EXPECT_EQ(refused({kBase, 2, 0}), Outcome::kLocalProtection);
  EXPECT_EQ(refused({kBase, 2, a_key + 1}), Outcome::kLocalProtection);
  EXPECT_EQ(prepare(read(kBase), {{kBase + 100, 50, part}}), Outcome::kLocalProtection);
  a.deregister(part);
  EXPECT_EQ(refused({kBase + 100, 50, part}), Outcome::kLocalProtection);
}

TEST_F(Executor, RefusesRemoteMemoryThatIsNotTheKeys) {
  const std::vector<Sge> data{{kBase, 10, a_key}};
  const uint32_t readable = b.register_memory(kBase, 100, verbs::kRemoteRead);
  const uint32_t writable = b.register_memory(kBase, 100, verbs::kLocalWrite | verbs::kRemoteWrite);
  const uint32_t foreign =
      b.register_memory(kBase, 100, kAllAccess, ipc::Way::kInPlace, b.add_pd());
  const auto outcome = [&](Opcode op, uint64_t addr, uint32_t key) {
    return prepare(rdma_wqe(op, addr, key), data);
  };
  EXPECT_EQ(outcome(Opcode::kRdmaRead, kBase, readable), Outcome::kDone);
  EXPECT_EQ(outcome(Opcode::kRdmaWrite, kBase, readable), Outcome::kRemoteAccess);
  EXPECT_EQ(outcome(Opcode::kRdmaWrite, kBase, writable), Outcome::kDone);
  EXPECT_EQ(outcome(Opcode::kRdmaRead, kBase, writable), Outcome::kRemoteAccess);
  EXPECT_EQ(outcome(Opcode::kRdmaWrite, kBase + 91, writable), Outcome::kRemoteAccess);
  EXPECT_EQ(outcome(Opcode::kRdmaWrite, kBase - 1, writable), Outcome::kRemoteAccess);
  EXPECT_EQ(outcome(Opcode::kRdmaWrite, ~uint64_t{0}, writable), Outcome::kRemoteAccess);
  EXPECT_EQ(outcome(Opcode::kRdmaWrite, kBase, foreign), Outcome::kRemoteAccess);
  EXPECT_EQ(outcome(Opcode::kRdmaWrite, kBase, 0), Outcome::kRemoteAccess);
  EXPECT_EQ(prepare(rdma_wqe(Opcode::kFetchAdd, kBase, writable), {{kBase, 8, a_key}}),
            Outcome::kRemoteAccess);
}

TEST_F(Executor, RefusesWhatTheQueuePairDoesNotGrant) {
  const std::vector<Sge> data{{kBase, 8, a_key}};
  access = verbs::kRemoteRead;
  EXPECT_EQ(prepare(write(kBase), data), Outcome::kRemoteInvalid);
  EXPECT_EQ(prepare(read(kBase), data), Outcome::kDone);
  EXPECT_EQ(prepare(rdma_wqe(Opcode::kFetchAdd, kBase, b_key), data), Outcome::kRemoteInvalid);
  access = verbs::kRemoteWrite;
  EXPECT_EQ(prepare(read(kBase), data), Outcome::kRemoteInvalid);
  EXPECT_EQ(prepare(write(kBase), data), Outcome::kDone);
}

TEST_F(Executor, RefusesReceivesThatDoNotFit) {
  const std::vector<Sge> data{{kBase, 10, a_key}};
  const uint32_t unwritable = b.register_memory(kBase, 100, verbs::kRemoteRead);
  const auto outcome = [&](const std::vector<Sge>& receive) {
    EXPECT_TRUE(b.post_receive(*pair.b, 1, receive));
    const Outcome got = prepare(wqe_of(Opcode::kSend), data);
    ++pair.b->inbox_head;
    return got;
  };
  EXPECT_EQ(outcome({{kBase, 10, b_key}}), Outcome::kDone);
  EXPECT_EQ(outcome({{kBase, 9, b_key}}), Outcome::kReceiveTooSmall);
  EXPECT_EQ(outcome({{kBase, 5, b_key}, {kBase, 4, b_key}}), Outcome::kReceiveTooSmall);
  EXPECT_EQ(outcome({}), Outcome::kReceiveTooSmall);
  EXPECT_EQ(outcome({{kBase, 10, unwritable}}), Outcome::kReceiveProtection);
  EXPECT_EQ(outcome({{kBase, 10, 0}}), Outcome::kReceiveProtection);
  // What is behind the message is not looked at.
  EXPECT_EQ(outcome({{kBase, 10, b_key}, {kBase, 10, 0}}), Outcome::kDone);
  EXPECT_EQ(outcome({{kBase, 100, unwritable}}), Outcome::kReceiveProtection);
}

TEST_F(Executor, RefusesImpossibleReceiveRings) {
  const std::vector<Sge> data{{kBase, 10, a_key}};
  pair.b->block->rq_head = pair.b->rq_depth + 1;
  EXPECT_EQ(prepare(wqe_of(Opcode::kSend), data), Outcome::kPeerBroken);
  pair.b->block->rq_head = ~0u;
  EXPECT_EQ(prepare(wqe_of(Opcode::kSend), data), Outcome::kPeerBroken);
  pair.b->block->rq_head = 1;
  const ipc::RecvWqe wqe{1, pair.b->max_recv_sge + 1, 0};
  std::memcpy(const_cast<uint8_t*>(pair.b->receives.wqes), &wqe, sizeof wqe);
  EXPECT_EQ(prepare(wqe_of(Opcode::kSend), data), Outcome::kPeerBroken);
}

TEST_F(Executor, TakesAReceiveFromAFullRing) {
  for (uint32_t i = 0; i < pair.b->rq_depth; ++i)
    ASSERT_TRUE(b.post_receive(*pair.b, i, {{kBase, 64, b_key}}));
  EXPECT_EQ(prepare(wqe_of(Opcode::kSend), {{kBase, 10, a_key}}), Outcome::kDone);
}

// Key entries stand in memory that the tenant writes.
TEST_F(Executor, RefusesRemoteUseOfNothing) {
  const uint32_t forged = b.register_memory(0, ~uint64_t{0}, kAllAccess, ipc::Way::kNull);
  for (const Opcode opcode : {Opcode::kFetchAdd, Opcode::kCompareSwap, Opcode::kRdmaRead,
                              Opcode::kRdmaWrite, Opcode::kAtomicWrite})
    EXPECT_EQ(prepare(rdma_wqe(opcode, 0, forged), {{kBase, 8, a_key}}), Outcome::kRemoteAccess);
}

TEST_F(Executor, WrapsReceiveIndicesAround) {
  pair.b->link.in_direct = false;
  pair.b->inbox_head = ~0u;
  pair.b->block->rq_head = ~0u;
  ASSERT_TRUE(b.post_receive(*pair.b, 41, {}));
  ASSERT_TRUE(b.post_receive(*pair.b, 42, {}));
  Receive receive;
  ASSERT_EQ(fetch_receive(pair.b->receives, ~0u, &receive), Outcome::kDone);
  EXPECT_EQ(receive.wr_id, 41u);
  ASSERT_EQ(fetch_receive(pair.b->receives, 0, &receive), Outcome::kDone);
  EXPECT_EQ(receive.wr_id, 42u);
  EXPECT_EQ(fetch_receive(pair.b->receives, 1, &receive), Outcome::kNoReceive);
}

TEST_F(Executor, LimitsTheLengthOfAMessage) {
  const uint32_t huge = a.register_memory(0, ipc::kMemoryArenaSize, kAllAccess);
  const uint32_t target = b.register_memory(0, ipc::kMemoryArenaSize, kAllAccess);
  const auto outcome = [&](uint32_t second) {
    return prepare(rdma_wqe(Opcode::kRdmaWrite, 0, target),
                   {{0, 1u << 30, huge}, {0, 1u << 30, huge}, {0, second, huge}});
  };
  EXPECT_EQ(outcome(0), Outcome::kDone);
  EXPECT_EQ(plan.length, verbs::kMaxMessage);
  EXPECT_EQ(outcome(1), Outcome::kLocalLength);
}

TEST_F(Executor, DoesAtomics) {
  auto* word = reinterpret_cast<uint64_t*>(b.memory(kBase + 64));
  auto* old = reinterpret_cast<uint64_t*>(a.memory(kBase + 8));
  *word = 40;
  ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, kBase + 64, b_key);
  add.rdma.compare_add = 2;
  ASSERT_EQ(run(add, {{kBase + 8, 8, a_key}}), Outcome::kDone);
  EXPECT_EQ(*word, 42u);
  EXPECT_EQ(*old, 40u);
  ipc::SendWqe swap = rdma_wqe(Opcode::kCompareSwap, kBase + 64, b_key);
  swap.rdma.compare_add = 41;
  swap.rdma.swap = 99;
  ASSERT_EQ(run(swap, {{kBase + 8, 8, a_key}}), Outcome::kDone);
  EXPECT_EQ(*word, 42u);
  EXPECT_EQ(*old, 42u);
  swap.rdma.compare_add = 42;
  ASSERT_EQ(run(swap, {{kBase + 8, 8, a_key}}), Outcome::kDone);
  EXPECT_EQ(*word, 99u);
  // The answer may be scattered, and stand misaligned across two windows.
  ASSERT_EQ(run(add, {{kBorder - 3, 5, a_key}, {kBase + 1, 3, a_key}}), Outcome::kDone);
  EXPECT_EQ(*a.memory(kBorder - 3), 99);
  EXPECT_EQ(*word, 101u);
}

TEST_F(Executor, RefusesBadAtomics) {
  const ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, kBase + 64, b_key);
  EXPECT_EQ(prepare(add, {{kBase, 4, a_key}}), Outcome::kLocalLength);
  EXPECT_EQ(prepare(add, {{kBase, 16, a_key}}), Outcome::kLocalLength);
  EXPECT_EQ(prepare(add, {}), Outcome::kLocalLength);
  for (const uint64_t off : {1u, 2u, 4u, 7u})
    EXPECT_EQ(prepare(rdma_wqe(Opcode::kFetchAdd, kBase + 64 + off, b_key), {{kBase, 8, a_key}}),
              Outcome::kRemoteInvalid);
  // Aligned as the peer names it, but not in memory.
  Region region;
  region.pd = b.pd->handle;
  region.access = kAllAccess;
  region.addr = kBase + 4;
  region.iova = 0x1000;
  region.length = 64;
  region.way = ipc::Way::kInPlace;
  b.context.set_key(9 << 8 | 0x5a, &region);
  EXPECT_EQ(prepare(rdma_wqe(Opcode::kFetchAdd, 0x1000, 9 << 8 | 0x5a), {{kBase, 8, a_key}}),
            Outcome::kRemoteInvalid);
  // Aligned in memory, but not as the peer names it.
  region.addr = kBase + 8;
  region.iova = 0x1004;
  b.context.set_key(9 << 8 | 0x5a, &region);
  EXPECT_EQ(prepare(rdma_wqe(Opcode::kFetchAdd, 0x1004, 9 << 8 | 0x5a), {{kBase, 8, a_key}}),
            Outcome::kRemoteInvalid);
}

TEST_F(Executor, UsesTheIovaOfARegion) {
  Region region;
  region.pd = b.pd->handle;
  region.access = kAllAccess;
  region.addr = kBase + 1000;
  region.iova = 0;
  region.length = 64;
  region.way = ipc::Way::kInPlace;
  b.context.set_key(9 << 8 | 0x5a, &region);
  *a.memory() = 0xee;
  ASSERT_EQ(run(rdma_wqe(Opcode::kRdmaWrite, 63, 9 << 8 | 0x5a), {{kBase, 1, a_key}}),
            Outcome::kDone);
  EXPECT_EQ(*b.memory(kBase + 1063), 0xee);
}

TEST_F(Executor, SaysWhatMustBeReached) {
  const uint32_t reached = a.register_memory(kBase, 100, kAllAccess, ipc::Way::kReached);
  EXPECT_EQ(prepare(write(kBase), {{kBase, 10, a_key}, {kBase, 10, reached}}), Outcome::kDone);
  EXPECT_TRUE(plan.reached);
  EXPECT_EQ(prepare(write(kBase), {{kBase, 10, a_key}}), Outcome::kDone);
  EXPECT_FALSE(plan.reached);
  const uint32_t target = b.register_memory(kBase, 100, kAllAccess, ipc::Way::kReached);
  EXPECT_EQ(prepare(rdma_wqe(Opcode::kRdmaWrite, kBase, target), {{kBase, 10, a_key}}),
            Outcome::kDone);
  EXPECT_TRUE(plan.reached);
}

// A program reads the table, and takes a way that is none for no permission.
TEST_F(Executor, OfAProgramReadsTheTable) {
  Memory memory{Keys(a.context.keys()), space_of(a)};
  PieceList pieces;
  uint64_t length = 0;
  bool reached = false;
  const Sge sge{kBase, 10, a_key};
  EXPECT_EQ(gather(&sge, 1, memory, a.pd->handle, 0, &pieces, &length, &reached), Outcome::kDone);
  EXPECT_FALSE(reached);
  a.context.keys()[ipc::slot_of(a_key)].way = 77;
  EXPECT_EQ(gather(&sge, 1, memory, a.pd->handle, 0, &pieces, &length, &reached), Outcome::kDone);
  EXPECT_TRUE(reached);
  write_key(a.context.keys(), a_key, nullptr);
  EXPECT_EQ(gather(&sge, 1, memory, a.pd->handle, 0, &pieces, &length, &reached),
            Outcome::kLocalProtection);
}

TEST_F(Executor, OfAWorkerBelievesNoTable) {
  Region all;
  all.access = kAllAccess;
  all.length = ipc::kMemoryArenaSize;
  const uint32_t unknown = ipc::key_of(77, 0);
  for (const ipc::Way way : {ipc::Way::kInPlace, ipc::Way::kReached, ipc::Way::kNull}) {
    all.way = way;
    all.pd = a.pd->handle;
    write_key(a.context.keys(), unknown, &all);
    write_key(a.context.keys(), a_key, &all);
    all.pd = b.pd->handle;
    write_key(b.context.keys(), unknown, &all);
    write_key(b.context.keys(), b_key, &all);
    const Sge inside{kBase, 8, a_key}, outside{kBase - 8, 16, a_key}, nowhere{kBase, 8, unknown};
    EXPECT_EQ(prepare(write(kBase), {inside}), Outcome::kDone);
    EXPECT_FALSE(plan.reached);
    for (const Sge& sge : {outside, nowhere}) {
      EXPECT_EQ(prepare(write(kBase), {sge}), Outcome::kLocalProtection);
      EXPECT_EQ(prepare(rdma_wqe(Opcode::kRdmaRead, kBase, b_key), {sge}),
                Outcome::kLocalProtection);
      EXPECT_EQ(prepare(rdma_wqe(Opcode::kFetchAdd, kBase, b_key), {{sge.addr, 8, sge.lkey}}),
                Outcome::kLocalProtection);
    }
    for (const Opcode opcode : {Opcode::kRdmaWrite, Opcode::kRdmaRead, Opcode::kFetchAdd}) {
      EXPECT_EQ(prepare(rdma_wqe(opcode, kBase - 8, b_key), {inside}), Outcome::kRemoteAccess);
      EXPECT_EQ(prepare(rdma_wqe(opcode, kBase, unknown), {inside}), Outcome::kRemoteAccess);
    }
    const uint32_t receive = pair.b->block->rq_head;
    ASSERT_TRUE(b.post_receive(*pair.b, receive, {{kBase - 8, 16, b_key}}));
    EXPECT_EQ(prepare(wqe_of(Opcode::kSend), {inside}), Outcome::kReceiveProtection);
    pair.b->block->rq_head = receive;
  }
}

TEST_F(Executor, DoesNotMapWhatIsBeyondTheArena) {
  // Forged: the daemon would not write such an entry.
  const uint32_t forged = a.register_memory(ipc::kMemoryArenaSize - 4, 100, kAllAccess);
  ASSERT_EQ(prepare(write(kBase), {{ipc::kMemoryArenaSize - 4, 100, forged}}), Outcome::kDone);
  EXPECT_FALSE(perform(request, plan));
  const uint32_t far = b.register_memory(~uint64_t{0} - 100, 100, kAllAccess);
  ASSERT_EQ(prepare(rdma_wqe(Opcode::kRdmaWrite, ~uint64_t{0} - 100, far), {{kBase, 10, a_key}}),
            Outcome::kDone);
  EXPECT_FALSE(perform(request, plan));
  ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, ipc::kMemoryArenaSize, 0);
  add.rdma.rkey = b.register_memory(ipc::kMemoryArenaSize, 100, kAllAccess);
  ASSERT_EQ(prepare(add, {{kBase, 8, a_key}}), Outcome::kDone);
  EXPECT_FALSE(perform(request, plan));
}

TEST_F(Executor, LeavesNoTraceOfWhatItRefuses) {
  const auto before = std::vector<uint8_t>(b.memory(), b.memory() + 4096);
  fill(a);
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {{kBase, 4, b_key}}));
  EXPECT_EQ(prepare(wqe_of(Opcode::kSend), {{kBase, 10, a_key}}), Outcome::kReceiveTooSmall);
  EXPECT_EQ(std::memcmp(before.data(), b.memory(), before.size()), 0);
  EXPECT_EQ(pair.b->inbox->head, 0u);
}

TEST_F(Executor, CopiesBetweenAnyTwoListsOfPieces) {
  constexpr uint32_t kSeed = 2;
  std::mt19937 random(kSeed);
  fill(a);
  for (int round = 0; round < 300; ++round) {
    const auto list = [&](Party& party, uint64_t length) {
      PieceList pieces;
      while (pieces.count < ipc::kMaxSge) {
        const bool last = pieces.count == ipc::kMaxSge - 1 || random() % 4 == 0;
        const uint64_t part = last ? length : random() % (length + 1);
        // Apart from each other, some of them across the border of the windows.
        const uint64_t slot = kBorder - 8 * 70'000 + pieces.count * 70'000 + random() % 64;
        if (part > 0) pieces.pieces[pieces.count++] = at(slot, part, space_of(party));
        length -= part;
        if (length == 0) break;
      }
      return pieces;
    };
    const auto bytes_of = [](Party& party, const PieceList& pieces) {
      std::string bytes;
      for (uint32_t i = 0; i < pieces.count; ++i)
        bytes.append(reinterpret_cast<char*>(party.memory(pieces.pieces[i].addr)),
                     pieces.pieces[i].length);
      return bytes;
    };
    const uint64_t length = random() % 60'000 + 1;
    const PieceList source = list(a, length), target = list(b, length);
    const std::string wanted = bytes_of(a, source);
    ASSERT_EQ(wanted.size(), length);
    // All at once, or in slices.
    const uint64_t step = random() % 2 == 0 ? length : random() % length + 1;
    for (uint64_t at = 0; at < length; at += step)
      ASSERT_TRUE(copy_pieces(slice(source, at, step), slice(target, at, step)));
    ASSERT_EQ(bytes_of(b, target), wanted) << "round " << round << " of seed " << kSeed;
  }
}

TEST_F(Executor, SlicesLists) {
  PieceList list;
  list.count = 3;
  uint8_t own[4];
  list.pieces[0] = at(100, 10, nullptr);
  list.pieces[1] = Piece::of(own, 4);
  list.pieces[2] = at(300, 20, nullptr);
  list.pieces[2].reached = true;
  EXPECT_EQ(slice(list, 0, 0).count, 0u);
  EXPECT_EQ(slice(list, 34, 5).count, 0u);
  const PieceList part = slice(list, 8, 10);
  ASSERT_EQ(part.count, 3u);
  EXPECT_EQ(part.pieces[0].addr, 108u);
  EXPECT_EQ(part.pieces[0].length, 2u);
  EXPECT_EQ(part.pieces[1].data, own);
  EXPECT_EQ(part.pieces[2].length, 4u);
  EXPECT_TRUE(part.pieces[2].reached);
  const PieceList end = slice(list, 12, 1000);
  ASSERT_EQ(end.count, 2u);
  EXPECT_EQ(end.pieces[0].data, own + 2);
  EXPECT_EQ(end.pieces[1].length, 20u);
}

TEST_F(Executor, MovesSinglePieces) {
  fill(a);
  std::vector<uint8_t> bytes(1000);
  Piece across = at(kBorder - 500, 1000, space_of(a));
  ASSERT_TRUE(read_piece(across, bytes.data()));
  EXPECT_EQ(std::memcmp(bytes.data(), a.memory(kBorder - 500), 1000), 0);
  across.space = space_of(b);
  ASSERT_TRUE(write_piece(bytes.data(), across));
  EXPECT_EQ(std::memcmp(bytes.data(), b.memory(kBorder - 500), 1000), 0);
  const Piece own = Piece::of(bytes.data(), 4);
  uint8_t copy[4];
  ASSERT_TRUE(read_piece(own, copy));
  EXPECT_EQ(std::memcmp(copy, bytes.data(), 4), 0);
  const Piece nowhere = at(ipc::kMemoryArenaSize - 4, 8, space_of(a));
  EXPECT_FALSE(read_piece(nowhere, bytes.data()));
  EXPECT_FALSE(write_piece(bytes.data(), nowhere));
  const Piece nothing = at(0, 1000, nullptr);
  EXPECT_TRUE(write_piece(bytes.data(), nothing));
  ASSERT_TRUE(read_piece(nothing, bytes.data()));
  EXPECT_EQ(bytes, std::vector<uint8_t>(1000));
}

// A program that polls the last byte of a message finds the rest there too.
TEST_F(Executor, StoresTheEndOfAMessageLast) {
  for (const uint64_t length : {1u, 8u, 9u, 64u, 1000u, 4099u}) {
    for (const uint64_t offset : {0u, 1u, 5u}) {
      std::atomic<bool> stop = false;
      uint8_t* to = b.memory(kBase + offset);
      std::memset(to, 0, length);
      std::thread poller([&] {
        uint8_t seen = 0;
        while (!stop) {
          const uint8_t end = __atomic_load_n(to + length - 1, __ATOMIC_ACQUIRE);
          if (end == seen) continue;
          seen = end;
          const uint8_t first = __atomic_load_n(to, __ATOMIC_RELAXED);
          // The writer may be any number of rounds ahead by now, but not one behind.
          EXPECT_NE(static_cast<uint8_t>(first - end), 255) << length;
        }
      });
      for (int round = 1; round < 300; ++round) {
        std::memset(a.memory(), round, length);
        ASSERT_EQ(run(write(kBase + offset), {{kBase, static_cast<uint32_t>(length), a_key}}),
                  Outcome::kDone);
      }
      stop = true;
      poller.join();
    }
  }
}

}  // namespace
}  // namespace vrdma::rdma
