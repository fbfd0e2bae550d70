// What a peer may send that it should not, and what the responder answers.
#include "tests/unit/transport/net/simulation.h"

namespace vrdma::transport::net {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using verbs::Opcode;
using wire::Operation;
using wire::Packet;

constexpr uint32_t kPsn = 100;

// A second fixture within a test.
template <class Fixture>
struct Other : Fixture {
  void TestBody() override {}
};

struct Responders : testing::Test {
  static Attributes attributes() {
    Attributes attributes = default_attributes();
    attributes.rq_psn = kPsn;
    attributes.max_dest_rd_atomic = 2;
    attributes.min_rnr_timer = 5;
    return attributes;
  }
  explicit Responders(const Attributes& with = attributes()) : c(with, with, 1) {
    c.to_a.arrives = [this](const Packet& packet) {
      if (packet.payload_length > 0)
        bytes.insert(bytes.end(), packet.payload, packet.payload + packet.payload_length);
      Packet copy = packet;
      copy.payload = nullptr;
      answers.push_back(copy);
    };
  }
  static Packet packet(Operation operation, uint32_t psn, uint32_t length = 0) {
    static const Blob payload = pattern(8192);
    Packet made;
    made.operation = operation;
    made.psn = kPsn + psn;
    made.va = kMemoryAt;
    made.rkey = kKey;
    made.dma_length = length;
    made.payload_length = length;
    made.payload = payload.data();
    made.ack_request = true;
    return made;
  }
  static Packet read(uint32_t psn, uint32_t length) {
    Packet made = packet(Operation::kReadRequest, psn, 0);
    made.dma_length = length;
    return made;
  }
  // Gives it, and tells what is answered: "ack 3", "nak 1 61", "rnr 0 25", "read 2", "atomic 2".
  std::vector<std::string> give(const Packet& packet) {
    answers.clear();
    c.b.arrive(packet);
    c.settle();
    std::vector<std::string> texts;
    for (const Packet& each : answers) {
      const std::string psn =
          std::to_string(static_cast<int32_t>(wire::psn_distance(kPsn, each.psn)));
      if (each.operation == Operation::kAtomicAcknowledge) {
        texts.push_back("atomic " + psn);
      } else if (each.operation != Operation::kAcknowledge) {
        texts.push_back("read " + psn);
      } else if (each.syndrome == wire::kAckWithoutCredits) {
        texts.push_back("ack " + psn);
      } else {
        char syndrome[8];
        std::snprintf(syndrome, sizeof syndrome, "%x", each.syndrome);
        texts.push_back((each.syndrome < 0x40 ? "rnr " : "nak ") + psn + " " + syndrome);
      }
    }
    return texts;
  }
  Connection c;
  std::vector<Packet> answers;
  Blob bytes;
};

TEST_F(Responders, AcknowledgeWhatTheyAreAskedFor) {
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 0, 10)), ElementsAre("ack 0"));
  EXPECT_EQ(answers[0].msn, 1u);
  Packet silent = packet(Operation::kWriteOnly, 1, 10);
  silent.ack_request = false;
  EXPECT_THAT(give(silent), IsEmpty());
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 2, 0)), ElementsAre("ack 2"));
  EXPECT_EQ(answers[0].msn, 3u);
}

TEST_F(Responders, SayOnceThatThereIsAGap) {
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 2, 1)), ElementsAre("nak 0 60"));
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 3, 1)), IsEmpty());
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 5, 1)), IsEmpty());
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 0, 1)), ElementsAre("nak 1 60"))
      << "there is more to fill";
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 1, 1)), ElementsAre("nak 4 60"))
      << "the next gap, and all before it is acknowledged";
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 4, 1)), ElementsAre("ack 5"));
  EXPECT_EQ(c.b.counters.out_of_sequence, 3u);
  EXPECT_EQ(c.b.counters.held, 3u);
}

TEST_F(Responders, DropWhatIsFarAhead) {
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 5'000'000, 1)), ElementsAre("nak 0 60"));
  EXPECT_EQ(c.b.counters.held, 0u);
  for (uint32_t i = 1; i < 3000; ++i) (void)give(packet(Operation::kWriteOnly, i, 1));
  EXPECT_LE(c.b.counters.held, Responder::kMostHeld);
}

TEST_F(Responders, KeepNothingWithoutBuffers) {
  c.b.no_buffers = true;
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 1, 1)), ElementsAre("nak 0 60"));
  EXPECT_EQ(c.b.counters.dropped_no_memory, 1u);
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 0, 1)), ElementsAre("ack 0"));
}

TEST_F(Responders, RefuseOpcodesOutOfOrder) {
  using Sequence = std::vector<Packet>;
  const std::vector<Sequence> all{
      {packet(Operation::kWriteMiddle, 0, 1024)},
      {packet(Operation::kSendLast, 0, 10)},
      {packet(Operation::kSendFirst, 0, 1024), packet(Operation::kWriteMiddle, 1, 1024)},
      {packet(Operation::kSendFirst, 0, 1024), packet(Operation::kSendOnly, 1, 10)},
      {packet(Operation::kSendFirst, 0, 1024), read(1, 10)},
      {packet(Operation::kSendFirst, 0, 1023)},
      {packet(Operation::kSendOnly, 0, 1025)},
      {packet(Operation::kSendFirst, 0, 1024), packet(Operation::kSendLast, 1, 0)},
  };
  for (const Sequence& sequence : all) {
    Other<Responders> one;
    one.c.b.post_receives(1);
    std::vector<std::string> said;
    for (const Packet& each : sequence) said = one.give(each);
    const std::string last = std::to_string(sequence.size() - 1);
    EXPECT_THAT(said, ElementsAre("nak " + last + " 61"));
    EXPECT_TRUE(one.c.b.responder.is_over());
    EXPECT_THAT(one.c.b.received, IsEmpty());
    // A lost NAK is said again, and nothing is executed any more.
    EXPECT_THAT(
        one.give(packet(Operation::kWriteOnly, static_cast<uint32_t>(sequence.size()) - 1, 8)),
        ElementsAre("nak " + last + " 61"));
    EXPECT_EQ(one.c.b.counters.resp_invalid_request, 1u);
    EXPECT_EQ(one.c.b.was_broken, 1) << "the queue pair goes to ERR";
  }
}

TEST_F(Responders, RefuseWritesThatAreNotAsLongAsTheySaid) {
  const auto write = [](Operation operation, uint32_t psn, uint32_t length, uint32_t said) {
    Packet made = packet(operation, psn, length);
    made.dma_length = said;
    return made;
  };
  const std::vector<std::vector<Packet>> all{
      {write(Operation::kWriteOnly, 0, 10, 11)},
      {write(Operation::kWriteOnly, 0, 10, 9)},
      {write(Operation::kWriteFirst, 0, 1024, 1024)},
      {write(Operation::kWriteFirst, 0, 1024, 2000), packet(Operation::kWriteMiddle, 1, 1024)},
      {write(Operation::kWriteFirst, 0, 1024, 2000), packet(Operation::kWriteLast, 1, 900)},
      {write(Operation::kWriteFirst, 0, 1024, 0x80000001)},
  };
  for (const auto& sequence : all) {
    Other<Responders> one;
    std::vector<std::string> said;
    for (const Packet& each : sequence) said = one.give(each);
    EXPECT_THAT(said, ElementsAre("nak " + std::to_string(sequence.size() - 1) + " 61"));
  }
}

TEST_F(Responders, RefuseWrongKeysAndRanges) {
  Packet wrong = packet(Operation::kWriteOnly, 0, 10);
  wrong.rkey = kWrongKey;
  EXPECT_THAT(give(wrong), ElementsAre("nak 0 62"));
  Other<Responders> beyond;
  Packet far = read(0, 1u << 31);
  EXPECT_THAT(beyond.give(far), ElementsAre("nak 0 62"));
  Other<Responders> nothing;
  Packet none = packet(Operation::kWriteOnly, 0, 0);
  none.rkey = kWrongKey;
  EXPECT_THAT(nothing.give(none), ElementsAre("ack 0")) << "the key of nothing is not looked at";
  Other<Responders> misaligned;
  Packet atomic = packet(Operation::kFetchAdd, 0);
  atomic.va += 4;
  EXPECT_THAT(misaligned.give(atomic), ElementsAre("nak 0 61"));
}

TEST_F(Responders, RefuseMoreReadsThanTheyPromised) {
  c.b.slow = 1;  // so that they are not answered
  for (const uint32_t psn : {0u, 1u}) c.b.responder.receive(read(psn, 100));
  EXPECT_FALSE(c.b.responder.is_over());
  c.b.responder.receive(read(2, 100));
  EXPECT_TRUE(c.b.responder.is_over());
  EXPECT_EQ(c.b.was_broken, 1);
}

TEST_F(Responders, AnswerWhatIsBeforeARefusal) {
  c.b.responder.receive(read(0, 3000));
  Packet wrong = packet(Operation::kWriteOnly, 3, 10);
  wrong.rkey = kWrongKey;
  EXPECT_THAT(give(wrong), ElementsAre("read 0", "read 1", "read 2", "nak 3 62"));
}

TEST_F(Responders, LookAtTheKeyOfAReadAgainWhenTheyAnswer) {
  c.b.responder.receive(read(0, 3000));
  c.b.revoked = true;
  c.b.pump();
  c.settle();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].syndrome, wire::kNakRemoteAccess);
}

// The network may bring a repeated request after the requester has had its answer, and has told the
// program, which has ended the key.
TEST_F(Responders, DropARepeatedReadWhoseKeyHasEnded) {
  EXPECT_THAT(give(read(0, 1000)), ElementsAre("read 0"));
  c.b.revoked = true;
  EXPECT_THAT(give(read(0, 1000)), IsEmpty());
  EXPECT_FALSE(c.b.responder.is_over());
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 1, 0)), ElementsAre("ack 1"));
}

TEST_F(Responders, AnswerPartsOfReadsAgain) {
  c.b.memory = pattern(8192, 3);
  EXPECT_THAT(give(read(0, 3000)), ElementsAre("read 0", "read 1", "read 2"));
  bytes.clear();
  Packet part = read(1, 1024);
  part.va += 1024;
  EXPECT_THAT(give(part), ElementsAre("read 1"));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), c.b.memory.begin() + 1024));
  part.dma_length = 1977;
  EXPECT_THAT(give(part), IsEmpty()) << "more than was asked for before";
  part = read(1, 1024);
  EXPECT_THAT(give(part), IsEmpty()) << "other memory";
  part = read(0, 3000);
  part.rkey = kWrongKey;
  EXPECT_THAT(give(part), IsEmpty());
  (void)give(read(3, 8));
  (void)give(read(4, 8));
  EXPECT_THAT(give(read(0, 3000)), IsEmpty()) << "forgotten";
}

// Its number was that of another atomic, all numbers ago.
TEST_F(Responders, AnswerNothingAgainThatIsLongAgo) {
  const auto begin_behind = [this](uint32_t psns) {
    Responder::Resource old;
    old.request.opcode = Opcode::kFetchAdd;
    old.request.rkey = kKey;
    old.request.remote_addr = kMemoryAt;
    old.psn = (kPsn - psns) & verbs::kPsnMask;
    old.count = 1;
    old.original = 77;
    Responder::Record record;
    record.next_psn = kPsn;
    record.resources = 1;
    c.b.responder.restore(record, {&old, 1});
  };
  begin_behind(1u << 24);
  c.b.memory[0] = 5;
  EXPECT_THAT(give(packet(Operation::kFetchAdd, 0)), ElementsAre("atomic 0"));
  EXPECT_EQ(answers[0].original, 5u);
  EXPECT_THAT(give(packet(Operation::kFetchAdd, 0)), ElementsAre("atomic 0"));
  EXPECT_EQ(answers[0].original, 5u);
  EXPECT_EQ(c.b.responder.record().first_resource, 1u);
  // A requester has no more than half of all numbers on their way.
  begin_behind(1u << 23);
  (void)give(packet(Operation::kWriteOnly, 0, 1));
  EXPECT_THAT(c.b.responder.resources(), SizeIs(1));
  (void)give(packet(Operation::kWriteOnly, 1, 1));
  EXPECT_THAT(c.b.responder.resources(), IsEmpty());
}

TEST_F(Responders, SendAnswersInTheOrderOfTheirRequests) {
  c.b.responder.receive(read(0, 2048));
  c.b.responder.receive(packet(Operation::kFetchAdd, 2));
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 3, 10)),
              ElementsAre("read 0", "read 1", "atomic 2", "ack 3"));
}

TEST_F(Responders, AcknowledgeDuplicates) {
  (void)give(packet(Operation::kWriteOnly, 0, 10));
  (void)give(packet(Operation::kWriteOnly, 1, 10));
  c.b.memory[0] = 99;
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 0, 10)), ElementsAre("ack 1"));
  EXPECT_EQ(c.b.memory[0], 99) << "it is not executed again";
  EXPECT_EQ(c.b.counters.duplicate_request, 1u);
}

// A requester may take an ACK with the sequence number of a READ or an atomic for its answer, and
// complete it without its data (rxe does).
TEST_F(Responders, AcknowledgeNoReadOrAtomicWithoutItsData) {
  c.b.responder.receive(packet(Operation::kWriteOnly, 0, 10));
  EXPECT_THAT(give(read(1, 2048)), ElementsAre("read 1", "read 2"));
  c.b.responder.receive(packet(Operation::kWriteOnly, 3, 10));
  EXPECT_THAT(give(packet(Operation::kFetchAdd, 4)), ElementsAre("atomic 4"));
  // The gap was said, and is filled by an atomic.
  c.b.responder.receive(packet(Operation::kFetchAdd, 6));
  EXPECT_THAT(give(packet(Operation::kFetchAdd, 5)), ElementsAre("atomic 5", "atomic 6"));
}

TEST_F(Responders, AcknowledgeDuplicatesUpToTheLastWithoutAnAnswer) {
  (void)give(packet(Operation::kWriteOnly, 0, 10));
  (void)give(read(1, 2048));
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 0, 10)), ElementsAre("ack 0"));
  (void)give(packet(Operation::kFetchAdd, 3));
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 0, 10)), ElementsAre("ack 0"));
  (void)give(packet(Operation::kWriteOnly, 4, 10));
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 0, 10)), ElementsAre("ack 4"));
}

TEST_F(Responders, AcknowledgeNoReadWithoutItsDataAfterATakeover) {
  (void)give(packet(Operation::kWriteOnly, 0, 10));
  (void)give(packet(Operation::kFetchAdd, 1));
  (void)give(read(2, 2048));
  c.b.restart();
  c.settle();
  answers.clear();
  EXPECT_THAT(give(packet(Operation::kWriteOnly, 0, 10)), ElementsAre("ack 0"));
}

TEST_F(Responders, SayThatTheyLackAReceive) {
  EXPECT_THAT(give(packet(Operation::kSendOnly, 0, 10)), ElementsAre("rnr 0 25"));
  EXPECT_THAT(give(packet(Operation::kSendOnly, 1, 10)), IsEmpty());
  EXPECT_THAT(give(packet(Operation::kSendOnly, 0, 10)), ElementsAre("rnr 0 25"));
  answers.clear();
  c.b.post_receives(2);
  c.settle();
  ASSERT_THAT(answers, SizeIs(1)) << "both were kept";
  EXPECT_EQ(answers[0].psn, kPsn + 1);
  EXPECT_THAT(c.b.received, SizeIs(2));
}

TEST_F(Responders, SayOnceThatTheyStillLackAReceive) {
  EXPECT_THAT(give(packet(Operation::kSendOnly, 0, 10)), ElementsAre("rnr 0 25"));
  (void)give(packet(Operation::kSendOnly, 1, 10));
  answers.clear();
  c.b.post_receives(0);  // another queue pair has taken it
  c.settle();
  EXPECT_THAT(answers, IsEmpty()) << "a peer counts what it is told";
  c.b.post_receives(1);
  c.settle();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].psn, kPsn + 1);
  EXPECT_EQ(answers[0].syndrome, 0x25) << "for the next one";
}

TEST_F(Responders, StillSayWhatTheyRefusedWhenMemoryHangs) {
  c.b.slow = 1;
  c.b.responder.receive(read(0, 3000));
  Burst burst;
  EXPECT_FALSE(c.b.responder.next(&burst));
  Packet wrong = packet(Operation::kWriteOnly, 3, 10);
  wrong.rkey = kWrongKey;
  c.b.responder.receive(wrong);
  EXPECT_FALSE(c.b.responder.next(&burst)) << "an answer is before it";
  c.b.responder.forget_pending();
  ASSERT_TRUE(c.b.responder.next(&burst));
  EXPECT_EQ(burst.packets[0].syndrome, wire::kNakRemoteAccess);
}

TEST_F(Responders, EndAMessageThatIsTooLong) {
  c.b.post_receives(1, 1500);
  EXPECT_THAT(give(packet(Operation::kSendFirst, 0, 1024)), ElementsAre("ack 0"));
  EXPECT_THAT(give(packet(Operation::kSendMiddle, 1, 1024)), ElementsAre("nak 1 61"));
  EXPECT_EQ(c.b.forgotten, 1);
}

// The ACK of the first packet and the NAK were lost: the requester repeats its oldest packet only.
TEST_F(Responders, SayWhatTheyRefusedToAnyRepetition) {
  c.b.post_receives(1, 1500);
  (void)give(packet(Operation::kSendFirst, 0, 1024));
  (void)give(packet(Operation::kSendMiddle, 1, 1024));
  for (int i = 0; i < 16; ++i)
    EXPECT_THAT(give(packet(Operation::kSendFirst, 0, 1024)), ElementsAre("nak 1 61"));
  EXPECT_THAT(give(packet(Operation::kSendFirst, 0, 1024)), IsEmpty()) << "a peer that never ends";
  EXPECT_EQ(c.b.was_broken, 0) << "the target has refused it";
}

// --- what a requester may get ---

struct Requesters : testing::Test {
  Requesters() {
    c.to_b.arrives = [](const Packet&) {};  // nobody is there
    c.a.post(write_to(0), pattern(2048));
    c.a.post(read_from(0), Blob(2048));
    c.a.post(add_to(0, 1), Blob(8));
  }
  static Packet answer(Operation operation, uint32_t index, uint8_t syndrome = 0x1f) {
    Packet made;
    made.operation = operation;
    made.psn = wire::psn_add(0xfffff0, index);
    made.syndrome = syndrome;
    return made;
  }
  void give(const Packet& packet) { c.a.requester.receive(packet, c.simulation.now); }
  Connection c;
};

TEST_F(Requesters, IgnoreAnswersToWhatTheyDidNotAsk) {
  give(answer(Operation::kAcknowledge, 5));
  give(answer(Operation::kAcknowledge, 1'000'000));
  give(answer(Operation::kAcknowledge, 0xffffff));
  give(answer(Operation::kAcknowledge, 9, wire::kNakRemoteAccess));
  give(answer(Operation::kAtomicAcknowledge, 2));
  give(answer(Operation::kReadResponseOnly, 0));
  give(answer(Operation::kAcknowledge, 1, 0xff));
  EXPECT_EQ(c.a.requester.unanswered(), 5u);
  EXPECT_EQ(c.a.counters.bad_response, 5u);
  EXPECT_THAT(c.a.completions, IsEmpty());
}

TEST_F(Requesters, IgnoreAnswersOfOtherLengths) {
  static const Blob payload(4096);
  for (const uint32_t length : {0u, 1023u, 1025u, 4096u}) {
    Packet wrong = answer(Operation::kReadResponseFirst, 2);
    wrong.payload = payload.data();
    wrong.payload_length = length;
    give(wrong);
  }
  EXPECT_EQ(c.a.counters.bad_response, 4u);
}

TEST_F(Requesters, TakeAnAckBehindAReadForALoss) {
  give(answer(Operation::kAtomicAcknowledge, 4));
  EXPECT_THAT(c.a.completions, SizeIs(1)) << "the WRITE was executed";
  EXPECT_EQ(c.a.counters.implied_nak_seq_err, 1u);
  Burst burst;
  ASSERT_TRUE(c.a.requester.next(&burst, c.simulation.now));
  EXPECT_EQ(burst.packets[0].operation, Operation::kReadRequest);
  EXPECT_EQ(burst.packets[0].dma_length, 2048u);
}

TEST_F(Requesters, FailAsTheirPeerSays) {
  for (const auto& [syndrome, status] :
       {std::pair{wire::kNakInvalidRequest, verbs::WcStatus::kRemoteInvalidRequest},
        std::pair{wire::kNakRemoteAccess, verbs::WcStatus::kRemoteAccessError},
        std::pair{wire::kNakOperational, verbs::WcStatus::kRemoteOperationError}}) {
    Other<Requesters> one;
    one.give(answer(Operation::kAcknowledge, 1, syndrome));
    EXPECT_THAT(one.c.a.completions, ElementsAre(Completion{0, status, 0}));
    one.give(answer(Operation::kAcknowledge, 1));
    EXPECT_THAT(one.c.a.completions, SizeIs(1)) << "nothing comes after that";
  }
}

TEST_F(Requesters, FailWithTheirOwnMemory) {
  c.a.fail_scatter = true;
  give(answer(Operation::kAcknowledge, 1));
  static const Blob payload(1024);
  Packet first = answer(Operation::kReadResponseFirst, 2);
  first.payload = payload.data();
  first.payload_length = 1024;
  give(first);
  EXPECT_THAT(c.a.completions,
              ElementsAre(Completion{0, verbs::WcStatus::kSuccess, 0},
                          Completion{1, verbs::WcStatus::kLocalProtectionError, 0}));
}

TEST(RequesterMemory, FailsInOrder) {
  Connection c;
  c.a.fail_gather_at = 1;
  c.a.post(write_to(0), pattern(100));
  c.a.post(write_to(0), pattern(100));
  c.settle();
  EXPECT_THAT(c.a.completions,
              ElementsAre(Completion{0, verbs::WcStatus::kSuccess, 0},
                          Completion{1, verbs::WcStatus::kLocalProtectionError, 0}));
}

TEST(PsnSets, HoldRangesThatWrap) {
  PsnSet set;
  set.insert(0xfffffe, 3);
  EXPECT_EQ(set.size(), 5u);
  EXPECT_TRUE(set.contains(0xffffff));
  EXPECT_TRUE(set.contains(2));
  EXPECT_FALSE(set.contains(3));
  EXPECT_EQ(set.first(0xffff00, 10), 0xfffffeu);
  set.erase(0xfffffe, 1);
  EXPECT_EQ(set.first(0xffff00, 10), 1u);
  EXPECT_EQ(set.first(3, 500), 500u);
  set.insert(400);
  EXPECT_EQ(set.first(3, 500), 400u);
  EXPECT_EQ(set.first(3, 300), 300u);
  set.clear();
  EXPECT_TRUE(set.empty());
}

TEST(RoundTrips, AreMeasuredOnceAtATime) {
  RoundTrip trip;
  const base::TimePoint begin{std::chrono::seconds(1)};
  EXPECT_EQ(trip.silence(), RoundTrip::kUnknown);
  trip.sent(5, begin);
  trip.sent(6, begin + std::chrono::milliseconds(1));
  trip.answered(5, begin + std::chrono::milliseconds(2));
  EXPECT_EQ(trip.smoothed(), base::Duration(0)) << "it is not answered";
  trip.answered(6, begin + std::chrono::milliseconds(10));
  EXPECT_EQ(trip.smoothed(), std::chrono::milliseconds(10));
  EXPECT_EQ(trip.silence(), std::chrono::milliseconds(40));
  trip.sent(7, begin);
  trip.disturbed();
  trip.answered(9, begin + std::chrono::seconds(1));
  EXPECT_EQ(trip.smoothed(), std::chrono::milliseconds(10));
}

TEST(RoundTrips, LastLongerInDoubt) {
  RoundTrip trip;
  const base::TimePoint begin{std::chrono::seconds(1)};
  trip.doubt();
  trip.doubt();
  EXPECT_EQ(trip.silence(), 4 * RoundTrip::kUnknown);
  for (int i = 0; i < 100; ++i) trip.doubt();
  EXPECT_EQ(trip.silence(), RoundTrip::kMost);
  trip.sent(5, begin);
  trip.answered(6, begin + std::chrono::milliseconds(10));
  EXPECT_EQ(trip.silence(), std::chrono::milliseconds(40));
}

}  // namespace
}  // namespace vrdma::transport::net
