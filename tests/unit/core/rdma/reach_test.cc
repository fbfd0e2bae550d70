#include "core/rdma/reach.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <future>
#include <numeric>

#include "tests/unit/core/rdma/world.h"

namespace {
std::atomic<bool> no_file = false;
std::atomic<int> refusals = 0;
}  // namespace

// In the place of the C library's.
extern "C" long syscall(long number, ...) noexcept {
  if (number == SYS_pidfd_open && no_file) {
    ++refusals;
    errno = ENFILE;
    return -1;
  }
  static auto* const real = reinterpret_cast<long (*)(long, ...)>(::dlsym(RTLD_NEXT, "syscall"));
  std::array<long, 6> with{};
  va_list all;
  va_start(all, number);
  for (long& one : with) one = va_arg(all, long);
  va_end(all);
  return real(number, with[0], with[1], with[2], with[3], with[4], with[5]);
}

namespace vrdma::rdma {
namespace {

using test::run_for;
using test::run_until;

MemoryFiles own_files(bool writable = true) {
  return {base::Fd(::open("/proc/self/mem", (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC)),
          base::Fd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)), writable};
}

struct Reaches : testing::Test {
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  std::shared_ptr<std::mutex> changes = std::make_shared<std::mutex>();
  std::shared_ptr<ReachThreads> threads = std::make_shared<ReachThreads>(nullptr, 2);
  std::unique_ptr<Reach> reach = make_reach();
  std::vector<uint8_t> memory = std::vector<uint8_t>(100'000);
  std::vector<std::pair<int, bool>> ended;  // which job, and whether it was well

  std::unique_ptr<Reach> make_reach() {
    return std::make_unique<Reach>(*loop, Reach::Memory{own_files(), changes}, threads);
  }
  uint64_t at(size_t offset) const { return reinterpret_cast<uint64_t>(memory.data() + offset); }
  void submit(int which, bool write, std::vector<Reach::Part> parts,
              std::shared_ptr<std::vector<uint8_t>> buffer) {
    Reach::Job job;
    job.write = write;
    job.parts = std::move(parts);
    job.buffer = std::move(buffer);
    job.done = [this, which](bool ok) { ended.emplace_back(which, ok); };
    reach->submit(std::move(job));
  }
  bool wait_for(size_t count) {
    return run_until(*loop, [&] { return ended.size() >= count; });
  }
};

using Ended = std::vector<std::pair<int, bool>>;

TEST_F(Reaches, ReadAndWriteInParts) {
  std::iota(memory.begin(), memory.end(), uint8_t{0});
  auto buffer = std::make_shared<std::vector<uint8_t>>(30);
  submit(1, false, {{at(5), 10, 20}, {at(90'000), 20, 0}}, buffer);
  ASSERT_TRUE(wait_for(1));
  EXPECT_EQ(ended, (Ended{{1, true}}));
  EXPECT_EQ((*buffer)[20], 5);
  EXPECT_EQ((*buffer)[29], 14);
  EXPECT_EQ((*buffer)[0], static_cast<uint8_t>(90'000));
  std::fill(buffer->begin(), buffer->end(), uint8_t{7});
  submit(2, true, {{at(50'000), 30, 0}}, buffer);
  ASSERT_TRUE(wait_for(2));
  EXPECT_EQ(memory[50'000], 7);
  EXPECT_EQ(memory[50'029], 7);
  EXPECT_NE(memory[50'030], 7);
}

TEST_F(Reaches, DoNothingWhilePaused) {
  auto buffer = std::make_shared<std::vector<uint8_t>>(8, uint8_t{7});
  submit(1, true, {{at(0), 8, 0}}, buffer);
  bool ready = false, again = false, empty = false;
  auto first = reach->pause([&] { ready = true; });
  submit(2, true, {{at(8), 8, 0}}, buffer);
  ASSERT_TRUE(run_until(*loop, [&] { return ready; }));
  EXPECT_EQ(ended, (Ended{{1, true}}));
  auto second = reach->pause([&] { again = true; });
  EXPECT_TRUE(again);
  reach->barrier([&] { empty = true; });
  first.reset();
  run_for(*loop, std::chrono::milliseconds(5));
  EXPECT_EQ(memory[8], 0);
  EXPECT_FALSE(empty) << "a job that waits may still store";
  second.reset();
  ASSERT_TRUE(run_until(*loop, [&] { return empty; }));
  EXPECT_EQ(ended, (Ended{{1, true}, {2, true}}));
  EXPECT_EQ(memory[8], 7);
}

TEST_F(Reaches, MarkTheEndOfWhatTheyStore) {
  auto buffer = std::make_shared<std::vector<uint8_t>>(8, uint8_t{7});
  std::fill(memory.begin() + 10, memory.begin() + 14, uint8_t{3});
  using Marks = std::vector<std::tuple<ipc::Mark, uint64_t, uint8_t>>;  // and what is there
  Marks marks;
  Reach::Job job;
  job.write = true;
  job.parts = {{at(0), 4, 0}, {at(10), 4, 4}};
  job.buffer = buffer;
  job.mark = [&](ipc::Mark how, uint64_t stood) { marks.emplace_back(how, stood, memory[10]); };
  job.done = [this](bool ok) { ended.emplace_back(1, ok); };
  reach->submit(std::move(job));
  ASSERT_TRUE(wait_for(1));
  EXPECT_EQ(marks, (Marks{{ipc::Mark::kBegun, 0x03030303, 3}, {ipc::Mark::kDone, 0x03030303, 7}}));
}

// A compare-and-swap that finds another value: the program may store there meanwhile.
TEST_F(Reaches, StoreNoWordThatStaysAsItIs) {
  using Marks = std::vector<std::pair<ipc::Mark, uint64_t>>;
  Marks marks;
  const uint64_t word = (at(0) + 7) / 8 * 8;
  auto* const value = reinterpret_cast<uint64_t*>(word);
  *value = 4;
  Reach::Job job;
  job.parts.push_back({word, sizeof *value, 0});
  job.buffer = std::make_shared<std::vector<uint8_t>>(sizeof *value);
  job.change = [&](uint64_t old) {
    *value = 5;  // the program's
    return old;
  };
  job.mark = [&](ipc::Mark how, uint64_t stood) { marks.emplace_back(how, stood); };
  job.done = [this](bool ok) { ended.emplace_back(1, ok); };
  reach->submit(std::move(job));
  ASSERT_TRUE(wait_for(1));
  EXPECT_EQ(ended, (Ended{{1, true}}));
  EXPECT_EQ(marks, (Marks{{ipc::Mark::kDone, 4}}));
  EXPECT_EQ(*value, 5u);
}

TEST_F(Reaches, WriteOnlyWhenTheyMay) {
  reach->replace(own_files(false));
  EXPECT_FALSE(reach->may_write());
  auto buffer = std::make_shared<std::vector<uint8_t>>(8, uint8_t{7});
  submit(1, true, {{at(0), 8, 0}}, buffer);
  submit(2, false, {{at(0), 8, 0}}, buffer);
  ASSERT_TRUE(wait_for(2));
  EXPECT_EQ(ended, (Ended{{1, false}, {2, true}}));
  EXPECT_EQ(memory[0], 0);
  reach->replace(own_files(true));
  EXPECT_TRUE(reach->may_write());
  std::fill(buffer->begin(), buffer->end(), uint8_t{7});
  submit(3, true, {{at(0), 8, 0}}, buffer);
  ASSERT_TRUE(wait_for(3));
  EXPECT_EQ(ended.back(), std::pair(3, true));
  EXPECT_EQ(memory[7], 7);
}

TEST_F(Reaches, FailWhereThereIsNothing) {
  auto buffer = std::make_shared<std::vector<uint8_t>>(8192);
  submit(1, false, {{0, 8, 0}}, buffer);
  submit(2, false, {{~uint64_t{0} - 7, 8, 0}}, buffer);
  submit(3, false, {{at(0), 8, 0}, {4096, 8, 8}}, buffer);
  submit(4, false, {{at(0), 8192, 0}}, buffer);
  submit(5, true, {{1ull << 47, 8, 0}}, buffer);
  ASSERT_TRUE(wait_for(5));
  EXPECT_EQ(ended, (Ended{{1, false}, {2, false}, {3, false}, {4, true}, {5, false}}));
}

TEST_F(Reaches, RunJobsInOrder) {
  auto buffer = std::make_shared<std::vector<uint8_t>>(1);
  for (int i = 0; i < 200; ++i) submit(i, true, {{at(0), 1, 0}}, buffer);
  reach->barrier([&] { ended.emplace_back(200, true); });
  EXPECT_TRUE(ended.empty());
  ASSERT_TRUE(wait_for(201));
  for (int i = 0; i <= 200; ++i) EXPECT_EQ(ended[static_cast<size_t>(i)].first, i);
}

// Also those of another reach of the same process.
TEST_F(Reaches, LoseNoChange) {
  constexpr uint64_t kEach = 5000;
  alignas(8) uint64_t word = 0;
  std::vector<uint64_t> seen;
  const std::unique_ptr<Reach> other = make_reach();
  const auto change = [&](Reach& by, std::shared_ptr<const Reach::Memory> foreign) {
    Reach::Job job;
    job.parts.push_back({reinterpret_cast<uint64_t>(&word), 8, 0, std::move(foreign)});
    job.buffer = std::make_shared<std::vector<uint8_t>>(8);
    job.change = [](uint64_t old) { return old + 1; };
    job.done = [&seen, buffer = job.buffer](bool ok) {
      EXPECT_TRUE(ok);
      uint64_t old = 0;
      std::memcpy(&old, buffer->data(), sizeof old);
      seen.push_back(old);
    };
    by.submit(std::move(job));
  };
  for (uint64_t i = 0; i < kEach; ++i) {
    change(*reach, nullptr);
    change(*other, i % 2 == 0 ? nullptr : reach->memory());
  }
  ASSERT_TRUE(run_until(*loop, [&] { return seen.size() == 2 * kEach; }));
  EXPECT_EQ(word, 2 * kEach);
  std::sort(seen.begin(), seen.end());
  for (uint64_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], i);
}

TEST_F(Reaches, DoNotWriteWhatStaysAsItIs) {
  void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  for (const uint64_t add : {0, 1}) {
    Reach::Job job;
    job.parts.push_back({reinterpret_cast<uint64_t>(page), 8, 0});
    job.buffer = std::make_shared<std::vector<uint8_t>>(8);
    job.change = [add](uint64_t old) { return old + add; };
    job.done = [&](bool ok) { ended.emplace_back(0, ok); };
    reach->submit(std::move(job));
  }
  ASSERT_TRUE(wait_for(2));
  EXPECT_EQ(ended, (Ended{{0, true}, {0, false}}));
  ::munmap(page, 4096);
}

TEST_F(Reaches, HaveNoBarrierWithoutJobs) {
  bool done = false;
  reach->barrier([&] { done = true; });
  EXPECT_TRUE(done);
}

TEST_F(Reaches, DropWhatIsPendingWhenDestroyed) {
  auto buffer = std::make_shared<std::vector<uint8_t>>(memory.size());
  for (int i = 0; i < 100; ++i) submit(i, false, {{at(0), memory.size(), 0}}, buffer);
  reach->barrier([&] { ended.emplace_back(100, true); });
  reach.reset();
  run_for(*loop, std::chrono::milliseconds(20));
  EXPECT_TRUE(ended.empty());
}

TEST_F(Reaches, MayBeDestroyedByTheirAnswer) {
  Reach::Job job;
  bool done = false;
  job.done = [&](bool) {
    reach.reset();
    done = true;
  };
  reach->submit(std::move(job));
  EXPECT_TRUE(run_until(*loop, [&] { return done; }));
}

// Memory that fails or hangs (which of both a userfaultfd without a server does, is the kernel's
// affair) holds up its reach, and nothing else.
TEST_F(Reaches, DoNotWaitForAPageThatNeverComes) {
  const base::Fd faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
  if (!faults.valid()) GTEST_SKIP() << "userfaultfd is not allowed here";
  uffdio_api api{};
  api.api = UFFD_API;
  ASSERT_EQ(::ioctl(faults.get(), UFFDIO_API, &api), 0);
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uffdio_register range{};
  range.range = {reinterpret_cast<uint64_t>(page), 4096};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  ASSERT_EQ(::ioctl(faults.get(), UFFDIO_REGISTER, &range), 0);
  auto buffer = std::make_shared<std::vector<uint8_t>>(8);
  submit(1, false, {{reinterpret_cast<uint64_t>(page), 8, 0}}, buffer);
  submit(2, false, {{at(0), 8, 0}}, buffer);
  run_for(*loop, std::chrono::milliseconds(20));
  if (!ended.empty()) {
    EXPECT_TRUE(run_until(*loop, [&] { return ended.size() == 2; }));
    EXPECT_EQ(ended, (Ended{{1, false}, {2, true}}));
  }
  reach.reset();
  uffdio_range served = range.range;
  ASSERT_EQ(::ioctl(faults.get(), UFFDIO_UNREGISTER, &served), 0);
  const size_t before = ended.size();
  run_for(*loop, std::chrono::milliseconds(20));
  EXPECT_EQ(ended.size(), before);
  ::munmap(page, 4096);
}

// A page of a process that was stopped in the middle of a change: who wants to change it waits.
struct HangingReaches : Reaches {
  std::unique_lock<std::mutex> page{*changes};  // as long as this is locked, a change hangs
  alignas(8) uint64_t word = 0;
  std::shared_ptr<std::mutex> others = std::make_shared<std::mutex>();

  std::unique_ptr<Reach> other_process() {
    return std::make_unique<Reach>(*loop, Reach::Memory{own_files(), others}, threads);
  }
  void hang(Reach& by, int which, std::shared_ptr<const Reach::Memory> whose = nullptr) {
    Reach::Job job;
    job.parts.push_back({reinterpret_cast<uint64_t>(&word), 8, 0, std::move(whose)});
    job.buffer = std::make_shared<std::vector<uint8_t>>(8);
    job.change = [](uint64_t old) { return old + 1; };
    job.done = [this, which](bool ok) { ended.emplace_back(which, ok); };
    by.submit(std::move(job));
  }
  // A thread waits for the page: that is what the 2 in glibc's mutex says.
  bool wait_for_a_hang() {
    return run_until(*loop, [this] { return changes->native_handle()->__data.__lock == 2; });
  }
  void TearDown() override {
    if (page.owns_lock()) page.unlock();
    run_until(*loop, [&] { return threads->count() == 0; });
  }
};

TEST_F(HangingReaches, TakeNoMoreThreadsThanTheirVdeviceHas) {
  std::vector<std::unique_ptr<Reach>> all;
  for (int i = 0; i < 10; ++i) hang(*all.emplace_back(make_reach()), i);
  run_for(*loop, std::chrono::milliseconds(20));
  EXPECT_EQ(threads->count(), 2u);
  EXPECT_TRUE(ended.empty());
  page.unlock();
  ASSERT_TRUE(wait_for(10));
  EXPECT_EQ(word, 10u);
}

// Their sessions have ended, and they have not.
TEST_F(HangingReaches, AreCountedUntilTheirThreadsEnd) {
  for (int i = 0; i < 10; ++i) {
    auto gone = make_reach();
    hang(*gone, i);
    run_for(*loop, std::chrono::milliseconds(2));
  }
  EXPECT_EQ(threads->count(), 2u);
  auto neighbour = std::make_shared<ReachThreads>(nullptr, 2);
  EXPECT_TRUE(neighbour->run([](const auto&) {}));
  page.unlock();
  EXPECT_TRUE(run_until(*loop, [&] { return threads->count() == 0; }));
  EXPECT_TRUE(ended.empty());
}

TEST_F(HangingReaches, LeaveNoDescriptorOpen) {
  const auto count = [] {
    int open = 0;
    for (int fd = 0; fd < 1024; ++fd) open += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return open;
  };
  const int before = count();
  auto gone = make_reach();
  hang(*gone, 1);
  run_for(*loop, std::chrono::milliseconds(10));
  gone.reset();
  EXPECT_EQ(count(), before);
  page.unlock();
  EXPECT_TRUE(run_until(*loop, [&] { return threads->count() == 0; }));
  EXPECT_EQ(count(), before);
}

// The importer hangs in memory of its own, and has work on its exporter's behind that.
TEST_F(HangingReaches, LetAnExporterGo) {
  const auto exporter = other_process();
  auto buffer = std::make_shared<std::vector<uint8_t>>(16);
  hang(*reach, 1);
  submit(2, false, {{at(0), 8, 0}, {at(8), 8, 8, exporter->memory()}}, buffer);
  submit(3, false, {{at(0), 8, 0}}, buffer);
  bool released = false;
  reach->release(*exporter, [&] { released = true; });
  ASSERT_TRUE(run_until(*loop, [&] { return released; }));
  EXPECT_TRUE(ended.empty()) << "each ends in its turn";
  page.unlock();
  ASSERT_TRUE(wait_for(3));
  EXPECT_EQ(ended, (Ended{{1, true}, {2, false}, {3, true}}));
  EXPECT_EQ(*buffer, std::vector<uint8_t>(16));
}

// The importer dies while it hangs in memory of its own.
TEST_F(HangingReaches, LetAnExporterGoWhenTheyDie) {
  const auto exporter = other_process();
  hang(*reach, 1);
  submit(2, false, {{at(8), 8, 0, exporter->memory()}}, std::make_shared<std::vector<uint8_t>>(8));
  bool released = false;
  reach->release(*exporter, [&] { released = true; });
  reach.reset();
  EXPECT_TRUE(run_until(*loop, [&] { return released; }));
  EXPECT_TRUE(ended.empty());
}

// The importer hangs in the exporter's memory: that must be over first, also if the importer dies.
TEST_F(HangingReaches, HoldAnExporterWhileTheyTouchItsMemory) {
  const auto importer = other_process();
  hang(*importer, 1, reach->memory());
  ASSERT_TRUE(wait_for_a_hang());
  bool released = false;
  importer->release(*reach, [&] { released = true; });
  run_for(*loop, Reach::kPatience + std::chrono::milliseconds(100));
  EXPECT_FALSE(released);
  page.unlock();
  EXPECT_TRUE(run_until(*loop, [&] { return released; }));
}

TEST_F(HangingReaches, TellAnExporterThoughTheImporterHasDied) {
  auto importer = other_process();
  hang(*importer, 1, reach->memory());
  ASSERT_TRUE(wait_for_a_hang());
  bool released = false;
  importer->release(*reach, [&] { released = true; });
  importer.reset();
  run_for(*loop, std::chrono::milliseconds(20));
  EXPECT_FALSE(released);
  page.unlock();
  EXPECT_TRUE(run_until(*loop, [&] { return released; }));
}

// Of the daemon's descriptors they hold none but what they were given.
TEST(ReachThreads, HaveATableOfTheirOwn) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  base::Fd reading(ends[0]), writing(ends[1]);
  ReachThreads threads(nullptr, 1);
  std::promise<void> over;
  std::promise<ssize_t> written;
  ASSERT_TRUE(threads.run([&, go = over.get_future().share()](ReachThreads::Here& here) {
    const bool open = ::fcntl(reading.get(), F_GETFD) >= 0 || ::fcntl(writing.get(), F_GETFD) >= 0;
    written.set_value(open ? -1 : ::write(here.descriptors.take(writing.get()).get(), "y", 1));
    go.wait();
  }));
  EXPECT_EQ(written.get_future().get(), 1);
  char byte = 0;
  EXPECT_EQ(::read(reading.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  // The thread's is closed, and it never had another: the end of file shows.
  writing.reset();
  EXPECT_EQ(::read(reading.get(), &byte, 1), 0);
  over.set_value();
}

// The system has no file for the thread for a while.
TEST_F(Reaches, WaitForADescriptor) {
  no_file = true;
  submit(1, true, {{at(0), 8, 0}}, std::make_shared<std::vector<uint8_t>>(8, uint8_t{7}));
  EXPECT_TRUE(run_until(*loop, [] { return refusals > 2; }));
  EXPECT_TRUE(ended.empty());
  no_file = false;
  EXPECT_TRUE(wait_for(1));
  EXPECT_EQ(ended, (Ended{{1, true}}));
}

// Pays, and lets nothing begin while it is told so.
struct Purse final : base::CpuMeter {
  std::atomic<bool> empty = false;
  std::atomic<int> asked = 0;
  std::atomic<int64_t> paid = 0;
  void spend(base::Duration used) override { paid += used.count(); }
  base::Duration wait(base::TimePoint) override {
    ++asked;
    return empty ? std::chrono::milliseconds(1) : base::Duration(0);
  }
};

struct PaidReaches : Reaches {
  std::shared_ptr<Purse> purse = std::make_shared<Purse>(), other = std::make_shared<Purse>();
  PaidReaches() {
    reach.reset();
    threads = std::make_shared<ReachThreads>(purse, 2);
    reach = make_reach();
  }
  void submit_some(int count, std::shared_ptr<base::CpuMeter> payer = nullptr) {
    for (int i = 0; i < count; ++i) {
      Reach::Job job;
      job.parts = {{at(0), memory.size(), 0}};
      job.buffer = std::make_shared<std::vector<uint8_t>>(memory.size());
      job.payer = payer;
      job.done = [this](bool ok) { ended.emplace_back(0, ok); };
      reach->submit(std::move(job));
    }
  }
};

TEST_F(PaidReaches, CostTheirOwnerTheTimeOfTheirThreads) {
  submit_some(100);
  ASSERT_TRUE(wait_for(100));
  EXPECT_TRUE(run_until(*loop, [&] { return purse->paid >= 100'000; }));
  EXPECT_EQ(other->paid, 0);
}

TEST_F(PaidReaches, CostWhoeverCausedThem) {
  submit_some(1);
  ASSERT_TRUE(wait_for(1));
  ASSERT_TRUE(run_until(*loop, [&] { return purse->paid > 0; }));  // the making of the thread
  const int64_t before = purse->paid;
  submit_some(100, other);
  ASSERT_TRUE(wait_for(101));
  EXPECT_TRUE(run_until(*loop, [&] { return other->paid >= 100'000; }));
  // The other thread, if one was made, pays for its beginning at its first turn.
  EXPECT_EQ(purse->paid, before);
}

TEST_F(PaidReaches, BeginNothingWhileTheirOwnerMustWait) {
  purse->empty = true;
  const auto begun = base::Clock::steady().now();
  submit_some(10);
  EXPECT_TRUE(run_until(*loop, [&] { return purse->asked >= 10; }));
  EXPECT_TRUE(ended.empty());
  // One thread asks for all, once in a millisecond.
  EXPECT_LE(std::chrono::milliseconds(purse->asked - 1), base::Clock::steady().now() - begun);
  purse->empty = false;
  EXPECT_TRUE(wait_for(10));
}

TEST_F(PaidReaches, EndWhileTheyWait) {
  purse->empty = true;
  submit_some(10);
  run_for(*loop, std::chrono::milliseconds(5));
  std::weak_ptr<Purse> held = purse;
  reach.reset();
  threads.reset();
  purse.reset();
  EXPECT_TRUE(run_until(*loop, [&] { return held.expired(); }));
  EXPECT_TRUE(ended.empty());
}

TEST_F(PaidReaches, OfOtherProcessesAreServedToo) {
  auto second = make_reach();
  purse->empty = true;
  submit_some(5);
  std::swap(reach, second);
  submit_some(5);
  run_for(*loop, std::chrono::milliseconds(5));
  purse->empty = false;
  EXPECT_TRUE(wait_for(10));
}

// What came while no turn might begin does not wait for a page of another process.
TEST_F(PaidReaches, HaveAThreadForEachTurnAfterAWait) {
  const auto hanging = make_reach();
  std::unique_lock page(*changes);
  alignas(8) uint64_t word = 0;
  Reach::Job job;
  job.parts.push_back({reinterpret_cast<uint64_t>(&word), 8, 0});
  job.buffer = std::make_shared<std::vector<uint8_t>>(8);
  job.change = [](uint64_t old) { return old + 1; };
  job.done = [this](bool ok) { ended.emplace_back(1, ok); };
  purse->empty = true;
  hanging->submit(std::move(job));
  ASSERT_TRUE(run_until(*loop, [&] { return purse->asked > 0; }));
  submit_some(1);
  purse->empty = false;
  EXPECT_TRUE(wait_for(1));
  EXPECT_EQ(ended, (Ended{{0, true}}));
  page.unlock();
  EXPECT_TRUE(wait_for(2));
}

}  // namespace
}  // namespace vrdma::rdma
