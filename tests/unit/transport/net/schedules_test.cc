// Random requests in both directions over random bad wires, checked against a model that executes
// the same requests one after the other.
#include "tests/unit/transport/net/simulation.h"

namespace vrdma::transport::net {
namespace {

using verbs::Opcode;
using verbs::WcStatus;

// Written by WRITEs; read by READs, and never written; operands of atomics.
constexpr uint64_t kWritten = 0, kReadOnly = 256 << 10, kOperands = 512 << 10;
constexpr uint64_t kPart = 256 << 10;

// What a responder's memory and receives must be, and what each request must bring.
struct Model {
  Blob memory;
  std::vector<Received> received;
  std::vector<Blob> answers;  // by number; of others, empty

  void execute(const Request& request, const Blob& bytes) {
    const uint64_t at = request.remote_addr - kMemoryAt;
    Blob& answer = answers.emplace_back();
    if (verbs::is_write(request.opcode))
      std::copy(bytes.begin(), bytes.end(), memory.begin() + static_cast<ptrdiff_t>(at));
    if (verbs::is_send(request.opcode))
      received.push_back({bytes, request.opcode, request.imm, request.solicited});
    if (request.opcode == Opcode::kRdmaWriteWithImm)
      received.push_back({{}, request.opcode, request.imm, request.solicited});
    if (request.opcode == Opcode::kRdmaRead)
      answer.assign(memory.begin() + static_cast<ptrdiff_t>(at),
                    memory.begin() + static_cast<ptrdiff_t>(at + bytes.size()));
    if (!verbs::is_atomic(request.opcode)) return;
    answer.assign(memory.begin() + static_cast<ptrdiff_t>(at),
                  memory.begin() + static_cast<ptrdiff_t>(at + 8));
    uint64_t value = 0;
    std::memcpy(&value, answer.data(), sizeof value);
    value = request.opcode == Opcode::kFetchAdd ? value + request.compare_add
            : value == request.compare_add      ? request.swap
                                                : value;
    std::memcpy(&memory[at], &value, sizeof value);
  }
};

struct Schedule {
  // `kills`: how often one of the ends is killed, and goes on.
  explicit Schedule(uint64_t seed, int kills = 0)
      : random(seed), kills_left(kills), c(attributes(), attributes(), seed) {
    for (Way* way : {&c.to_a, &c.to_b}) {
      Conditions& bad = way->conditions;
      const auto some = [&](double most) { return below(2) == 0 ? 0 : most * below(100) / 100; };
      bad.loss = some(0.08);
      bad.twice = some(0.1);
      bad.late = some(0.2);
      bad.damage = some(0.03);
    }
    for (End* end : {&c.a, &c.b}) {
      end->memory = pattern(1u << 20, below(100));
      end->slow = below(3) == 0 ? 0.3 : 0;
      end->no_buffers = below(8) == 0;
    }
    a_model.memory = c.b.memory;
    b_model.memory = c.a.memory;
  }
  uint32_t below(uint32_t end) { return static_cast<uint32_t>(random() % end); }

  Attributes attributes() {
    Attributes made = default_attributes();
    made.mtu = first_mtu != 0 ? first_mtu : (first_mtu = 256u << below(5));
    made.sq_psn = made.rq_psn = 0xffff00;
    made.window = 1 + below(kSpan / 2);
    made.keeps_early = below(3) != 0;
    made.max_rd_atomic = made.max_dest_rd_atomic =
        first_reads != 0 ? first_reads : (first_reads = static_cast<uint8_t>(1 + below(8)));
    made.rnr_retry = 7;
    made.timeout = 18;
    made.min_rnr_timer = static_cast<uint8_t>(1 + below(15));
    return made;
  }
  void post(End& end, Model& model) {
    Request request;
    request.rkey = kKey;
    request.imm = static_cast<uint32_t>(random());
    request.solicited = below(2) == 0;
    request.fence = below(6) == 0;
    const uint32_t length = below(3) == 0 ? below(50'000) : below(3000);
    const uint64_t offset = below(static_cast<uint32_t>(kPart - 50'000));
    Blob bytes(length);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    constexpr Opcode kAll[] = {
        Opcode::kSend,     Opcode::kSendWithImm, Opcode::kRdmaWrite,   Opcode::kRdmaWriteWithImm,
        Opcode::kRdmaRead, Opcode::kFetchAdd,    Opcode::kCompareSwap, Opcode::kSendWithInvalidate};
    request.opcode = kAll[below(8)];
    request.remote_addr =
        kMemoryAt + offset + (request.opcode == Opcode::kRdmaRead ? kReadOnly : kWritten);
    if (request.opcode == Opcode::kSend || request.opcode == Opcode::kRdmaWrite) request.imm = 0;
    if (!verbs::consumes_receive(request.opcode)) request.solicited = false;
    if (verbs::is_atomic(request.opcode)) {
      bytes.assign(8, 0);
      request.remote_addr = kMemoryAt + kOperands + below(4) * 8;
      request.compare_add = below(4);
      request.swap = below(4);
    }
    model.execute(request, bytes);
    end.post(request, std::move(bytes));
  }
  void run() {
    constexpr uint32_t kRequests = 40;
    size_t a_receives = 0, b_receives = 0;
    for (uint32_t i = 0; i < kRequests; ++i) {
      surviving([&] { return post(c.a, a_model), false; });
      if (below(2) == 0) surviving([&] { return post(c.b, b_model), false; });
      for (uint32_t steps = below(200); steps > 0 && step(); --steps) {
      }
      // Receives come sometimes too late.
      if (below(3) == 0) give_receives(&a_receives, &b_receives);
    }
    give_receives(&a_receives, &b_receives);
    while (step()) {
    }
    check(c.a, a_model, c.b);
    check(c.b, b_model, c.a);
  }
  void give_receives(size_t* a_receives, size_t* b_receives) {
    surviving([&] { return c.b.post_receives(a_model.received.size() - *a_receives), false; });
    surviving([&] { return c.a.post_receives(b_model.received.size() - *b_receives), false; });
    *a_receives = a_model.received.size();
    *b_receives = b_model.received.size();
  }
  bool step() {
    return surviving([this] { return c.simulation.step(); });
  }
  // An end that is killed meanwhile goes on, and may be killed while it begins to.
  template <class F>
  bool surviving(F what) {
    if (kills_left > 0 && c.a.kill_after < 0 && c.b.kill_after < 0)
      (below(2) == 0 ? c.a : c.b).kill_after = static_cast<int>(below(below(4) == 0 ? 8 : 400));
    End* dead = nullptr;
    try {
      return what();
    } catch (const End::Killed& killed) {
      dead = killed.end;
    }
    while (dead != nullptr) {
      ++killed_ends;
      if (--kills_left > 0 && below(2) == 0) dead->kill_after = static_cast<int>(below(8));
      try {
        std::exchange(dead, nullptr)->restart();
      } catch (const End::Killed& killed) {
        dead = killed.end;
      }
    }
    return true;
  }
  static void check(const End& requester, const Model& model, const End& responder) {
    ASSERT_EQ(requester.completions.size(), model.answers.size());
    for (size_t i = 0; i < model.answers.size(); ++i) {
      EXPECT_EQ(requester.completions[i].number, i);
      EXPECT_EQ(requester.completions[i].status, WcStatus::kSuccess) << i;
      if (model.answers[i].empty()) continue;
      EXPECT_EQ(requester.posted[i].bytes, model.answers[i]) << i;
    }
    ASSERT_EQ(responder.received.size(), model.received.size());
    for (size_t i = 0; i < model.received.size(); ++i) {
      const Received &is = responder.received[i], &must = model.received[i];
      EXPECT_TRUE(is.bytes == must.bytes && is.opcode == must.opcode && is.imm == must.imm &&
                  is.solicited == must.solicited)
          << "message " << i;
    }
    EXPECT_EQ(responder.memory, model.memory);
  }

  std::mt19937_64 random;
  int kills_left = 0, killed_ends = 0;
  uint32_t first_mtu = 0;
  uint8_t first_reads = 0;
  Connection c;
  Model a_model, b_model;  // of what a's requests, and b's, must do
};

class Schedules : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Schedules, testing::Range<uint64_t>(0, 100));

TEST_P(Schedules, DoWhatTheModelDoes) { Schedule(GetParam()).run(); }

class Kills : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Kills, testing::Range<uint64_t>(0, 40));

TEST_P(Kills, ChangeNothing) {
  Schedule schedule(GetParam(), 20);
  schedule.run();
  EXPECT_GE(schedule.killed_ends, 3);
}

}  // namespace
}  // namespace vrdma::transport::net
