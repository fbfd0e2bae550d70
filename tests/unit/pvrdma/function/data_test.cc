// What a driver sends and receives through the function.
#include "tests/unit/pvrdma/function/data.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace vrdma::pvrdma {
namespace {

TEST_F(Data, ASendArrivesWhole) {
  ASSERT_TRUE(put_receive(b, 5, all(to)));
  ring_receives(b);
  SendEntry entry = request(SendOpcode::kSendImmediate, 6);
  entry.immediate = 0x01020304;
  ASSERT_TRUE(put_send(a, entry, all(from)));
  ring_sends(a);
  go_on();
  ASSERT_TRUE(arrived());
  const auto receive = poll(cq), send = poll(cq);
  ASSERT_TRUE(receive && send && !poll(cq));
  EXPECT_EQ(5u, receive->wr_id);
  EXPECT_EQ(b.handle, receive->qp);
  EXPECT_EQ(0x80u, receive->opcode);
  EXPECT_EQ(3 * kPageSize, receive->byte_len);
  EXPECT_EQ(0x01020304u, receive->immediate);
  EXPECT_EQ(kHasImmediate, receive->flags);
  EXPECT_EQ(6u, send->wr_id);
  EXPECT_EQ(a.handle, send->qp);
  EXPECT_EQ(0u, send->opcode);
  EXPECT_EQ(0u, send->status);
}

TEST_F(Data, WritesReadsAndAtomics) {
  SendEntry entry = request(SendOpcode::kWrite, 1);
  entry.rdma = {to.start, to.key};
  // Two elements that cut a page.
  ASSERT_TRUE(
      put_send(a, entry, {{from.start, 5000, from.key}, {from.start + 5000, 7288, from.key}}));
  ring_sends(a);
  go_on();
  EXPECT_TRUE(arrived());
  EXPECT_EQ(1u, poll(cq)->opcode);

  std::memset(at(to.pages[0]) + 200, 0, kPageSize - 200);
  entry = request(SendOpcode::kRead, 2);
  entry.rdma = {from.start, from.key};
  ASSERT_TRUE(put_send(b, entry, all(to)));
  ring_sends(b);
  go_on();
  EXPECT_TRUE(arrived());
  EXPECT_EQ(2u, poll(cq)->opcode);

  const uint64_t before = 40;
  std::memcpy(at(to.pages[1]), &before, 8);
  entry = request(SendOpcode::kAdd, 3);
  entry.atomic = {to.start + kPageSize - 200, 2, 0, to.key};
  ASSERT_TRUE(put_send(a, entry, {{from.start, 8, from.key}}));
  entry = request(SendOpcode::kSwap, 4);
  entry.atomic = {to.start + kPageSize - 200, 42, 7, to.key};
  ASSERT_TRUE(put_send(a, entry, {{from.start + 8, 8, from.key}}));
  ring_sends(a);
  go_on();
  uint64_t found[2], after = 0;
  std::memcpy(found, &byte(from, 0), sizeof found);
  std::memcpy(&after, at(to.pages[1]), 8);
  EXPECT_EQ(40u, found[0]);
  EXPECT_EQ(42u, found[1]);
  EXPECT_EQ(7u, after);
  EXPECT_EQ(4u, poll(cq)->opcode);
  EXPECT_EQ(3u, poll(cq)->opcode);
}

// More requests than the queue pair has room for, with no completion between: none is lost.
TEST_F(Data, WhatHasNoRoomFollows) {
  uint64_t posted = 0, seen = 0;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 40; ++i) {
      SendEntry entry = request(SendOpcode::kWrite, posted);
      entry.rdma = {to.start, to.key};
      if (!put_send(a, entry, all(from, 8))) break;
      ++posted;
      if (i % 3 == 0) ring_sends(a);  // the device takes what it can, which empties the ring
    }
    ring_sends(a);
    go_on();
    for (auto entry = poll_as_driver(cq); entry; entry = poll_as_driver(cq))
      ASSERT_EQ(seen++, entry->wr_id);
  }
  EXPECT_EQ(posted, seen);
  EXPECT_GT(posted, 1000u);
}

// A look at a full queue waits once, however many doorbells there were: a guest must not make the
// lists of the process longer.
TEST_F(Data, DoorbellsOfFullQueuesDoNotAddUp) {
  const std::vector<uint64_t> pages = take_pages(2);
  ASSERT_TRUE(execute(Command::kCreateSrq, CreateSrq{directory(pages), pd, 2, {8, 2, 0, 0}, 0}));
  const uint32_t srq = answer().made.handle;
  const auto ring = [&] {
    ring_sends(a);
    ring_receives(b);
    doorbell(kSrqDoorbell, srq | kSrqReceive);
  };
  SendEntry entry = request(SendOpcode::kWrite, 1);
  entry.rdma = {to.start, to.key};
  for (int twice = 0; twice < 2; ++twice) {  // verbs have as many as they take, and as many wait
    while (put_send(a, entry, all(from, 8))) {
    }
    while (put_receive(b, 1, all(to, 8))) {
    }
    while (put(pages, 1, 1, 8, 64, ReceiveEntry{1, 1, 0}, all(to, 8))) {
    }
    ring();
  }
  for (int i = 0; i < 300; ++i) ring();
  const uint64_t before = verbs.posts;
  go_on();
  EXPECT_GE(verbs.posts - before, 16u);  // the sends that waited
  EXPECT_LT(verbs.posts - before, 100u);
}

// The driver takes nothing for a while: completions wait, and none overwrites another one.
TEST_F(Data, AFullCompletionQueueHoldsBack) {
  const CompletionQueue small = create_cq(4);
  const QueuePair c = create_qp(pd, small, 16), d = create_qp(pd, cq, 16);
  connect(c, d.qpn);
  connect(d, c.qpn);
  for (uint64_t i = 0; i < 16; ++i) {
    SendEntry entry = request(SendOpcode::kWrite, i);
    entry.rdma = {to.start, to.key};
    ASSERT_TRUE(put_send(c, entry, all(from, 8)));
  }
  ring_sends(c);
  go_on();
  for (uint64_t i = 0; i < 16; ++i) {
    const auto entry = poll_as_driver(small);
    ASSERT_TRUE(entry);
    ASSERT_EQ(i, entry->wr_id);
  }
  EXPECT_FALSE(poll(small));
}

// While a completion waits for room, the slot of its request is used again.
TEST_F(Data, AHeldCompletionKeepsItsName) {
  const CompletionQueue small = create_cq(4);
  const QueuePair c = create_qp(pd, small, 16), d = create_qp(pd, cq, 16);
  connect(c, d.qpn);
  connect(d, c.qpn);
  const auto post = [&](uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i) {
      SendEntry entry = request(SendOpcode::kWrite, i);
      entry.rdma = {to.start, to.key};
      ASSERT_TRUE(put_send(c, entry, all(from, 8)));
    }
    ring_sends(c);
    go_on();
  };
  post(0, 16);
  post(16, 5);
  for (uint64_t i = 0; i < 21; ++i) {
    const auto entry = poll_as_driver(small);
    ASSERT_TRUE(entry);
    ASSERT_EQ(i, entry->wr_id);
  }
  // One that is held when its queue pair ends or begins anew does not come any more: the driver
  // would find a completion of a queue pair that it does not know, and stop there.
  post(21, 6);
  ASSERT_TRUE(modify(c, IBV_QPS_RESET));
  at<Indices>(c.pages[0])[0].producer = at<Indices>(c.pages[0])[0].consumer = 0;
  for (uint64_t i = 21; i < 25; ++i) ASSERT_EQ(i, poll_as_driver(small)->wr_id);
  EXPECT_FALSE(poll_as_driver(small));
  connect(c, d.qpn);
  post(27, 6);
  ASSERT_TRUE(execute(Command::kDestroyQp, Handle{c.handle}));
  for (uint64_t i = 27; i < 31; ++i) ASSERT_EQ(i, poll_as_driver(small)->wr_id);
  EXPECT_FALSE(poll_as_driver(small));
}

// The end of a request that verbs do not get comes in its turn, and waits for room, too.
TEST_F(Data, ARefusalIsNotLost) {
  const CompletionQueue small = create_cq(4);
  for (const uint64_t before : {0, 3, 4, 5, 6}) {
    const QueuePair c = create_qp(pd, small, 16), d = create_qp(pd, cq, 16);
    connect(c, d.qpn);
    connect(d, c.qpn);
    SendEntry entry = request(SendOpcode::kWrite, 0);
    entry.rdma = {to.start, to.key};
    for (; entry.wr_id < before; ++entry.wr_id) ASSERT_TRUE(put_send(c, entry, all(from, 8)));
    ring_sends(c);
    go_on();
    entry.opcode = 17;
    ASSERT_TRUE(put_send(c, entry, all(from, 8)));
    ring_sends(c);
    go_on();
    for (uint64_t i = 0; i <= before; ++i) {
      const auto found = poll_as_driver(small);
      ASSERT_TRUE(found) << before << ", " << i;
      EXPECT_EQ(i, found->wr_id);
      EXPECT_EQ(i < before ? 0u : uint32_t{IBV_WC_LOC_QP_OP_ERR}, found->status);
    }
  }
  EXPECT_EQ(0u, function->counts().events_lost);
}

// A queue of one entry, of which the driver takes one completion at a time and says nothing,
// because it never finds the queue empty.
TEST_F(Data, AQueueOfOneEntry) {
  const CompletionQueue one = create_cq(1);
  const QueuePair c = create_qp(pd, one, 16), d = create_qp(pd, cq, 16);
  connect(c, d.qpn);
  connect(d, c.qpn);
  for (uint64_t i = 0; i < 20; ++i) {
    doorbell(kCqDoorbell, one.handle | kCqArm);
    (void)interrupts(kCompletionVector);
    SendEntry entry = request(SendOpcode::kWrite, i);
    entry.rdma = {to.start, to.key};
    ASSERT_TRUE(put_send(c, entry, all(from, 8)));
    ring_sends(c);
    go_on();
    ASSERT_EQ(1u, interrupts(kCompletionVector)) << i;
    const auto found = poll(one);
    ASSERT_TRUE(found);
    ASSERT_EQ(i, found->wr_id);
  }
  // More than it can take: the rest comes when the driver has taken some.
  for (uint64_t i = 0; i < 3; ++i) {
    SendEntry entry = request(SendOpcode::kWrite, 50 + i);
    entry.rdma = {to.start, to.key};
    ASSERT_TRUE(put_send(c, entry, all(from, 8)));
  }
  ring_sends(c);
  for (uint64_t i = 0; i < 3; ++i) {
    std::optional<CompletionEntry> found;
    for (int round = 0; round < 1000 && !found; ++round) {
      go_on();
      found = poll(one);
      if (!found) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(found);
    EXPECT_EQ(50 + i, found->wr_id);
  }
}

// Of queues of their own: the event of the send comes before that of the answer.
TEST_F(Data, ASendPrecedesItsAnswer) {
  const CompletionQueue sends = create_cq(8), receives = create_cq(8);
  const QueuePair c = create_qp(pd, sends, 8, 2, IBV_QPT_RC, {}, &receives);
  const QueuePair d = create_qp(pd, cq, 8);
  connect(c, d.qpn);
  connect(d, c.qpn);
  uint32_t told = 0;
  for (int round = 0; round < 20; ++round) {
    doorbell(kCqDoorbell, sends.handle | kCqArm);
    doorbell(kCqDoorbell, receives.handle | kCqArm);
    ASSERT_TRUE(put_receive(c, 1, all(to, 8)));
    ASSERT_TRUE(put_receive(d, 1, all(to, 8)));
    ring_receives(c);
    ring_receives(d);
    ASSERT_TRUE(put_send(c, request(SendOpcode::kSend, 2), all(from, 8)));
    ASSERT_TRUE(put_send(d, request(SendOpcode::kSend, 3), all(from, 8)));
    ring_sends(c);
    ring_sends(d);
    verbs.run();
    // The event of the receive is the first that the device hears of.
    std::ranges::stable_partition(
        verbs.told, [&](const ibv_cq* one) { return one == verbs.find(c.qpn)->init.recv_cq; });
    go_on();
    auto& indices = at<Indices>(told_pages[0])[1];
    std::vector<uint32_t> order;
    for (; told != indices.producer; told = (told + 1) & (2 * kCompletionEntries - 1))
      order.push_back(at<uint32_t>(told_pages[1])[told & (kCompletionEntries - 1)]);
    indices.consumer = told;
    std::erase(order, cq.handle);
    ASSERT_EQ((std::vector<uint32_t>{sends.handle, receives.handle}), order);
    while (poll(sends) || poll(receives) || poll(cq)) {
    }
  }
}

// A program that takes one completion for each event, and arms the queue before it does.
TEST_F(Data, WhatTheDriverLeavesIsToldAgain) {
  doorbell(kCqDoorbell, cq.handle | kCqArm);
  for (uint64_t i = 0; i < 5; ++i) {
    SendEntry entry = request(SendOpcode::kWrite, i);
    entry.rdma = {to.start, to.key};
    ASSERT_TRUE(put_send(a, entry, all(from, 8)));
  }
  ring_sends(a);
  for (uint64_t i = 0; i < 5; ++i) {
    uint64_t told = 0;
    for (int round = 0; round < 1000 && told == 0; ++round) {
      go_on();
      told = interrupts(kCompletionVector);
      if (told == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(1u, told);
    doorbell(kCqDoorbell, cq.handle | kCqArm);
    ASSERT_EQ(i, poll(cq)->wr_id);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(70));
  go_on();
  EXPECT_EQ(0u, interrupts(kCompletionVector));
}

TEST_F(Data, OneInterruptForEachTimeThatItIsArmed) {
  const auto send = [&] {
    SendEntry entry = request(SendOpcode::kWrite, 1);
    entry.rdma = {to.start, to.key};
    ASSERT_TRUE(put_send(a, entry, all(from, 8)));
    ring_sends(a);
    go_on();
  };
  send();
  EXPECT_EQ(0u, interrupts(kCompletionVector));
  // It lies there when the queue is armed, and the driver may have looked before.
  doorbell(kCqDoorbell, cq.handle | kCqArm);
  EXPECT_EQ(1u, interrupts(kCompletionVector));
  EXPECT_EQ(cq.handle, *at<uint32_t>(told_pages[1]));
  send();
  EXPECT_EQ(0u, interrupts(kCompletionVector));
  while (poll(cq)) {
  }
  doorbell(kCqDoorbell, cq.handle | kCqArmSolicited);
  EXPECT_EQ(0u, interrupts(kCompletionVector));
  send();
  send();
  EXPECT_EQ(1u, interrupts(kCompletionVector));
  // Masked.
  doorbell(kCqDoorbell, cq.handle | kCqArm);
  write(kRegisterBar, kRegMask, UINT32_MAX);
  (void)interrupts(kCompletionVector);
  send();
  EXPECT_EQ(0u, interrupts(kCompletionVector));
}

TEST_F(Data, ASharedReceiveQueue) {
  const std::vector<uint64_t> pages = take_pages(2);
  ASSERT_TRUE(execute(Command::kCreateSrq, CreateSrq{directory(pages), pd, 2, {8, 2, 0, 0}, 0}));
  const uint32_t srq = answer().made.handle;
  const QueuePair c = create_qp(pd, cq, 16, 2, IBV_QPT_RC, srq), d = create_qp(pd, cq, 16);
  connect(c, d.qpn);
  connect(d, c.qpn);
  for (uint64_t i = 0; i < 3; ++i)
    ASSERT_TRUE(put(pages, 1, 1, 8, 64, ReceiveEntry{70 + i, 1, 0}, all(to, 100)));
  doorbell(kSrqDoorbell, srq | kSrqReceive);
  ASSERT_TRUE(put_send(d, request(SendOpcode::kSend, 1), all(from, 100)));
  ring_sends(d);
  go_on();
  EXPECT_EQ(70u, poll(cq)->wr_id);
  ASSERT_TRUE(execute(Command::kModifySrq, ModifySrq{srq, IBV_SRQ_LIMIT, {0, 0, 2, 0}}));
  ASSERT_TRUE(execute(Command::kQuerySrq, Handle{srq}));
  EXPECT_EQ(2u, answer().srq.limit);
  EXPECT_FALSE(execute(Command::kDestroySrq, Handle{srq}));  // in use
  ASSERT_TRUE(execute(Command::kDestroyQp, Handle{c.handle}));
  EXPECT_TRUE(execute(Command::kDestroySrq, Handle{srq}));
}

// The guest's kernel registers all of its memory; addresses are physical then.
TEST_F(Data, AllOfTheMemory) {
  ASSERT_TRUE(execute(Command::kCreateMr,
                      CreateMr{0, 0, 0, pd, IBV_ACCESS_LOCAL_WRITE, kMrOfAllMemory, 0}));
  const uint32_t key = answer().mr.lkey;
  SendEntry entry = request(SendOpcode::kWrite, 1);
  entry.rdma = {to.start, to.key};
  ASSERT_TRUE(put_send(a, entry, {{from.pages[1], 16, key}}));
  ring_sends(a);
  go_on();
  EXPECT_EQ(0, std::memcmp(at(from.pages[1]), &byte(to, 0), 16));
  EXPECT_EQ(0u, poll(cq)->status);
  // Addresses of this process, of the hole, and beyond all.
  for (const uint64_t addr : {reinterpret_cast<uint64_t>(&entry), kRam / 2, kHigh + kRam / 2 - 8,
                              uint64_t{0} - 8, GuestRam::kEnd}) {
    const QueuePair c = create_qp(pd, cq, 16);
    connect(c, b.qpn);
    ASSERT_TRUE(put_send(c, entry, {{addr, 16, key}}));
    ring_sends(c);
    go_on();
    EXPECT_EQ(uint32_t{IBV_WC_LOC_PROT_ERR}, poll(cq)->status) << addr;
  }
}

TEST_F(Data, AnErrorFlushesWhatStandsInTheRings) {
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(put_receive(b, i, all(to)));
  ASSERT_TRUE(put_send(b, request(SendOpcode::kSend, 9), all(from)));
  ASSERT_TRUE(modify(b, IBV_QPS_ERR));
  go_on();
  std::multiset<uint64_t> flushed;
  for (auto entry = poll(cq); entry; entry = poll(cq)) {
    EXPECT_EQ(uint32_t{IBV_WC_WR_FLUSH_ERR}, entry->status);
    flushed.insert(entry->wr_id);
  }
  EXPECT_EQ((std::multiset<uint64_t>{0, 1, 2, 9}), flushed);
  // Used again.
  at<Indices>(b.pages[0])[0].producer = 0;
  ASSERT_TRUE(modify(b, IBV_QPS_RESET));
  for (int pair = 0; pair < 2; ++pair)
    at<Indices>(b.pages[0])[pair].producer = at<Indices>(b.pages[0])[pair].consumer = 0;
  connect(b, a.qpn);
  ASSERT_TRUE(put_receive(b, 11, all(to)));
  ring_receives(b);
  ASSERT_TRUE(put_send(a, request(SendOpcode::kSend, 12), all(from)));
  ring_sends(a);
  go_on();
  EXPECT_TRUE(arrived());
}

TEST_F(Data, EventsReachTheDriver) {
  verbs.event(IBV_EVENT_COMM_EST, verbs.find(a.qpn));
  go_on();
  EXPECT_EQ(1u, interrupts(kEventVector));
  const auto& entry = *at<EventEntry>(event_pages[1]);
  EXPECT_EQ(uint32_t{IBV_EVENT_COMM_EST}, entry.type);
  EXPECT_EQ(a.handle, entry.object);
  // Nobody takes them: the ring fills, and the rest is lost and counted.
  for (uint32_t i = 0; i < kEventEntries + 5; ++i)
    verbs.event(IBV_EVENT_COMM_EST, verbs.find(a.qpn));
  go_on();
  EXPECT_EQ(6u, function->counts().events_lost);
}

}  // namespace
}  // namespace vrdma::pvrdma
