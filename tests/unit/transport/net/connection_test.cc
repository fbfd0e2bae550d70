// All operations over a wire that loses nothing.
#include "tests/unit/transport/net/simulation.h"

namespace vrdma::transport::net {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;
using verbs::Opcode;
using verbs::WcStatus;

class Mtus : public testing::TestWithParam<uint32_t> {
 protected:
  static Attributes attributes() {
    Attributes attributes = default_attributes();
    attributes.mtu = GetParam();
    return attributes;
  }
  Connection c{attributes()};
};

INSTANTIATE_TEST_SUITE_P(All, Mtus, testing::Values(256, 512, 1024, 2048, 4096));

// Lengths around those at which the number of packets changes.
std::vector<size_t> lengths(uint32_t mtu) {
  return {0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 5, 300'000};
}

TEST_P(Mtus, CarrySendsOfAllLengths) {
  const std::vector<size_t> all = lengths(GetParam());
  c.b.post_receives(all.size() * 3);
  uint32_t seed = 0;
  std::vector<Blob> sent;
  for (const size_t length : all)
    for (const auto opcode : {Opcode::kSend, Opcode::kSendWithImm, Opcode::kSendWithInvalidate}) {
      sent.push_back(pattern(length, ++seed));
      Request request = send(opcode, opcode == Opcode::kSend ? 0 : 0x01020304);
      request.solicited = seed % 2 == 0;
      c.a.post(request, sent.back());
    }
  ASSERT_TRUE(c.run(sent.size()));
  ASSERT_THAT(c.b.received, SizeIs(sent.size()));
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(c.b.received[i].bytes, sent[i]);
    EXPECT_EQ(c.b.received[i].solicited, (i + 1) % 2 == 0);
    EXPECT_EQ(c.b.received[i].opcode, c.a.posted[i].request.opcode);
    EXPECT_EQ(c.b.received[i].imm, c.a.posted[i].request.imm);
    EXPECT_EQ(c.a.completions[i], (Completion{static_cast<uint32_t>(i), WcStatus::kSuccess, 0}));
  }
  EXPECT_EQ(c.a.counters.retransmitted, 0u);
}

TEST_P(Mtus, CarryWritesAndReadsOfAllLengths) {
  uint32_t seed = 0;
  for (const size_t length : lengths(GetParam())) {
    const Blob bytes = pattern(length, ++seed);
    c.a.post(write_to(64), bytes);
    c.a.post(read_from(64), Blob(length));
    ASSERT_TRUE(c.run(2 * seed));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), c.b.memory.begin() + 64));
    EXPECT_EQ(c.a.posted.back().bytes, bytes);
    EXPECT_EQ(c.a.completions.back().byte_len, length);
  }
  EXPECT_THAT(c.a.completions, Each(Field(&Completion::status, WcStatus::kSuccess)));
  EXPECT_THAT(c.b.received, IsEmpty());
  EXPECT_EQ(c.a.counters.retransmitted, 0u);
  EXPECT_EQ(c.a.counters.bad_response, 0u);
}

TEST(Connections, WriteWithImmediateCompletesAReceive) {
  Connection c;
  c.b.post_receives(3);
  for (const size_t length : {0u, 10u, 5000u}) {
    Request request = write_to(0);
    request.opcode = Opcode::kRdmaWriteWithImm;
    request.imm = 0xbeef;
    request.solicited = true;
    c.a.post(request, pattern(length));
  }
  ASSERT_TRUE(c.run(3));
  ASSERT_THAT(c.b.received, SizeIs(3));
  for (const Received& each : c.b.received) {
    EXPECT_EQ(each.opcode, Opcode::kRdmaWriteWithImm);
    EXPECT_EQ(each.imm, 0xbeefu);
    EXPECT_TRUE(each.solicited);
  }
  const Blob written = pattern(5000);
  EXPECT_TRUE(std::equal(written.begin(), written.end(), c.b.memory.begin()));
}

TEST(Connections, AtomicsReturnTheOriginalValue) {
  Connection c;
  const auto post_atomic = [&](Request request) { c.a.post(request, Blob(8)); };
  post_atomic(add_to(8, 5));
  post_atomic(add_to(8, 7));
  Request swap = add_to(8, 12);  // compares with 12
  swap.opcode = Opcode::kCompareSwap;
  swap.swap = 100;
  post_atomic(swap);
  post_atomic(swap);  // in vain
  Request stored = write_to(16);
  stored.opcode = Opcode::kAtomicWrite;
  c.a.post(stored, Blob(8, 0x77));
  ASSERT_TRUE(c.run(5));
  const auto original = [&](size_t i) {
    uint64_t value = 0;
    std::memcpy(&value, c.a.posted[i].bytes.data(), sizeof value);
    return value;
  };
  EXPECT_THAT((std::vector{original(0), original(1), original(2), original(3)}),
              ElementsAre(0, 5, 12, 100));
  EXPECT_EQ(c.b.memory[16], 0x77);
  EXPECT_EQ(c.a.completions[0].byte_len, 8u);
  EXPECT_EQ(c.b.counters.rx_atomic_requests, 5u);
}

TEST(Connections, BothEndsSend) {
  Connection c;
  c.b.post_receives(20);
  c.a.post_receives(20);
  for (uint32_t i = 0; i < 20; ++i) {
    c.a.post(send(), pattern(3000, i));
    c.b.post(send(), pattern(3000, i + 100));
    c.b.post(read_from(0), Blob(2000));
  }
  c.settle();
  EXPECT_THAT(c.a.completions, SizeIs(20));
  EXPECT_THAT(c.b.completions, SizeIs(40));
  EXPECT_EQ(c.a.received.at(19).bytes, pattern(3000, 119));
  EXPECT_EQ(c.b.received.at(19).bytes, pattern(3000, 19));
}

TEST(Connections, AcknowledgeOnceForManyPackets) {
  Connection c;
  c.a.post(write_to(0), pattern(1u << 20));
  ASSERT_TRUE(c.run(1));
  EXPECT_EQ(c.to_b.packets, 1024u);
  EXPECT_LE(c.to_a.packets, 1024 / 32 + 2u);
}

TEST(Connections, KeepNoMoreReadsOnTheirWayThanAllowed) {
  Attributes attributes = default_attributes();
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 2;
  Connection c(attributes);
  size_t outstanding = 0, most = 0;
  c.to_b.drops = [&](const wire::Packet& packet) {
    if (packet.operation == wire::Operation::kReadRequest) most = std::max(most, ++outstanding);
    return false;
  };
  c.to_a.drops = [&](const wire::Packet& packet) {
    if (packet.operation == wire::Operation::kReadResponseOnly) --outstanding;
    return false;
  };
  for (int i = 0; i < 10; ++i) c.a.post(read_from(0), Blob(100));
  ASSERT_TRUE(c.run(10));
  EXPECT_EQ(most, 2u);
}

TEST(Connections, AFenceWaitsForReads) {
  Connection c;
  c.b.post_receives(1);
  bool read_answered = false;
  c.to_a.drops = [&](const wire::Packet& packet) {
    read_answered |= packet.operation == wire::Operation::kReadResponseLast;
    return false;
  };
  bool sent_before = false;
  c.to_b.drops = [&](const wire::Packet& packet) {
    sent_before |= packet.operation == wire::Operation::kSendOnly && !read_answered;
    return false;
  };
  c.a.post(read_from(0), Blob(5000));
  Request fenced = send();
  fenced.fence = true;
  c.a.post(fenced, {});
  ASSERT_TRUE(c.run(2));
  EXPECT_FALSE(sent_before);
}

TEST(Connections, LongReadsAreAskedForInPieces) {
  Connection c;
  uint32_t longest = 0;
  c.to_b.drops = [&](const wire::Packet& packet) {
    longest = std::max(longest, packet.dma_length);
    return false;
  };
  c.b.memory = pattern(1u << 20);
  c.a.post(read_from(0), Blob(1u << 20));
  ASSERT_TRUE(c.run(1));
  EXPECT_EQ(c.a.posted[0].bytes, c.b.memory);
  EXPECT_EQ(longest, Requester::kReadPiece);
}

TEST(Connections, WithSlowMemoryLoseNothing) {
  Connection c;
  c.a.slow = c.b.slow = 0.5;
  c.b.post_receives(10);
  uint32_t count = 0;
  for (uint32_t i = 0; i < 10; ++i) {
    c.a.post(send(), pattern(5000, i));
    c.a.post(write_to(i * 10'000), pattern(9000, i));
    c.a.post(add_to(500'000, 1), Blob(8));
    Request read = read_from(i * 10'000);
    read.fence = true;
    c.a.post(read, Blob(9000));
    count += 4;
  }
  ASSERT_TRUE(c.run(count));
  for (uint32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(c.b.received.at(i).bytes, pattern(5000, i));
    EXPECT_EQ(c.a.posted[i * 4 + 3].bytes, pattern(9000, i));
    EXPECT_EQ(c.a.posted[i * 4 + 2].bytes[0], i);
  }
}

// --- UC ---

Attributes unreliable() {
  Attributes attributes = default_attributes();
  attributes.reliable = false;
  return attributes;
}

TEST(UnreliableConnections, CompleteWhatTheyHaveSent) {
  Connection c(unreliable());
  c.b.post_receives(2);
  c.a.post(send(Opcode::kSendWithImm, 7), pattern(5000));
  c.a.post(write_to(100), pattern(3000, 1));
  c.a.post(send(), {});
  EXPECT_THAT(c.a.completions, SizeIs(3)) << "nobody answers";
  c.settle();
  ASSERT_THAT(c.b.received, SizeIs(2));
  EXPECT_EQ(c.b.received[0].bytes, pattern(5000));
  const Blob written = pattern(3000, 1);
  EXPECT_TRUE(std::equal(written.begin(), written.end(), c.b.memory.begin() + 100));
  EXPECT_EQ(c.to_a.packets, 0u);
  EXPECT_EQ(c.a.requester.deadline(), std::nullopt);
}

TEST(UnreliableConnections, LoseAMessageWithAGapAndNoOther) {
  for (const uint32_t lost : {0u, 1u, 4u}) {
    Connection c(unreliable());
    c.b.post_receives(3);
    uint32_t sent = 0;
    c.to_b.drops = [&](const wire::Packet&) { return sent++ == 5 + lost; };
    for (uint32_t i = 0; i < 3; ++i) c.a.post(send(), pattern(5 * 1024, i));
    c.settle();
    ASSERT_THAT(c.b.received, SizeIs(2)) << lost;
    EXPECT_EQ(c.b.received[0].bytes, pattern(5 * 1024, 0));
    EXPECT_EQ(c.b.received[1].bytes, pattern(5 * 1024, 2));
    EXPECT_EQ(c.b.forgotten, lost == 0 ? 0 : 1);
  }
}

// Of two messages, all packets, and all once more in another order.
TEST(UnreliableConnections, DropWhatComesAgainOrLate) {
  Connection c(unreliable());
  c.b.post_receives(1);
  std::vector<wire::Packet> packets;
  std::deque<Frame> frames;
  c.to_b.drops = [&](const wire::Packet& packet) {
    frames.push_back(frame_of(packet));
    packets.push_back(*wire::decode(frames.back()));
    return true;
  };
  c.a.post(write_to(100), pattern(5 * 1024));
  c.a.post(write_to(100), pattern(5 * 1024, 1));
  c.settle();
  ASSERT_THAT(packets, SizeIs(10));
  for (const size_t i : {0u, 1u, 1u, 0u, 2u, 3u, 4u, 1u, 5u, 5u, 4u, 6u, 7u, 0u, 8u, 9u})
    c.b.arrive(packets[i]);
  const Blob written = pattern(5 * 1024, 1);
  EXPECT_TRUE(std::equal(written.begin(), written.end(), c.b.memory.begin() + 100));
  EXPECT_EQ(c.b.forgotten, 0) << "nothing is lost";
  EXPECT_EQ(c.b.counters.rx_write_requests, 2u);
  std::fill(c.b.memory.begin(), c.b.memory.end(), 0);
  for (const auto& packet : packets) c.b.arrive(packet);
  EXPECT_EQ(c.b.memory, Blob(c.b.memory.size())) << "the memory is used for something else now";
  EXPECT_EQ(c.b.counters.duplicate_request, 16u);
  EXPECT_EQ(c.b.counters.out_of_sequence, 0u);
}

// The next worker does not execute again what comes late of a message that the last one received.
TEST(UnreliableConnections, DropWhatComesAgainAfterATakeover) {
  Connection c(unreliable());
  c.b.post_receives(4);
  std::deque<Frame> frames;
  c.to_b.drops = [&](const wire::Packet& packet) {
    frames.push_back(frame_of(packet));
    return false;
  };
  for (uint32_t i = 0; i < 2; ++i) c.a.post(send(), pattern(5 * 1024, i));
  c.settle();
  ASSERT_THAT(c.b.received, SizeIs(2));
  c.b.restart();
  for (const Frame& frame : frames) c.b.arrive(*wire::decode(frame));
  EXPECT_THAT(c.b.received, SizeIs(2));
  EXPECT_EQ(c.b.counters.duplicate_request, 10u);
  c.to_b.drops = nullptr;
  c.a.post(send(), pattern(5 * 1024, 2));
  c.settle();
  ASSERT_THAT(c.b.received, SizeIs(3));
  EXPECT_EQ(c.b.received[2].bytes, pattern(5 * 1024, 2));
}

// A peer that begins with another number than it was expected to, as the specification permits.
TEST(UnreliableConnections, TakeTheFirstPacketAtItsWord) {
  Attributes other = unreliable();
  other.sq_psn = (unreliable().rq_psn - 5) & verbs::kPsnMask;
  Connection c(other, unreliable(), 1);
  c.b.post_receives(2);
  for (uint32_t i = 0; i < 2; ++i) c.a.post(send(), pattern(5 * 1024, i));
  c.settle();
  ASSERT_THAT(c.b.received, SizeIs(2));
  EXPECT_EQ(c.b.received[1].bytes, pattern(5 * 1024, 1));
}

TEST(UnreliableConnections, DropWhatNobodyReceives) {
  Connection c(unreliable());
  c.a.post(send(), pattern(5 * 1024));
  c.settle();
  c.b.post_receives(1);
  c.a.post(write_to(0, kWrongKey), pattern(10));
  c.a.post(send(), pattern(10, 1));
  c.settle();
  ASSERT_THAT(c.b.received, SizeIs(1));
  EXPECT_EQ(c.b.received[0].bytes, pattern(10, 1));
  EXPECT_EQ(c.b.counters.out_of_buffer, 1u);
  EXPECT_EQ(c.to_a.packets, 0u);
}

TEST(UnreliableConnections, WithSlowMemoryLoseNothing) {
  Connection c(unreliable());
  c.b.post_receives(20);
  c.b.slow = 0.5;
  for (uint32_t i = 0; i < 20; ++i) c.a.post(send(), pattern(5000, i));
  c.settle();
  ASSERT_THAT(c.b.received, SizeIs(20));
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(c.b.received[i].bytes, pattern(5000, i));
}

TEST(UnreliableConnections, GoOnAfterARequestThatFailed) {
  Connection c(unreliable());
  c.b.post_receives(1);
  c.a.fail_gather_at = 0;
  c.a.post(send(), pattern(10));
  ASSERT_TRUE(c.run(1));
  EXPECT_EQ(c.a.completions[0].status, WcStatus::kLocalProtectionError);
  c.a.requester.clear();  // as its queue pair goes from SQE to RTS
  c.a.post(send(), pattern(10, 1));
  c.settle();
  ASSERT_THAT(c.b.received, SizeIs(1));
  EXPECT_EQ(c.b.received[0].bytes, pattern(10, 1));
}

TEST(UnreliableConnections, DropWhatComesLateAfterAGap) {
  Connection c(unreliable());
  c.b.post_receives(8);
  std::optional<wire::Packet> late;
  Blob bytes;
  int count = 0;
  c.to_b.drops = [&](const wire::Packet& packet) {
    if (++count > 4) return false;
    if (!late) {
      bytes.assign(packet.payload, packet.payload + packet.payload_length);
      late = packet;
    }
    return true;
  };
  for (uint32_t i = 0; i < 6; ++i) c.a.post(send(), pattern(10, i));
  c.settle();
  ASSERT_THAT(c.b.received, SizeIs(2));
  late->payload = bytes.data();
  c.b.arrive(*late);
  c.settle();
  EXPECT_THAT(c.b.received, SizeIs(2));
  EXPECT_EQ(c.b.counters.duplicate_request, 1u);
}

TEST(Connections, CompleteAReadThatIsBeingStoredBeforeTheRequestThatFails) {
  Connection c;
  c.a.slow = 1;
  Request atomic = add_to(0, 1);
  atomic.rkey = kWrongKey;
  c.a.post(read_from(0), Blob(100));
  c.a.post(atomic, Blob(8));
  ASSERT_TRUE(c.run(2));
  EXPECT_EQ(c.a.completions[0].status, WcStatus::kSuccess);
  EXPECT_EQ(c.a.completions[1].status, WcStatus::kRemoteAccessError);
}

TEST(Connections, KeepNoPacketThatIsLongerThanThePathCarries) {
  Connection c;
  Blob bytes(60'000);
  wire::Packet packet;
  packet.operation = wire::Operation::kSendOnly;
  packet.dest_qpn = 0x11;
  packet.psn = 0xfffff1;
  packet.payload = bytes.data();
  packet.payload_length = static_cast<uint32_t>(bytes.size());
  c.b.arrive(packet);
  EXPECT_EQ(c.b.counters.held, 0u);
  packet.payload_length = 10;
  c.b.arrive(packet);
  EXPECT_EQ(c.b.counters.held, 1u);
}

}  // namespace
}  // namespace vrdma::transport::net
