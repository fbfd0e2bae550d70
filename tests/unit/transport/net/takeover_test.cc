// Senders that go on from the notes of others.
#include <map>

#include "tests/unit/transport/net/net_rig.h"

namespace vrdma::transport::net {
namespace {

using test::wqe_of;
using testing::Each;
using testing::SizeIs;
using verbs::WcStatus;

class MemoryNotes final : public rdma::Notes {
 public:
  void put(const rdma::Qp& qp, uint32_t number, std::span<const uint8_t> bytes) override {
    StepNote step;
    if (number == static_cast<uint32_t>(Note::kStep) && decode(bytes, &step)) {
      if (step.kind == StepNote::Kind::kStore) last_store = step;
      begins_ = step.kind != StepNote::Kind::kNone;
    }
    later_[{qp.handle, number}].assign(bytes.begin(), bytes.end());
  }
  void commit() override {
    for (auto& [name, bytes] : std::exchange(later_, {})) notes_[name] = std::move(bytes);
    if (std::exchange(begins_, false)) at_step_ = notes_;
    ++commits;
  }
  // To when the last step was noted, and not begun.
  void go_back() { notes_ = at_step_; }
  [[nodiscard]] std::vector<uint8_t> find(const rdma::Qp& qp, uint32_t number) const override {
    const auto it = notes_.find({qp.handle, number});
    return it != notes_.end() ? it->second : std::vector<uint8_t>();
  }
  template <class T>
  T get(const rdma::Qp& qp, Note note) const {
    T value{};
    EXPECT_TRUE(decode(find(qp, static_cast<uint32_t>(note)), &value));
    return value;
  }
  template <class T>
  void set(const rdma::Qp& qp, Note note, const T& value) {
    put(qp, static_cast<uint32_t>(note), {reinterpret_cast<const uint8_t*>(&value), sizeof value});
    commit();
  }
  size_t commits = 0;
  std::optional<StepNote> last_store;

 private:
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint8_t>> later_, notes_, at_step_;
  bool begins_ = false;
};

struct Successor : Net {
  MemoryNotes a_notes, b_notes;
  Successor() {
    a.context.notes = &a_notes;
    b.context.notes = &b_notes;
  }
  MemoryNotes& notes(const rdma::Qp* qp) { return qp == qp_a ? a_notes : b_notes; }
  // The worker of `qp` has died, with its threads, and the next one has it.
  void replace(rdma::Qp* qp) {
    ++qp->context->epoch;
    qp->sender.reset();
    bool ended = false;
    qp->context->process->reach()->barrier([&ended] { ended = true; });
    ASSERT_TRUE(wait_for([&ended] { return ended; }));
    qp->inbox_head = ipc::head_of(*qp->inbox, qp->inbox_depth);
    qp->sender = std::make_unique<NetSender>(
        *qp, qp == qp_a ? a_lane : b_lane, std::make_unique<MemoryPort>(*this, qp == qp_a),
        qp == qp_a ? a_counters : b_counters, NetSender::Options{});
    qp->sender->adopted();
    qp->sender->kick();
  }
  void pass() {
    world.loop->post([this] { world.loop->stop(); });
    world.loop->run();
  }
  // Until `count` requests of a are complete; now and then a worker is replaced.
  bool run(uint32_t count) {
    const base::TimePoint end = base::Clock::steady().now() + std::chrono::seconds(20);
    while (qp_a->block->sq_tail < count && base::Clock::steady().now() < end) {
      const auto timer = world.loop->after(std::chrono::microseconds(random() % 1500),
                                           [this] { world.loop->stop(); });
      world.loop->run();
      if (random() % 4 == 0) replace(random() % 2 == 0 ? qp_a : qp_b);
    }
    return qp_a->block->sq_tail == count;
  }
};

TEST_F(Successor, GoesOnWithAllKindsOfRequests) {
  connect();
  loss = 0.02;
  const uint64_t reached = (at(b_own) + 7) / 8 * 8;
  std::memset(b.memory(kBase + 8), 0, 8);
  std::memset(b_own.data() + (reached - at(b_own)), 0, 8);
  uint32_t done = 0;
  constexpr uint32_t kLength = 20'000;
  for (uint32_t round = 0; round < 60; ++round) {
    const bool in_place = round % 2 == 0;
    std::vector<uint8_t> bytes = pattern(kLength + round);
    std::memcpy(a_own.data(), bytes.data(), kLength);
    std::memcpy(a.memory(kBase + 200'000), bytes.data(), kLength);
    const verbs::Sge from = in_place ? verbs::Sge{kBase + 200'000, kLength, a_key}
                                     : verbs::Sge{at(a_own), kLength, a_own_key};
    const verbs::Sge to = in_place ? verbs::Sge{kBase + 300'000, kLength, b_key}
                                   : verbs::Sge{at(b_own) + 50'000, kLength, b_own_key};
    uint8_t* const received = in_place ? b.memory(kBase + 300'000) : b_own.data() + 50'000;
    const uint64_t written = in_place ? kBase + 400'000 : at(b_own) + 20'000;
    uint8_t* const read = in_place ? a.memory(kBase + 100'000) : a_own.data() + 30'000;
    const uint32_t key = in_place ? b_key : b_own_key;
    std::memset(received, 0, kLength);
    std::memset(read, 0, kLength);
    ASSERT_TRUE(b.post_receive(*qp_b, round, {to}));
    ipc::SendWqe add = remote(Opcode::kFetchAdd, in_place ? kBase + 8 : reached, key);
    add.rdma.compare_add = 1;
    ASSERT_TRUE(a.post_send(*qp_a, add, {{kBase, 8, a_key}}));
    ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {from}));
    ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaWrite, written, key), {from}));
    const verbs::Sge back = in_place ? verbs::Sge{kBase + 100'000, kLength, a_key}
                                     : verbs::Sge{at(a_own) + 30'000, kLength, a_own_key};
    ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaRead, written, key), {back}));
    done += 4;
    ASSERT_TRUE(run(done)) << "round " << round;
    uint64_t before = 0;
    std::memcpy(&before, a.memory(), sizeof before);
    EXPECT_EQ(before, round / 2) << "an addition was done twice, or not";
    EXPECT_EQ(std::memcmp(received, bytes.data(), kLength), 0);
    EXPECT_EQ(std::memcmp(read, bytes.data(), kLength), 0);
    EXPECT_EQ(a.results(*qp_a).back().byte_len, kLength);
  }
  EXPECT_THAT(statuses(*qp_a, qp_a->sq_depth), Each(WcStatus::kSuccess));
  EXPECT_EQ(qp_b->inbox_head, 60u);
  EXPECT_GT(a_notes.commits, 200u);
}

TEST_F(Successor, PublishesACompletionThatWasNoted) {
  connect();
  for (uint64_t i = 0; i < 3; ++i)
    ASSERT_TRUE(b.post_receive(*qp_b, i, {{kBase + i * 100, 100, b_key}}));
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 10, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  auto step = b_notes.get<StepNote>(*qp_b, Note::kStep);
  EXPECT_EQ(step.kind, StepNote::Kind::kReceive);
  EXPECT_EQ(step.entry, 0u);
  replace(qp_b);
  EXPECT_THAT(b.received(*qp_b), SizeIs(1)) << "it is there";
  step.entry = 1;  // as if the worker had died before it published the next one
  step.completion.slot = 1;
  b_notes.set(*qp_b, Note::kStep, step);
  replace(qp_b);
  ASSERT_THAT(b.received(*qp_b), SizeIs(2));
  EXPECT_EQ(b.received(*qp_b)[1].byte_len, 10u);
}

TEST_F(Successor, StoresAWordThatWasNotedOnce) {
  connect();
  std::memset(b.memory(kBase), 0, 16);
  ipc::SendWqe add = remote(Opcode::kFetchAdd, kBase + 8, b_key);
  add.rdma.compare_add = 5;
  ASSERT_TRUE(a.post_send(*qp_a, add, {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  StepNote step;
  step.kind = StepNote::Kind::kWord;
  step.length = 8;
  step.was[0] = 5;
  step.becomes[0] = 10;
  b_notes.set(*qp_b, Note::kStep, step);
  replace(qp_b);
  EXPECT_EQ(*b.memory(kBase + 8), 10) << "it was not stored";
  *b.memory(kBase + 8) = 20;  // the program's
  b_notes.set(*qp_b, Note::kStep, step);
  replace(qp_b);
  EXPECT_EQ(*b.memory(kBase + 8), 20) << "it was stored, and the program has changed it since";
  // The end of a WRITE of 12 bytes.
  ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, b_key), {{kBase, 12, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 2), Each(WcStatus::kSuccess));
  EXPECT_EQ(b_notes.get<StepNote>(*qp_b, Note::kStep).kind, StepNote::Kind::kNone) << "it is over";
  step.length = 4;
  step.was = {};
  std::memset(b.memory(kBase), 0, 16);
  b_notes.set(*qp_b, Note::kStep, step);
  replace(qp_b);
  EXPECT_EQ(*b.memory(kBase), 0);
  EXPECT_EQ(*b.memory(kBase + 8), 10);
}

// A WRITE to memory that is reached, and the worker dies before it notes that a thread has stored
// it. The program may have seen its end, and have written there itself.
TEST_F(Successor, StoresWhatAThreadHasNotStored) {
  connect();
  constexpr uint32_t kLength = 100;
  const uint64_t addr = (at(b_own) + 7) / 8 * 8;
  uint8_t* const target = b_own.data() + (addr - at(b_own));
  uint8_t* const last = target + kLength - 1;
  std::memset(a.memory(), 7, kLength);
  uint32_t sent = 0;
  const auto write = [&] {
    ++sent;
    EXPECT_TRUE(
        a.post_send(*qp_a, remote(Opcode::kRdmaWrite, addr, b_own_key), {{kBase, kLength, a_key}}));
  };
  const auto complete = [&] {
    EXPECT_THAT(statuses(*qp_a, sent), testing::AllOf(SizeIs(sent), Each(WcStatus::kSuccess)));
  };
  write();
  complete();
  // As if the worker had died at `mark`, where `stood` was and `is` is now the last byte.
  const auto was_interrupted = [&](ipc::Mark mark, uint8_t stood, uint8_t is) {
    const auto before = b_notes.get<ReceivedNote>(*qp_b, Note::kReceived);
    b_is_mute = true;
    b_notes.last_store.reset();
    std::memset(target, 0, kLength);
    write();
    EXPECT_TRUE(wait_for([&] { return *last == 7; }));
    settle();
    ASSERT_TRUE(b_notes.last_store);
    const StepNote step = *b_notes.last_store;
    EXPECT_EQ(step.then, b_notes.get<ReceivedNote>(*qp_b, Note::kReceived).record);
    EXPECT_EQ(qp_b->block->storing, ipc::mark_word(ipc::Mark::kDone, step.then.next_psn));
    EXPECT_EQ(qp_b->block->stood, 0u);
    b_notes.set(*qp_b, Note::kReceived, before);
    b_notes.set(*qp_b, Note::kStep, step);
    qp_b->block->storing = ipc::mark_word(mark, step.then.next_psn);
    uint64_t word = 0;
    std::memset(&word, 7, step.length);
    reinterpret_cast<uint8_t*>(&word)[step.length - 1] = stood;
    qp_b->block->stood = word;
    *target = 0;
    *last = is;
    b_is_mute = false;
    replace(qp_b);
    complete();
  };
  was_interrupted(ipc::Mark::kDone, 1, 2);
  EXPECT_EQ(*target, 0) << "it was stored";
  EXPECT_EQ(*last, 2);
  was_interrupted(ipc::Mark::kBegun, 1, 7);
  EXPECT_EQ(*target, 0) << "it was stored";
  was_interrupted(ipc::Mark::kBegun, 1, 2);
  EXPECT_EQ(*target, 0) << "it was stored, and the program has changed it";
  EXPECT_EQ(*last, 2);
  was_interrupted(ipc::Mark::kBegun, 1, 1);
  EXPECT_EQ(*target, 7) << "it was not stored";
  EXPECT_EQ(*last, 7);
  was_interrupted(ipc::Mark::kNone, 1, 2);
  EXPECT_EQ(*target, 7) << "it was not begun";
  EXPECT_EQ(*last, 7);
}

// An atomic on memory that is reached, and the worker dies before it notes that a thread has
// changed the operand. Others, whose jobs the thread had before and after this one, may have
// changed it too.
TEST_F(Successor, ChangesAReachedWordOnce) {
  connect();
  qp_a->attributes.timeout = 12;
  qp_a->attributes.retry_cnt = 7;
  qp_a->sender->attributes_changed();
  const uint64_t addr = (at(b_own) + 7) / 8 * 8;
  auto* const word = reinterpret_cast<uint64_t*>(b_own.data() + (addr - at(b_own)));
  uint32_t sent = 0;
  // As if the worker had died at `mark`, where `stood` was and `is` is now. Returns the answer.
  const auto was_interrupted = [&](ipc::Mark mark, uint64_t stood, uint64_t is) {
    b_is_mute = true;
    *word = 100;
    ipc::SendWqe add = remote(Opcode::kFetchAdd, addr, b_own_key);
    add.rdma.compare_add = 5;
    EXPECT_TRUE(a.post_send(*qp_a, add, {{kBase, 8, a_key}}));
    EXPECT_TRUE(wait_for([&] { return *word == 105; }));
    settle();
    b_notes.go_back();
    const uint32_t psn = sender(qp_b).responder().record().next_psn;
    EXPECT_EQ(qp_b->block->storing, ipc::mark_word(ipc::Mark::kDone, psn));
    EXPECT_EQ(qp_b->block->stood, 100u);
    qp_b->block->storing = ipc::mark_word(mark, psn);
    qp_b->block->stood = stood;
    *word = is;
    b_is_mute = false;
    replace(qp_b);
    ++sent;
    EXPECT_TRUE(wait_for([&] { return a.results(*qp_a).size() >= sent; }));
    uint64_t answer = 0;
    std::memcpy(&answer, a.memory(), sizeof answer);
    return answer;
  };
  EXPECT_EQ(was_interrupted(ipc::Mark::kNone, 100, 40), 40u) << "another has this answer";
  EXPECT_EQ(*word, 45u) << "it was not begun";
  EXPECT_EQ(was_interrupted(ipc::Mark::kDone, 40, 50), 40u);
  EXPECT_EQ(*word, 50u) << "it was changed, and again by others";
  EXPECT_EQ(was_interrupted(ipc::Mark::kBegun, 40, 40), 40u);
  EXPECT_EQ(*word, 45u) << "it was not changed";
  EXPECT_EQ(was_interrupted(ipc::Mark::kBegun, 40, 45), 40u);
  EXPECT_EQ(*word, 45u) << "it was changed";
  EXPECT_THAT(statuses(*qp_a, sent), Each(WcStatus::kSuccess));
  EXPECT_EQ(world.fabric.counters.requests_in_doubt, 0u);
  (void)was_interrupted(ipc::Mark::kBegun, 40, 60);
  EXPECT_EQ(*word, 60u);
  EXPECT_EQ(statuses(*qp_a, sent).back(), WcStatus::kRetryExceeded) << "nobody knows";
  EXPECT_EQ(world.fabric.counters.requests_in_doubt, 1u);
}

TEST_F(Successor, CompletesARequestWhoseAnswerWasNoted) {
  connect();
  ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, b_key), {{kBase, 12, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  // A READ that nobody sends, and of which the notes say that its answer is in memory.
  qp_a->sender.reset();
  ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaRead, kBase, b_key), {{kBase, 7, a_key}}));
  auto sent = a_notes.get<SentNote>(*qp_a, Note::kSent);
  EXPECT_EQ(sent.oldest, 1u);
  sent.oldest = 2;
  for (uint32_t* psn : {&sent.record.request_psn, &sent.record.oldest_psn, &sent.record.next_psn})
    *psn = wire::psn_add(*psn, 1);
  a_notes.set(*qp_a, Note::kSent, sent);
  const uint64_t before = packets;
  replace(qp_a);
  ASSERT_THAT(a.results(*qp_a), SizeIs(2));
  EXPECT_EQ(a.results(*qp_a)[1].byte_len, 7u);
  settle();
  EXPECT_EQ(packets, before);
}

TEST_F(Successor, SurvivesNotesThatAreDamaged) {
  connect();
  std::memset(b.memory(kBase), 0, 16);
  ipc::SendWqe add = remote(Opcode::kFetchAdd, kBase + 8, b_key);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(a.post_send(*qp_a, add, {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 4), Each(WcStatus::kSuccess));
  for (int i = 0; i < 2000; ++i) {
    rdma::Qp* const qp = i % 2 == 0 ? qp_a : qp_b;
    const auto number = static_cast<uint32_t>(random() % 8);
    std::vector<uint8_t> bytes = notes(qp).find(*qp, number);
    if (bytes.empty()) continue;
    bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    notes(qp).put(*qp, number, bytes);
    notes(qp).commit();
    replace(qp);
    pass();
  }
}

}  // namespace
}  // namespace vrdma::transport::net
