// Lost, doubled, late and damaged packets; peers that keep early packets and peers that go back.
#include <cmath>

#include "tests/unit/transport/net/simulation.h"

namespace vrdma::transport::net {
namespace {

using testing::Each;
using testing::Field;
using testing::SizeIs;
using verbs::Opcode;
using verbs::WcStatus;
using wire::Operation;

// A responder as adapters have it, written without a look at Responder: it drops whatever is not
// the packet that it expects, and says so once until that comes.
class GoBackResponder {
 public:
  GoBackResponder(Connection& connection, uint32_t psn)
      : connection_(connection), expected_(psn), memory(1u << 20) {
    connection.to_b.arrives = [this](const wire::Packet& packet) { arrive(packet); };
  }

 private:
  void arrive(const wire::Packet& packet) {
    const int32_t ahead = wire::psn_distance(expected_, packet.psn);
    if (ahead > 0) {
      ++dropped;
      if (!std::exchange(silent_, true)) answer(Operation::kAcknowledge, expected_, 0x60);
      return;
    }
    const bool reads = packet.operation == Operation::kReadRequest;
    if (reads) {
      const uint32_t count = wire::packets_of(packet.dma_length, 1024);
      for (uint32_t i = 0; i < count; ++i) {
        const uint64_t at = packet.va - kMemoryAt + i * 1024ull;
        const auto operation = count == 1       ? Operation::kReadResponseOnly
                               : i == 0         ? Operation::kReadResponseFirst
                               : i + 1 == count ? Operation::kReadResponseLast
                                                : Operation::kReadResponseMiddle;
        answer(operation, wire::psn_add(packet.psn, i), 0x1f, &memory.at(at),
               std::min(1024u, packet.dma_length - i * 1024));
      }
      if (ahead == 0) expected_ = wire::psn_add(packet.psn, count);
      if (ahead == 0) silent_ = false;
      return;
    }
    if (ahead == 0) {
      silent_ = false;
      if (packet.operation == Operation::kWriteFirst || packet.operation == Operation::kWriteOnly)
        at_ = packet.va - kMemoryAt;
      std::memcpy(&memory.at(at_), packet.payload, packet.payload_length);
      at_ += packet.payload_length;
      expected_ = wire::psn_add(expected_, 1);
    }
    if (packet.ack_request || ahead < 0)
      answer(Operation::kAcknowledge, wire::psn_add(expected_, 0xffffff), 0x1f);
  }
  void answer(Operation operation, uint32_t psn, uint8_t syndrome, const uint8_t* bytes = nullptr,
              uint32_t length = 0) {
    wire::Packet packet;
    packet.operation = operation;
    packet.psn = psn;
    packet.syndrome = syndrome;
    packet.payload = bytes;
    packet.payload_length = length;
    connection_.to_a.send(connection_.simulation, packet);
  }

  Connection& connection_;
  uint32_t expected_;
  uint64_t at_ = 0;
  bool silent_ = false;

 public:
  Blob memory;
  uint32_t dropped = 0;
};

// Drops the packets to `b` with these numbers, counted from 0.
void drop(Connection& c, std::vector<uint64_t> numbers) {
  c.to_b.drops = [numbers, sent = uint64_t{0}](const wire::Packet&) mutable {
    return std::find(numbers.begin(), numbers.end(), sent++) != numbers.end();
  };
}

constexpr size_t kPackets = 200;
constexpr size_t kBytes = kPackets * 1024;

TEST(Recovery, SendsOnePacketAgainToAPeerThatKeepsTheRest) {
  Connection c;
  drop(c, {50});
  c.a.post(write_to(0), pattern(kBytes));
  ASSERT_TRUE(c.run(1));
  EXPECT_EQ(c.a.counters.retransmitted, 1u);
  EXPECT_EQ(c.a.counters.kept_early, 1u);
  EXPECT_EQ(c.a.counters.local_ack_timeout_err, 0u);
  EXPECT_EQ(c.a.counters.probes, 0u);
  EXPECT_EQ(c.b.counters.duplicate_request, 0u);
}

TEST(Recovery, GoesBackForAPeerThatDropsTheRest) {
  Connection c;
  GoBackResponder peer(c, 0xfffff0);
  drop(c, {50});
  c.a.post(write_to(0), pattern(kBytes));
  ASSERT_TRUE(c.run(1));
  EXPECT_EQ(c.a.counters.kept_early, 0u);
  EXPECT_EQ(c.a.counters.went_back, 1u);
  EXPECT_EQ(c.a.counters.retransmitted, peer.dropped + 1);
  EXPECT_EQ(c.a.counters.probes, 0u);
  EXPECT_TRUE(
      std::equal(peer.memory.begin(), peer.memory.begin() + kBytes, c.a.posted[0].bytes.begin()));
}

TEST(Recovery, FindsHolesOfSeveralPackets) {
  Connection c;
  std::vector<uint64_t> lost;
  for (uint64_t i = 60; i < 76; ++i) lost.push_back(i);
  drop(c, lost);
  c.a.post(write_to(0), pattern(kBytes));
  ASSERT_TRUE(c.run(1));
  EXPECT_LE(c.a.counters.retransmitted, kPackets);
  EXPECT_EQ(c.a.counters.local_ack_timeout_err, 0u);
  // From now on it is known that the peer keeps packets.
  const uint64_t before = c.a.counters.retransmitted;
  c.to_b.drops = [sent = uint64_t{0}](const wire::Packet&) mutable {
    const uint64_t number = sent++;
    return number >= 60 && number < 76;
  };
  c.a.post(write_to(0), pattern(kBytes));
  ASSERT_TRUE(c.run(2));
  EXPECT_LE(c.a.counters.retransmitted - before, 2 * 16u);
}

TEST(Recovery, FindsALostEndBeforeTheTimeout) {
  for (const bool keeps : {true, false}) {
    Attributes attributes = default_attributes();
    attributes.keeps_early = keeps;
    Connection c(attributes);
    drop(c, {kPackets - 3, kPackets - 2, kPackets - 1});
    c.a.post(write_to(0), pattern(kBytes));
    const base::TimePoint begun = c.simulation.now;
    ASSERT_TRUE(c.run(1));
    EXPECT_EQ(c.a.counters.local_ack_timeout_err, 0u);
    EXPECT_GE(c.a.counters.probes, 1u);
    EXPECT_LT(c.simulation.now - begun, std::chrono::milliseconds(5)) << "simulated";
  }
}

// What is sent again without need makes such a peer slower still.
TEST(Recovery, WaitsForAPeerThatIsSlow) {
  Attributes attributes = default_attributes();
  attributes.timeout = 18;  // a second
  Connection c(attributes);
  c.to_b.conditions.bytes_per_ns = 0.001;  // a packet in a millisecond
  constexpr uint64_t kWrites = 20;
  for (uint64_t i = 0; i < kWrites; ++i) c.a.post(write_to(0), pattern(kBytes));
  ASSERT_TRUE(c.run(kWrites));
  EXPECT_EQ(c.a.counters.local_ack_timeout_err, 0u);
  EXPECT_LE(c.a.counters.retransmitted, kWrites * kPackets / 100);
}

// It answers later than the timeout, but takes what comes.
TEST(Recovery, LeavesASlowPeerTimeAfterATimeout) {
  Attributes attributes = default_attributes();
  attributes.timeout = 12;  // 17 ms
  Connection c(attributes);
  c.to_b.conditions.bytes_per_ns = 0.001;
  constexpr uint64_t kWrites = 20;
  for (uint64_t i = 0; i < kWrites; ++i) c.a.post(write_to(0), pattern(kBytes));
  ASSERT_TRUE(c.run(kWrites));
  EXPECT_THAT(c.a.completions, Each(Field(&Completion::status, WcStatus::kSuccess)));
  EXPECT_GE(c.a.counters.local_ack_timeout_err, 1u);
  EXPECT_LE(c.a.counters.retransmitted, kWrites * kPackets / 10);
}

TEST(Recovery, SurvivesALostNakAndALostRepetition) {
  for (const bool keeps : {true, false}) {
    Attributes attributes = default_attributes();
    attributes.keeps_early = keeps;
    Connection c(attributes);
    drop(c, {50, kPackets});  // and what is sent first after everything
    bool lost = false;
    c.to_a.drops = [&](const wire::Packet& packet) {
      return packet.syndrome == wire::kNakSequence && !std::exchange(lost, true);
    };
    c.a.post(write_to(0), pattern(kBytes));
    ASSERT_TRUE(c.run(1));
    EXPECT_TRUE(lost);
    EXPECT_EQ(c.a.completions[0].status, WcStatus::kSuccess);
    EXPECT_EQ(c.a.counters.local_ack_timeout_err, 0u);
  }
}

TEST(Recovery, AsksAgainForLostAnswersOfReads) {
  Connection c;
  c.b.memory = pattern(1u << 20);
  std::vector<uint64_t> lost{5, 20, 63, 64};
  c.to_a.drops = [lost, sent = uint64_t{0}](const wire::Packet&) mutable {
    return std::find(lost.begin(), lost.end(), sent++) != lost.end();
  };
  c.a.post(read_from(0), Blob(kBytes));
  ASSERT_TRUE(c.run(1));
  EXPECT_TRUE(
      std::equal(c.a.posted[0].bytes.begin(), c.a.posted[0].bytes.end(), c.b.memory.begin()));
  EXPECT_GE(c.a.counters.implied_nak_seq_err, 3u);
  EXPECT_EQ(c.a.counters.local_ack_timeout_err, 0u);
  EXPECT_GE(c.b.counters.duplicate_request, 3u);
}

TEST(Recovery, AsksAgainForAReadOfAnAdapter) {
  Connection c;
  GoBackResponder peer(c, 0xfffff0);
  peer.memory = pattern(1u << 20);
  c.to_a.drops = [sent = 0](const wire::Packet&) mutable { return sent++ % 37 == 20; };
  c.a.post(read_from(0), Blob(kBytes));
  c.a.post(write_to(500'000), pattern(kBytes, 1));
  ASSERT_TRUE(c.run(2));
  EXPECT_EQ(c.a.posted[0].bytes, Blob(pattern(kBytes)));
}

TEST(Recovery, RepeatsTheAnswerOfAnAtomicAndNotTheAtomic) {
  Connection c;
  c.to_a.drops = [sent = 0](const wire::Packet&) mutable { return sent++ < 2; };
  c.a.post(add_to(0, 1), Blob(8));
  c.a.post(add_to(0, 1), Blob(8));
  ASSERT_TRUE(c.run(2));
  EXPECT_EQ(c.b.memory[0], 2);
  EXPECT_EQ(c.a.posted[0].bytes[0], 0);
  EXPECT_EQ(c.a.posted[1].bytes[0], 1);
  EXPECT_GE(c.b.counters.duplicate_request, 1u);
}

// A lost ACK of a SEND must not make the SEND arrive twice.
TEST(Recovery, DeliversOnceWhenAcknowledgementsAreLost) {
  Connection c;
  c.b.post_receives(10);
  c.to_a.drops = [sent = 0](const wire::Packet&) mutable { return sent++ % 2 == 0; };
  for (uint32_t i = 0; i < 10; ++i) c.a.post(send(), pattern(100, i));
  ASSERT_TRUE(c.run(10));
  ASSERT_THAT(c.b.received, SizeIs(10));
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(c.b.received[i].bytes, pattern(100, i));
}

TEST(Recovery, GivesUpAfterTheRetries) {
  Attributes attributes = default_attributes();
  attributes.timeout = 10;  // 4 ms
  attributes.retry_cnt = 2;
  Connection c(attributes);
  c.to_b.drops = [](const wire::Packet&) { return true; };
  c.a.post(write_to(0), pattern(100));
  c.a.post(write_to(0), pattern(100));
  const base::TimePoint begun = c.simulation.now;
  ASSERT_TRUE(c.run(1));
  EXPECT_EQ(c.a.completions[0].status, WcStatus::kRetryExceeded);
  EXPECT_GE(c.simulation.now - begun, 3 * std::chrono::nanoseconds(4096 << 10));
  EXPECT_LE(c.simulation.now - begun, 4 * std::chrono::nanoseconds(4096 << 10));
  EXPECT_EQ(c.a.counters.local_ack_timeout_err, 3u);
  c.settle();
  EXPECT_THAT(c.a.completions, SizeIs(1)) << "the others are flushed by their owner";
}

TEST(Recovery, WithoutATimeoutNeverGivesUp) {
  Attributes attributes = default_attributes();
  attributes.timeout = 0;
  Connection c(attributes);
  c.to_b.drops = [](const wire::Packet&) { return true; };
  c.a.post(write_to(0), pattern(100));
  EXPECT_FALSE(c.run(1, std::chrono::seconds(60)));
  EXPECT_LT(c.to_b.packets, 1000u) << "it asks ever more rarely";
  c.to_b.drops = nullptr;
  EXPECT_TRUE(c.run(1, std::chrono::seconds(60)));
}

TEST(Recovery, WaitsForAReceive) {
  for (const bool keeps : {true, false}) {
    Attributes attributes = default_attributes();
    attributes.keeps_early = keeps;
    attributes.rnr_retry = 7;
    attributes.min_rnr_timer = 12;  // 640 us
    Connection c(attributes);
    for (uint32_t i = 0; i < 5; ++i) c.a.post(send(), pattern(3000, i));
    EXPECT_FALSE(c.run(1, std::chrono::milliseconds(20)));
    const uint64_t naks = c.b.counters.out_of_buffer;
    EXPECT_GE(naks, 10u);
    EXPECT_LE(naks, 40u);
    c.b.post_receives(5);
    ASSERT_TRUE(c.run(5));
    ASSERT_THAT(c.b.received, SizeIs(5));
    for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(c.b.received[i].bytes, pattern(3000, i));
    EXPECT_EQ(c.a.counters.local_ack_timeout_err, 0u);
  }
}

TEST(Recovery, GoesOnAtOnceWhenAReceiveIsPosted) {
  Attributes attributes = default_attributes();
  attributes.min_rnr_timer = 0;  // 655 ms
  Connection c(attributes);
  for (uint32_t i = 0; i < 3; ++i) c.a.post(send(), pattern(3000, i));
  EXPECT_FALSE(c.run(1, std::chrono::milliseconds(1)));
  c.b.post_receives(3);
  EXPECT_TRUE(c.run(3, std::chrono::milliseconds(1))) << "simulated";
}

TEST(Recovery, GivesUpAfterTheRnrRetries) {
  Attributes attributes = default_attributes();
  attributes.rnr_retry = 3;
  attributes.min_rnr_timer = 1;
  Connection c(attributes);
  c.a.post(send(), pattern(10));
  ASSERT_TRUE(c.run(1));
  EXPECT_EQ(c.a.completions[0].status, WcStatus::kRnrRetryExceeded);
  EXPECT_EQ(c.b.counters.out_of_buffer, 4u);
}

struct Storm : testing::TestWithParam<std::tuple<bool, int>> {};
INSTANTIATE_TEST_SUITE_P(All, Storm, testing::Combine(testing::Bool(), testing::Range(0, 8)));

TEST_P(Storm, LosesNothing) {
  const auto [keeps, seed] = GetParam();
  Attributes attributes = default_attributes();
  attributes.keeps_early = keeps;
  attributes.timeout = 16;
  Connection c(attributes, static_cast<uint64_t>(seed));
  Conditions bad;
  bad.loss = 0.05;
  bad.twice = bad.late = 0.1;
  bad.damage = 0.02;
  c.set(bad);
  c.b.post_receives(30);
  size_t count = 0;
  for (uint32_t i = 0; i < 30; ++i) {
    c.a.post(send(), pattern(i * 331, i));
    c.a.post(write_to(i * 10'000), pattern(9'999, i));
    c.a.post(add_to(500'000, 1), Blob(8));
    Request read = read_from(i * 10'000);
    read.fence = true;  // also behind the atomic before it
    c.a.post(read, Blob(9'999));
    count += 4;
  }
  ASSERT_TRUE(c.run(count));
  EXPECT_THAT(c.a.completions, Each(Field(&Completion::status, WcStatus::kSuccess)));
  ASSERT_THAT(c.b.received, SizeIs(30));
  for (uint32_t i = 0; i < 30; ++i) {
    EXPECT_EQ(c.b.received[i].bytes, pattern(i * 331, i));
    EXPECT_EQ(c.a.posted[i * 4 + 2].bytes[0], i);
    EXPECT_EQ(c.a.posted[i * 4 + 3].bytes, pattern(9'999, i));
  }
}

// The bandwidth of writes of 1 MiB, in bytes a (simulated) second.
double bandwidth(bool keeps, double loss, uint32_t at_once = 1) {
  Attributes attributes = default_attributes();
  attributes.keeps_early = keeps;
  Connection c(attributes, 3);
  Conditions lossy;
  lossy.loss = loss;
  c.set(lossy);
  c.to_b.conditions.loss = loss / at_once;
  c.to_b.conditions.lost_at_once = at_once;
  constexpr int kWrites = 20;
  for (int i = 0; i < kWrites; ++i) c.a.post(write_to(0), pattern(1u << 20));
  const base::TimePoint begun = c.simulation.now;
  EXPECT_TRUE(c.run(kWrites));
  EXPECT_THAT(c.a.completions, Each(Field(&Completion::status, WcStatus::kSuccess)));
  const double rate =
      kWrites * 1048576.0 / std::chrono::duration<double>(c.simulation.now - begun).count();
  std::printf("%s, %.0f %% loss by %u: %.0f MB/s; sent again %llu, probes %llu, went back %llu\n",
              keeps ? "keeps early packets" : "goes back", loss * 100, at_once, rate / 1e6,
              static_cast<unsigned long long>(c.a.counters.retransmitted),
              static_cast<unsigned long long>(c.a.counters.probes),
              static_cast<unsigned long long>(c.a.counters.went_back));
  return rate;
}

// What TCP reaches with this loss: Mathis et al. (1997), with the constant for acknowledgements of
// every packet and segments of 1448 bytes.
TEST(Recovery, IsAsFastAsTcpAtOnePercentLoss) {
  const double trip = 2 * std::chrono::duration<double>(Conditions().latency).count();
  const double tcp = 1448 / trip * 1.22 / std::sqrt(0.01);
  std::printf("TCP, 1 %% loss: %.0f MB/s\n", tcp / 1e6);
  const double whole = bandwidth(true, 0);
  EXPECT_GE(whole, 1.0e9) << "of 1.25";
  EXPECT_GE(bandwidth(true, 0.01), std::max(tcp, 0.6 * whole));
  EXPECT_GE(bandwidth(true, 0.01, 16), tcp) << "a burst is lost whole";
  EXPECT_GE(bandwidth(false, 0.01), tcp / 2) << "an adapter drops all that follows a loss";
}

TEST(Takeover, AnotherRequesterGoesOn) {
  Connection c;
  c.b.post_receives(4);
  c.a.post(send(), pattern(100'000));
  c.a.post(add_to(0, 1), Blob(8));
  c.a.post(read_from(100), Blob(5000));
  for (int i = 0; i < 60; ++i) (void)c.simulation.step();
  ASSERT_LT(c.a.completions.size(), 3u);
  const size_t done = c.a.completions.size();
  const Requester::Record record = c.a.requester.record();
  End next(c.simulation, default_attributes());
  next.way = &c.to_b;
  next.requester.restore(record);
  c.to_a.arrives = [&](const wire::Packet& packet) { next.arrive(packet); };
  const std::vector<End::Posted> all = c.a.posted;
  c.a.requester.clear();
  for (size_t i = done; i < 3; ++i)
    next.post(i < all.size() ? all[i].request : c.a.queue[i - all.size()].request,
              i < all.size() ? all[i].bytes : c.a.queue[i - all.size()].bytes);
  c.a.queue.clear();
  next.pump();
  c.settle();
  ASSERT_THAT(next.completions, SizeIs(3 - done));
  EXPECT_THAT(next.completions, Each(Field(&Completion::status, WcStatus::kSuccess)));
  ASSERT_THAT(c.b.received, SizeIs(1));
  EXPECT_EQ(c.b.received[0].bytes, pattern(100'000));
  EXPECT_EQ(c.b.memory[0], 1) << "the atomic was done once";
}

// What answers the first request is slow to be stored: no more goes ahead of it than another
// requester can ask for again.
TEST(Takeover, AnotherRequesterGoesOnBehindASlowStore) {
  Connection c;
  c.b.memory = pattern(c.b.memory.size(), 3);
  c.a.hang_scatter = true;
  c.a.post(read_from(0), Blob(100));
  for (uint32_t i = 0; i < 100; ++i) c.a.post(write_to(1000 + i * 8192), pattern(8192, i));
  c.settle();
  EXPECT_EQ(c.a.requester.unanswered(), 0u);
  const Requester::Record record = c.a.requester.record();
  EXPECT_EQ((record.next_psn - record.oldest_psn) & verbs::kPsnMask, kSpan / 2);
  c.a.hang_scatter = false;
  c.a.restart();
  EXPECT_TRUE(c.run(101));
  EXPECT_THAT(c.a.completions, Each(Field(&Completion::status, WcStatus::kSuccess)));
  EXPECT_EQ(c.a.posted[0].bytes, pattern(100, 3));
  for (uint32_t i = 0; i < 100; ++i) {
    const Blob written = pattern(8192, i);
    EXPECT_TRUE(std::equal(written.begin(), written.end(), c.b.memory.begin() + 1000 + i * 8192));
  }
}

// And when it is stored, the rest follows.
TEST(Takeover, SlowStoresHoldTheRestBackUntilTheyAreDone) {
  Connection c;
  c.a.hang_scatter = true;
  c.a.post(read_from(0), Blob(100));
  for (uint32_t i = 0; i < 100; ++i) c.a.post(write_to(1000 + i * 8192), pattern(8192, i));
  c.settle();
  EXPECT_THAT(c.a.completions, SizeIs(0));
  c.a.requester.scattered(0, 0, true);
  c.a.pump();
  EXPECT_TRUE(c.run(101));
}

TEST(Takeover, AnotherResponderGoesOn) {
  Connection c;
  c.a.post(add_to(0, 3), Blob(8));
  c.a.post(write_to(64), pattern(100'000));
  c.a.post(add_to(0, 4), Blob(8));
  for (int i = 0; i < 50; ++i) (void)c.simulation.step();
  ASSERT_LT(c.a.completions.size(), 2u);
  End next(c.simulation, default_attributes());
  next.way = &c.to_a;
  next.memory = c.b.memory;
  const auto& resources = c.b.responder.resources();
  const std::vector<Responder::Resource> known(resources.begin(), resources.end());
  next.responder.restore(c.b.responder.record(), known);
  c.to_b.arrives = [&](const wire::Packet& packet) { next.arrive(packet); };
  ASSERT_TRUE(c.run(3));
  EXPECT_EQ(next.memory[0], 7);
  const Blob written = pattern(100'000);
  EXPECT_TRUE(std::equal(written.begin(), written.end(), next.memory.begin() + 64));
  EXPECT_EQ(c.a.posted[2].bytes[0], 3);
}

}  // namespace
}  // namespace vrdma::transport::net
