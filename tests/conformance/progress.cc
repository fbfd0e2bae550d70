// Posted requests are executed although the program has left the library, as on an HCA. Side a
// posts and then only reads from the side channel; b replies there after the execution.
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/conformance/queue.h"

namespace conformance {

namespace {

constexpr size_t kSizes[] = {8, 1u << 20};
constexpr uint32_t kReady = 1, kDone = 2, kPosted = 3;

void pause_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace

CONFORMANCE_TEST(progress, send_before_receive) {
  for (const bool events : {false, true}) {
    Cq cq(side, events);
    Qp qp(side, cq);
    Buffer buffer(side, 1u << 20);
    qp.connect();
    for (const size_t size : kSizes) {
      if (side.is_a()) {
        fill(buffer.data, size, size);
        qp.send(1, {buffer.sge(0, size)});
        side.tell_word(kPosted);
        side.await_word(kDone);  // b replies when it has the message; a is outside of the library
        cq.expect(1);
      } else {
        side.await_word(kPosted);
        pause_ms(50);
        qp.receive(2, {buffer.sge(0, size)});
        const ibv_wc wc = cq.expect(2);
        CHECK_EQ(wc.byte_len, size);
        check_filled(buffer.data, size, size);
        side.tell_word(kDone);
      }
    }
    side.meet(kReady);
  }
}

CONFORMANCE_TEST(progress, write_with_immediate_before_receive) {
  Cq cq(side);
  Qp qp(side, cq);
  Buffer buffer(side, 1u << 20);
  qp.connect();
  const Remote remote = side.exchange(remote_of(buffer));
  for (const size_t size : kSizes) {
    if (side.is_a()) {
      fill(buffer.data, size, size + 1);
      qp.write_imm(1, 0xabcd, {buffer.sge(0, size)}, remote);
      side.tell_word(kPosted);
      side.await_word(kDone);
      cq.expect(1);
    } else {
      side.await_word(kPosted);
      pause_ms(50);
      qp.receive(2, {});
      const ibv_wc wc = cq.expect(2);
      CHECK_EQ(static_cast<int>(wc.opcode), static_cast<int>(IBV_WC_RECV_RDMA_WITH_IMM));
      CHECK_EQ(wc.imm_data, 0xabcdu);
      CHECK_EQ(wc.byte_len, size);
      check_filled(buffer.data, size, size + 1);
      side.tell_word(kDone);
    }
  }
}

// The responder of READ, WRITE and atomics never enters the library.
CONFORMANCE_TEST(progress, passive_responder) {
  Cq cq(side);
  Qp qp(side, cq);
  Buffer buffer(side, 4u << 20);
  fill(buffer.data, 2u << 20, side.is_a() ? 10 : 11);
  uint64_t counter = 40;
  std::memcpy(buffer.data + (3u << 20), &counter, 8);
  qp.connect();
  const Remote remote = side.exchange(remote_of(buffer));
  if (side.is_a()) {
    for (const size_t size : kSizes) {
      qp.read(1, {buffer.sge(2u << 20, size)}, remote, 13);
      cq.expect(1);
      check_filled(buffer.data + (2u << 20), size, 11, 13);
    }
    qp.fetch_add(2, buffer.sge(2u << 20, 8), remote, 3u << 20, 2);
    CHECK_EQ(cq.expect(2).byte_len, 8u);
    std::memcpy(&counter, buffer.data + (2u << 20), 8);
    CHECK_EQ(counter, 40u);
    qp.compare_swap(3, buffer.sge(2u << 20, 8), remote, 3u << 20, 42, 77);
    cq.expect(3);
    std::memcpy(&counter, buffer.data + (2u << 20), 8);
    CHECK_EQ(counter, 42u);
    qp.compare_swap(4, buffer.sge(2u << 20, 8), remote, 3u << 20, 42, 99);
    cq.expect(4);
    std::memcpy(&counter, buffer.data + (2u << 20), 8);
    CHECK_EQ(counter, 77u);
    qp.write(5, {buffer.sge(0, 1u << 20)}, remote, 0);
    cq.expect(5);
    side.tell_word(kDone);
  } else {
    side.await_word(kDone);
    std::memcpy(&counter, buffer.data + (3u << 20), 8);
    CHECK_EQ(counter, 77u);
    check_filled(buffer.data, 1u << 20, 10);
    check_filled(buffer.data + (1u << 20), 1u << 20, 11, 1u << 20);
  }
}

// A READ and an atomic behind a SEND that must wait: a has left before they can execute.
CONFORMANCE_TEST(progress, queue_behind_a_wait) {
  Cq cq(side);
  Qp qp(side, cq);
  Buffer buffer(side, 64u << 10);
  fill(buffer.data, 4096, side.is_a() ? 20 : 21);
  qp.connect();
  const Remote remote = side.exchange(remote_of(buffer));
  if (side.is_a()) {
    qp.send(1, {buffer.sge(0, 100)});
    qp.read(2, {buffer.sge(8192, 1000)}, remote, 8);
    qp.fetch_add(3, buffer.sge(16384, 8), remote, 32768, 5);
    qp.write(4, {buffer.sge(0, 256)}, remote, 40000);
    qp.send(5, {buffer.sge(100, 100)});
    side.tell_word(kPosted);
    side.await_word(kDone);
    for (uint64_t id = 1; id <= 5; ++id) cq.expect(id);
    check_filled(buffer.data + 8192, 1000, 21, 8);
  } else {
    side.await_word(kPosted);
    pause_ms(50);
    qp.receive(1, {buffer.sge(49152, 100)});
    qp.receive(2, {buffer.sge(50000, 100)});
    cq.expect(1);
    cq.expect(2);
    check_filled(buffer.data + 49152, 100, 20);
    check_filled(buffer.data + 50000, 100, 20, 100);
    check_filled(buffer.data + 40000, 256, 20);
    uint64_t counter = 0;
    std::memcpy(&counter, buffer.data + 32768, 8);
    CHECK_EQ(counter, 5u);
    side.tell_word(kDone);
  }
}

CONFORMANCE_TEST(progress, many_late_receives_in_order) {
  constexpr uint32_t kCount = 60;
  Cq cq(side, true);
  Qp qp(side, cq);
  Buffer buffer(side, kCount * 64);
  qp.connect();
  if (side.is_a()) {
    for (uint32_t i = 0; i < kCount; ++i) {
      fill(buffer.data + i * 64, 64, i);
      qp.send(i, {buffer.sge(i * 64, 64)});
    }
    side.tell_word(kPosted);
    side.await_word(kDone);
    for (uint32_t i = 0; i < kCount; ++i) cq.expect(i);
  } else {
    side.await_word(kPosted);
    for (uint32_t i = 0; i < kCount; ++i) {
      if (i % 7 == 0) pause_ms(5);
      qp.receive(i, {buffer.sge(i * 64, 64)});
      if (i % 3 == 2)
        for (uint32_t k = i - 2; k <= i; ++k) cq.expect(k);
    }
    for (uint32_t i = 0; i < kCount; ++i) check_filled(buffer.data + i * 64, 64, i);
    side.tell_word(kDone);
  }
}

// With finite retries a waiting SEND fails: seen by polling, on the channel alone, or after a has
// slept outside of the library.
CONFORMANCE_TEST(progress, finite_rnr_retries) {
  for (const uint8_t retries : {uint8_t{0}, uint8_t{1}, uint8_t{3}}) {
    for (const bool events : {false, true}) {
      Cq cq(side, events);
      QpOptions options;
      options.rnr_retry = retries;
      options.min_rnr_timer = 20;  // 10.24 ms
      Qp qp(side, cq, options);
      Buffer buffer(side, 4096);
      qp.connect();
      if (side.is_a()) {
        if (events) cq.arm();
        qp.send(1, {buffer.sge(0, 8)});
        qp.send(2, {buffer.sge(0, 8)});
        if (events) cq.await_event();
        cq.expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
        cq.expect(2, IBV_WC_WR_FLUSH_ERR);
        qp.await_state(IBV_QPS_ERR);
      }
      side.meet(kDone);
      qp.reconnect();
      if (!side.is_a()) qp.receive(3, {buffer.sge(0, 8)});
      side.meet(kDone);
      if (side.is_a()) qp.send(3, {buffer.sge(0, 8)});
      cq.expect(3);
      side.meet(kDone);
    }
  }
}

CONFORMANCE_TEST(progress, receive_within_finite_rnr_retries) {
  Cq cq(side);
  QpOptions options;
  options.rnr_retry = 6;
  options.min_rnr_timer = 0;  // 655 ms: enough time
  Qp qp(side, cq, options);
  Buffer buffer(side, 4096);
  qp.connect();
  if (side.is_a()) {
    fill(buffer.data, 4096, 3);
    qp.send(1, {buffer.sge(0, 4096)});
    side.tell_word(kPosted);
    side.await_word(kDone);
    cq.expect(1);
  } else {
    side.await_word(kPosted);
    pause_ms(30);
    qp.receive(1, {buffer.sge(0, 4096)});
    cq.expect(1);
    check_filled(buffer.data, 4096, 3);
    side.tell_word(kDone);
  }
}

CONFORMANCE_TEST(progress, shared_receive_queue_filled_late) {
  Cq cq(side);
  Srq srq(side, 16);
  QpOptions options;
  if (!side.is_a()) options.srq = srq.srq;
  {
    Qp first(side, cq, options), second(side, cq, options);
    Buffer buffer(side, 2u << 20);
    first.connect();
    second.connect();
    for (const size_t size : kSizes) {
      if (side.is_a()) {
        fill(buffer.data, size, 1);
        fill(buffer.data + (1u << 20), size, 2);
        first.send_imm(1, 1, {buffer.sge(0, size)});
        second.send_imm(2, 2, {buffer.sge(1u << 20, size)});
        side.tell_word(kPosted);
        side.await_word(kDone);
        uint64_t seen = 0;
        for (int i = 0; i < 2; ++i) {
          const ibv_wc wc = cq.wait();
          CHECK_EQ(static_cast<int>(wc.status), 0);
          seen |= wc.wr_id;
        }
        CHECK_EQ(seen, 3u);
      } else {
        side.await_word(kPosted);
        pause_ms(50);
        srq.receive(0, {buffer.sge(0, size)});
        srq.receive(1, {buffer.sge(1u << 20, size)});
        for (int i = 0; i < 2; ++i) {
          const ibv_wc wc = cq.wait();
          CHECK_EQ(static_cast<int>(wc.status), 0);
          CHECK_EQ(wc.byte_len, size);
          CHECK_EQ(wc.qp_num, (wc.imm_data == 1 ? first : second).qp->qp_num);
          check_filled(buffer.data + (wc.wr_id << 20), size, wc.imm_data);
        }
        side.tell_word(kDone);
      }
    }
    side.meet(kReady);
  }
}

// a sends while b is still in INIT, with its receive posted there.
CONFORMANCE_TEST(progress, send_before_the_peer_is_ready) {
  for (const size_t size : kSizes) {
    Cq cq(side);
    QpOptions options;
    options.timeout = 18;  // 1 s, 8 times
    Qp qp(side, cq, options);
    Buffer buffer(side, 1u << 20);
    qp.to_init();
    if (!side.is_a()) qp.receive(2, {buffer.sge(0, size)});
    const Endpoint peer = side.exchange(qp.endpoint());
    if (side.is_a()) {
      qp.to_rtr(peer);
      qp.to_rts();
      fill(buffer.data, size, 7);
      qp.send(1, {buffer.sge(0, size)});
      side.tell_word(kPosted);
      side.await_word(kDone);
      cq.expect(1);
    } else {
      side.await_word(kPosted);
      pause_ms(50);
      qp.to_rtr(peer);
      cq.expect(2);  // in RTR, which suffices to receive
      check_filled(buffer.data, size, 7);
      qp.to_rts();
      side.tell_word(kDone);
    }
  }
}

// b posts a receive and leaves, a sends and leaves; then both find their completions.
CONFORMANCE_TEST(progress, both_leave) {
  Cq cq(side);
  Qp qp(side, cq);
  Buffer buffer(side, 2u << 20);
  qp.connect();
  if (side.is_a()) {
    fill(buffer.data, 2u << 20, 9);
    qp.send(1, {buffer.sge(0, 8)});
    qp.send(2, {buffer.sge(8, (1u << 20) - 8)});
    side.meet(kPosted);
    pause_ms(200);
    side.meet(kDone);
    cq.expect(1);
    cq.expect(2);
  } else {
    pause_ms(20);
    qp.receive(1, {buffer.sge(0, 8)});
    qp.receive(2, {buffer.sge(8, 1u << 20)});
    side.meet(kPosted);
    pause_ms(200);
    // Without a call of the library: the bytes are in memory.
    check_filled(buffer.data, 1u << 20, 9);
    side.meet(kDone);
    cq.expect(1);
    cq.expect(2);
  }
}

// a posts its last messages and ends its queue pair, without a look at their completions: an
// adapter has short ones on the wire by then, and programs rely on that when they say farewell.
CONFORMANCE_TEST(progress, sends_before_the_end) {
  constexpr size_t kSize = 200;
  constexpr uint64_t kMessages = 4, kRounds = 150;
  Cq cq(side);
  Buffer buffer(side, kMessages * kSize);
  for (uint64_t round = 0; round < kRounds; ++round) {
    auto qp = std::make_unique<Qp>(side, cq);
    qp->connect();
    if (side.is_a()) {
      fill(buffer.data, buffer.size, round);
      side.await_word(kReady);
      for (uint64_t i = 0; i < kMessages; ++i)
        qp->send(i, {buffer.sge(i * kSize, kSize)}, i % 2 == 0 ? 0 : IBV_SEND_INLINE);
      if (round % 2 == 0) qp->to(IBV_QPS_ERR);
      qp.reset();
    } else {
      for (uint64_t i = 0; i < kMessages; ++i) qp->receive(i, {buffer.sge(i * kSize, kSize)});
      side.tell_word(kReady);
      for (uint64_t i = 0; i < kMessages; ++i) cq.expect(i);
      check_filled(buffer.data, buffer.size, round);
    }
    side.meet(kDone);
  }
}

// A stream of receives must not keep the completion of a send from a program that polls one
// completion at a time, or its send queue fills up.
CONFORMANCE_TEST(progress, sends_complete_beside_receives) {
  constexpr uint64_t kReceives = 16, kSend = 100;
  Cq cq(side);
  Qp qp(side, cq);
  Buffer buffer(side, 4096);
  qp.connect();
  if (side.is_a()) {
    for (uint64_t id = 1; id <= kReceives; ++id) qp.receive(id, {buffer.sge(0, 64)});
    side.tell_word(kReady);
    side.await_word(kPosted);  // all have been executed
    cq.expect(1);
    qp.send(kSend, {buffer.sge(0, 8)});
    side.await_word(kDone);
    pause_ms(20);  // the result follows the delivery to the peer
    const ibv_wc first = cq.wait(), second = cq.wait();
    CHECK(first.wr_id == kSend || second.wr_id == kSend);
    for (uint64_t left = kReceives - 2; left > 0; --left) CHECK(cq.wait().wr_id != kSend);
  } else {
    qp.receive(1, {buffer.sge(0, 64)});
    side.await_word(kReady);
    for (uint64_t id = 1; id <= kReceives; ++id) qp.send(1 + id, {buffer.sge(0, 8)});
    for (uint64_t id = 1; id <= kReceives; ++id) cq.expect(1 + id);
    side.tell_word(kPosted);
    cq.expect(1);
    side.tell_word(kDone);
  }
}

// A poll finds existing completions, however many queue pairs share the completion queue.
CONFORMANCE_TEST(progress, many_queue_pairs_in_one_queue) {
  constexpr uint64_t kQueuePairs = 40, kEach = 3, kFlushed = 99;
  Cq cq(side, true, 1024);
  Buffer buffer(side, 4096);
  std::vector<std::unique_ptr<Qp>> qps;
  for (uint64_t i = 0; i < kQueuePairs; ++i) {
    qps.push_back(std::make_unique<Qp>(side, cq));
    qps.back()->connect();
    for (uint64_t n = 0; n < kEach; ++n) qps.back()->receive(i, {buffer.sge(0, 64)});
  }
  side.meet(kReady);
  std::vector<uint64_t> found(kQueuePairs);
  for (uint64_t n = 0; n < kEach; ++n) {
    if (side.is_a())
      for (uint64_t i = 0; i < kQueuePairs; ++i)
        qps[i * 7 % kQueuePairs]->send(i * 7 % kQueuePairs, {buffer.sge(0, 8)});
    for (uint64_t i = 0; i < kQueuePairs; ++i) ++found[cq.wait().wr_id];
    side.meet(kDone);
  }
  for (uint64_t i = 0; i < kQueuePairs; ++i) CHECK_EQ(found[i], kEach);
  cq.expect_none(20);
  if (!side.is_a()) qps[kQueuePairs / 2]->receive(kFlushed, {buffer.sge(0, 64)});
  const uint64_t flushed = side.is_a() ? kEach : 1;  // a still has all of its receives
  qps[kQueuePairs / 2]->to(IBV_QPS_ERR);
  for (uint64_t n = 0; n < flushed; ++n)
    CHECK_EQ(static_cast<int>(cq.wait().status), static_cast<int>(IBV_WC_WR_FLUSH_ERR));
  side.meet(kDone);
}

// A program that polls one completion at a time sees those of all queue pairs, even if some are
// never idle. There are so many that most likely some share a mark (ipc::kNews).
CONFORMANCE_TEST(progress, nobody_starves_among_many) {
  constexpr uint64_t kQueuePairs = 128, kBusy = 8;
  Cq cq(side, false, 1024);
  std::vector<std::unique_ptr<Qp>> qps;
  for (uint64_t i = 0; i < kQueuePairs; ++i) {
    qps.push_back(std::make_unique<Qp>(side, cq));
    qps.back()->connect();
  }
  const auto post = [&](uint64_t i) { qps[i]->write(i, {}, Remote{}); };
  side.meet(kReady);
  if (side.is_a()) {
    for (uint64_t i = 0; i < kBusy; ++i)
      for (int n = 0; n < 4; ++n) post(i);
    for (uint64_t i = kBusy; i < kQueuePairs; ++i) post(i);
    uint64_t left = kQueuePairs - kBusy;
    const auto started = std::chrono::steady_clock::now();
    while (left > 0) {
      CHECK(std::chrono::steady_clock::now() - started <
            std::chrono::milliseconds(kPatience));  // starvation would last forever
      const ibv_wc found = cq.wait();
      CHECK_EQ(static_cast<int>(found.status), static_cast<int>(IBV_WC_SUCCESS));
      if (found.wr_id < kBusy)
        post(found.wr_id);
      else
        --left;
    }
  }
  side.meet(kDone);
}

// Only solicited completions wake a channel armed for them; errors do too.
CONFORMANCE_TEST(progress, solicited_events) {
  Cq send_cq(side);
  Cq cq(side, true);
  Qp qp(side, send_cq, cq);
  Buffer buffer(side, 4096);
  qp.connect();
  if (side.is_a()) {
    side.await_word(kReady);
    qp.send(1, {buffer.sge(0, 8)});
    send_cq.expect(1);
    side.tell_word(kPosted);
    side.await_word(kReady);
    qp.send(2, {buffer.sge(0, 8)}, IBV_SEND_SOLICITED);
    send_cq.expect(2);
    side.await_word(kDone);
  } else {
    for (uint64_t id = 1; id <= 2; ++id) qp.receive(id, {buffer.sge(0, 64)});
    cq.arm(true);
    side.tell_word(kReady);
    side.await_word(kPosted);
    CHECK(!cq.has_event(50));
    side.tell_word(kReady);
    cq.await_event();
    cq.expect(1);
    cq.expect(2);
    side.tell_word(kDone);
  }
}

// Arming reports completions since the last poll at once, as adapters do; but not twice, if the
// program had an event for them and has not polled yet.
CONFORMANCE_TEST(progress, events_of_what_was_there) {
  Cq send_cq(side, true), recv_cq(side, true);
  Qp qp(side, send_cq, recv_cq);
  Buffer buffer(side, 4096);
  qp.connect();
  if (side.is_a()) {
    qp.receive(1, {buffer.sge(0, 64)});
    side.tell_word(kReady);
    while (__atomic_load_n(buffer.data, __ATOMIC_ACQUIRE) != 7) std::this_thread::yield();
  } else {
    side.await_word(kReady);
    buffer.data[0] = 7;
    qp.send(1, {buffer.sge(0, 8)});
  }
  side.meet(kPosted);
  Cq& cq = side.is_a() ? recv_cq : send_cq;
  cq.arm();
  CHECK(cq.has_event(kPatience));
  cq.await_event();
  cq.arm();
  CHECK(!cq.has_event(0));
  cq.expect(1);
  side.meet(kDone);
}

}  // namespace conformance
