// Relays of core/rdma/reach.h: between two reaches, of two vdevices.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>

#include "core/rdma/reach.h"
#include "tests/unit/core/rdma/world.h"

namespace vrdma::rdma {
namespace {

using test::run_for;
using test::run_until;

struct Relays : testing::Test {
  using End = Reach::RelayEnd;
  using Ended = std::pair<uint64_t, End>;
  // A process with a vdevice.
  struct Side {
    std::shared_ptr<std::mutex> changes = std::make_shared<std::mutex>();
    std::shared_ptr<ReachThreads> threads = std::make_shared<ReachThreads>(nullptr, 2);
    std::unique_ptr<Reach> reach;
    std::vector<uint8_t> memory = std::vector<uint8_t>(1'000'000);
    std::unique_lock<std::mutex> page;  // as long as this is locked, a change hangs
    alignas(8) uint64_t word = 0;

    explicit Side(base::EventLoop& loop) : reach(make(loop)) {}
    std::unique_ptr<Reach> make(base::EventLoop& loop) const {
      MemoryFiles files{base::Fd(::open("/proc/self/mem", O_RDWR | O_CLOEXEC)),
                        base::Fd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)), true};
      return std::make_unique<Reach>(loop, Reach::Memory{std::move(files), changes}, threads);
    }
    uint64_t at(size_t offset) const { return reinterpret_cast<uint64_t>(memory.data() + offset); }
    // What comes next to this process waits.
    void hang() {
      page = std::unique_lock(*changes);
      Reach::Job job;
      job.parts.push_back({reinterpret_cast<uint64_t>(&word), 8, 0});
      job.buffer = std::make_shared<std::vector<uint8_t>>(8);
      job.change = [](uint64_t old) { return old + 1; };
      job.done = [](bool) {};
      reach->submit(std::move(job));
    }
  };

  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  Side from{*loop}, to{*loop};
  std::optional<std::pair<uint64_t, End>> ended;
  std::shared_ptr<int> arrival = std::make_shared<int>(0);
  std::weak_ptr<int> arriving = arrival;

  // No thread is at the memory any more.
  void TearDown() override {
    for (Side* side : {&from, &to}) {
      if (side->page.owns_lock()) side->page.unlock();
      if (side->reach == nullptr) continue;
      bool over = false;
      side->reach->barrier([&] { over = true; });
      EXPECT_TRUE(run_until(*loop, [&] { return over; }));
    }
  }
  Reach::Relay relay(std::vector<Reach::Part> reads, std::vector<Reach::Part> writes,
                     size_t buffer) {
    Reach::Relay relay;
    relay.from = std::move(reads);
    relay.to = std::move(writes);
    for (const auto& part : relay.from) relay.length += part.length;
    relay.buffer = std::make_shared<std::vector<uint8_t>>(buffer);
    relay.arrival = std::move(arrival);
    relay.done = [this](uint64_t moved, End how) { ended = {moved, how}; };
    return relay;
  }
  Reach::Relay of_all(size_t buffer = 64'000) {
    return relay({{from.at(0), from.memory.size(), 0}}, {{to.at(0), to.memory.size(), 0}}, buffer);
  }
  void fill() {
    for (size_t i = 0; i < from.memory.size(); ++i)
      from.memory[i] = static_cast<uint8_t>(i * 7 + i / 253 + 1);
  }
  bool wait_for_end() {
    return run_until(*loop, [&] { return ended.has_value(); });
  }
  bool is_untouched() const {
    return std::all_of(to.memory.begin(), to.memory.end(), [](uint8_t byte) { return byte == 0; });
  }
};

TEST_F(Relays, MoveAllInOneTurn) {
  fill();
  ASSERT_NE(from.reach->relay(*to.reach, of_all()), nullptr);
  ASSERT_TRUE(wait_for_end());
  EXPECT_EQ(*ended, Ended(1'000'000, End::kDone));
  EXPECT_EQ(from.memory, to.memory);
  EXPECT_EQ(from.threads->counters().turns, 1u);
  EXPECT_EQ(to.threads->counters().turns, 0u);
  EXPECT_TRUE(arriving.expired());
}

TEST_F(Relays, PutEachByteInItsPlace) {
  fill();
  for (const size_t buffer : {1, 7, 100, 4096, 5000}) {
    std::fill(to.memory.begin(), to.memory.end(), uint8_t{0});
    ended.reset();
    ASSERT_NE(
        from.reach->relay(
            *to.reach,
            relay({{from.at(900'000), 1, 0}, {from.at(3), 4000, 1}, {from.at(50'000), 999, 4001}},
                  {{to.at(70'000), 2500, 0}, {to.at(1), 2500, 2500}}, buffer)),
        nullptr);
    ASSERT_TRUE(wait_for_end());
    EXPECT_EQ(*ended, Ended(5000, End::kDone));
    std::vector<uint8_t> message{from.memory[900'000]};
    message.insert(message.end(), &from.memory[3], &from.memory[4003]);
    message.insert(message.end(), &from.memory[50'000], &from.memory[50'999]);
    EXPECT_EQ(std::memcmp(&to.memory[70'000], message.data(), 2500), 0) << buffer;
    EXPECT_EQ(std::memcmp(&to.memory[1], message.data() + 2500, 2500), 0) << buffer;
    EXPECT_EQ(std::count(to.memory.begin(), to.memory.end(), 0),
              std::count(message.begin(), message.end(), 0) + 995'000)
        << buffer;
  }
}

TEST_F(Relays, MarkTheEndOfWhatTheyStore) {
  for (const size_t buffer : {8, 100, 1000, 1008, 5000}) {
    fill();
    std::fill(to.memory.begin(), to.memory.end(), uint8_t{0});
    ended.reset();
    using Seen = std::tuple<ipc::Mark, uint8_t, uint8_t>;  // the byte before the end, and the end
    std::vector<Seen> seen;
    Reach::Relay it =
        relay({{from.at(0), 1008, 0}}, {{to.at(0), 1000, 0}, {to.at(1000), 8, 1000}}, buffer);
    it.mark = [&](ipc::Mark mark, uint64_t) {
      seen.emplace_back(mark, to.memory[999], to.memory[1000]);
    };
    ASSERT_NE(from.reach->relay(*to.reach, std::move(it)), nullptr);
    ASSERT_TRUE(wait_for_end());
    const uint8_t before = from.memory[999], last = from.memory[1000];
    EXPECT_EQ(seen,
              (std::vector<Seen>{{ipc::Mark::kBegun, before, 0}, {ipc::Mark::kDone, before, last}}))
        << buffer;
    EXPECT_EQ(std::memcmp(from.memory.data(), to.memory.data(), 1008), 0);
  }
}

TEST_F(Relays, SayWhichSideFailed) {
  ASSERT_NE(from.reach->relay(
                *to.reach, relay({{from.at(0), 100, 0}, {16, 8, 100}}, {{to.at(0), 108, 0}}, 50)),
            nullptr);
  ASSERT_TRUE(wait_for_end());
  EXPECT_EQ(*ended, Ended(100, End::kNotRead));
  ended.reset();
  ASSERT_NE(from.reach->relay(
                *to.reach, relay({{from.at(0), 108, 0}}, {{to.at(0), 100, 0}, {16, 8, 100}}, 50)),
            nullptr);
  ASSERT_TRUE(wait_for_end());
  EXPECT_EQ(*ended, Ended(100, End::kNotWritten));
}

// Memory that the target's process gives back while the source's page does not come.
TEST_F(Relays, LeaveATargetAloneThatEndsBeforeItsTurn) {
  fill();
  from.hang();
  ASSERT_NE(from.reach->relay(*to.reach, of_all()), nullptr);
  bool over = false;
  to.reach->barrier([&] { over = true; });
  EXPECT_TRUE(arriving.expired()) << "a flush would wait for the source's page";
  ASSERT_TRUE(run_until(*loop, [&] { return over; }));
  EXPECT_FALSE(ended);
  from.page.unlock();
  ASSERT_TRUE(wait_for_end());
  EXPECT_EQ(*ended, Ended(0, End::kInterrupted));
  EXPECT_TRUE(is_untouched());
}

TEST_F(Relays, HoldATargetWhileItIsTheirTurn) {
  to.hang();
  ASSERT_NE(from.reach->relay(*to.reach, of_all()), nullptr);
  // The source's process is free, and so is the thread that read.
  bool source_over = false;
  ASSERT_TRUE(run_until(*loop, [&] { return from.threads->counters().turns == 1; }));
  Reach::Job job;
  job.parts = {{from.at(0), 8, 0}};
  job.buffer = std::make_shared<std::vector<uint8_t>>(8);
  job.done = [&](bool) { source_over = true; };
  from.reach->submit(std::move(job));
  ASSERT_TRUE(run_until(*loop, [&] { return source_over; }));
  run_for(*loop, std::chrono::milliseconds(5));
  bool over = false;
  to.reach->barrier([&] { over = true; });
  run_for(*loop, std::chrono::milliseconds(20));
  EXPECT_FALSE(over);
  EXPECT_FALSE(arriving.expired());
  to.page.unlock();
  ASSERT_TRUE(run_until(*loop, [&] { return over; }));
  ASSERT_TRUE(wait_for_end());
  EXPECT_EQ(ended->second, End::kInterrupted);
  EXPECT_TRUE(arriving.expired());
}

TEST_F(Relays, AreInterruptedByBothSides) {
  for (Side* side : {&from, &to}) {
    for (const bool pause : {false, true}) {
      ended.reset();
      from.hang();
      ASSERT_NE(from.reach->relay(*to.reach, of_all()), nullptr);
      std::shared_ptr<void> ticket;
      if (pause)
        ticket = side->reach->pause([] {});
      else
        side->reach->interrupt_relays();
      if (pause) {
        EXPECT_EQ(from.reach->relay(*to.reach, of_all()), nullptr);
      }
      from.page.unlock();
      ASSERT_TRUE(wait_for_end());
      EXPECT_EQ(*ended, Ended(0, End::kInterrupted));
      EXPECT_TRUE(is_untouched());
    }
  }
}

TEST_F(Relays, EndWithEitherProcess) {
  for (const bool source : {false, true}) {
    for (const bool queued : {false, true}) {
      ended.reset();
      Side& hangs = queued ? to : from;
      hangs.hang();
      ASSERT_NE(from.reach->relay(*to.reach, of_all()), nullptr);
      run_for(*loop, std::chrono::milliseconds(5));
      Side& dies = source ? from : to;
      Side& stays = source ? to : from;
      dies.reach.reset();
      hangs.page.unlock();
      ASSERT_TRUE(wait_for_end()) << source << queued;
      EXPECT_NE(ended->second, End::kDone);
      // Nothing of it is left: a barrier has nothing to wait for.
      bool over = false;
      stays.reach->barrier([&] { over = true; });
      ASSERT_TRUE(run_until(*loop, [&] { return over; }));
      over = false;
      stays.reach->barrier([&] { over = true; });
      EXPECT_TRUE(over);
      dies.reach = dies.make(*loop);
    }
  }
}

TEST_F(Relays, AreDroppedWithBoth) {
  from.hang();
  ASSERT_NE(from.reach->relay(*to.reach, of_all()), nullptr);
  from.reach.reset();
  to.reach.reset();
  from.page.unlock();
  EXPECT_TRUE(run_until(*loop, [&] { return from.threads->count() == 0; }));
  EXPECT_TRUE(is_untouched());
}

TEST_F(Relays, MayBeWithinAProcess) {
  fill();
  ASSERT_NE(from.reach->relay(*from.reach,
                              relay({{from.at(0), 5000, 0}}, {{from.at(500'000), 5000, 0}}, 64)),
            nullptr);
  ASSERT_TRUE(wait_for_end());
  EXPECT_EQ(*ended, Ended(5000, End::kDone));
  EXPECT_EQ(std::memcmp(&from.memory[0], &from.memory[500'000], 5000), 0);
  bool over = false;
  from.reach->barrier([&] { over = true; });
  EXPECT_TRUE(over);
}

// A page of the target that does not come takes a thread of its own vdevice.
TEST_F(Relays, CountAmongTheThreadsOfTheSideThatTheyTouch) {
  std::mutex page;
  std::unique_lock held(page);
  std::atomic<bool> there = false;
  Reach::Relay it = of_all();
  it.to = {{to.at(0), 999'992, 0}, {to.at(999'992), 8, 999'992}};
  it.mark = [&](ipc::Mark, uint64_t) {
    there = true;
    const std::lock_guard comes(page);
  };
  ASSERT_NE(from.reach->relay(*to.reach, std::move(it)), nullptr);
  ASSERT_TRUE(run_until(*loop, [&] { return there.load(); }));
  EXPECT_EQ(from.threads->count(), 0u);
  EXPECT_EQ(to.threads->count(), 1u);
  // The source's vdevice has all of its own.
  bool over = false;
  from.reach->barrier([&] { over = true; });
  ASSERT_TRUE(run_until(*loop, [&] { return over; }));
  held.unlock();
  ASSERT_TRUE(wait_for_end());
}

TEST_F(Relays, FailWhereNoThreadCanBeMade) {
  to.threads = std::make_shared<ReachThreads>(nullptr, 0);
  to.reach = to.make(*loop);
  ASSERT_NE(from.reach->relay(*to.reach, of_all()), nullptr);
  ASSERT_TRUE(wait_for_end());
  EXPECT_EQ(*ended, Ended(0, End::kNotWritten));
  EXPECT_TRUE(is_untouched());
}

// The target's vdevice has none left, so the relay waits in its line, and keeps none of the
// source's.
TEST_F(Relays, WaitWhereTheTargetHasNoThreads) {
  to.hang();
  auto second = to.make(*loop);
  std::swap(second, to.reach);
  Reach::Job job;
  job.parts.push_back({reinterpret_cast<uint64_t>(&to.word), 8, 0});
  job.buffer = std::make_shared<std::vector<uint8_t>>(8);
  job.change = [](uint64_t old) { return old + 1; };
  job.done = [](bool) {};
  to.reach->submit(std::move(job));
  ASSERT_TRUE(run_until(*loop, [&] { return to.threads->counters().turns == 2; }));
  const auto third = to.make(*loop);
  fill();
  ASSERT_NE(from.reach->relay(*third, of_all()), nullptr);
  bool over = false;
  ASSERT_TRUE(run_until(*loop, [&] { return from.threads->counters().turns == 1; }));
  Reach::Job other;
  other.parts = {{from.at(0), 8, 0}};
  other.buffer = std::make_shared<std::vector<uint8_t>>(8);
  other.done = [&](bool) { over = true; };
  from.reach->submit(std::move(other));
  ASSERT_TRUE(run_until(*loop, [&] { return over; }));
  EXPECT_FALSE(ended);
  EXPECT_EQ(to.threads->count(), 2u);
  to.page.unlock();
  ASSERT_TRUE(wait_for_end());
  EXPECT_TRUE(run_until(*loop, [&] { return to.word == 2; }));
}

}  // namespace
}  // namespace vrdma::rdma
