// A keeper, its children that are killed, and a VMM in front of them: each message is carried out
// once. The system calls of a message are this program's, so that a child can die in each step.
#include "pvrdma/keeper/keeper.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <map>
#include <new>
#include <random>
#include <set>
#include <thread>

#include "core/base/event_loop.h"
#include "core/base/log.h"
#include "core/base/mapping.h"
#include "pvrdma/vfio_user/server.h"
#include "tests/unit/pvrdma/vmm.h"

namespace {

enum Step : uint32_t {
  kNever,
  kBeforeLook,
  kAfterLook,
  kBeforeEffect,
  kAfterEffect,
  kAfterNote,
  kAfterTake,
  kAfterAnswer,
  kSteps
};

// What the processes share, and the image among it.
struct Stage {
  vrdma::pvrdma::vfio::Progress progress;
  // Of the function, by the parity of the message.
  struct State {
    uint64_t doorbells = 0, range = 0;
    bool has_vector = false;
  };
  std::array<State, 2> states;
  std::atomic<uint32_t> die_at{kNever}, deaths{1};
  std::atomic<pid_t> child{0};
  std::atomic<uint32_t> children{0}, effects{0};
  std::atomic<uint32_t> shortages{0};  // so often the host lacks descriptors
};

Stage* stage = nullptr;
int served = -1;  // the VMM's connection, in a child

void step(Step now) {
  if (served < 0 || stage->die_at != now) return;
  if (--stage->deaths == 0) stage->die_at = kNever;
  (void)::kill(::getpid(), SIGKILL);
}

}  // namespace

extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const bool is_look = (flags & MSG_PEEK) != 0;
  const bool is_whole = message->msg_iovlen > 1;
  if (fd == served) {
    if (is_look && !is_whole) step(kBeforeLook);
    if (!is_look) step(kAfterNote);
  }
  const ssize_t count = ::syscall(SYS_recvmsg, fd, message, flags);
  if (fd == served && count > 0) {
    if (is_look && is_whole) step(kAfterLook);
    if (!is_look) step(kAfterTake);
  }
  return count;
}
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const ssize_t count = ::syscall(SYS_sendmsg, fd, message, flags);
  if (fd == served && count > 0) step(kAfterAnswer);
  return count;
}

extern "C" int socketpair(int family, int type, int protocol, int* ends) noexcept {
  if (stage != nullptr && stage->shortages != 0) {
    --stage->shortages;
    errno = ENFILE;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_socketpair, family, type, protocol, ends));
}

namespace vrdma::pvrdma {
namespace {

using vfio::Message;

constexpr uint32_t kVector = 0, kRange = 1, kSlots = 2;

// Counts writes, and keeps one vector and one range of memory, of which it tells the inode.
class Function final : public pvrdma::Function {
 public:
  Function(Inheritance& inherited, Charge& charge) : charge_(charge) {
    const uint64_t noted = stage->progress.noted;
    if (noted > stage->progress.cleared) state_ = stage->states[noted % 2];
    if (state_.has_vector) vector_ = std::move(inherited.slots[kVector]);
    if (state_.range != 0) range_ = std::move(inherited.slots[kRange]);
  }
  [[nodiscard]] RegionShape region(uint32_t index) const override {
    return {index <= 1 ? uint64_t{4096} : 0, {}};
  }
  [[nodiscard]] uint32_t vectors() const override { return 1; }
  void read(uint32_t region, uint64_t, std::span<uint8_t> bytes) override {
    struct stat status {};
    if (region == 1 && range_.valid()) (void)::fstat(range_.get(), &status);
    const uint64_t value = region == 0 ? state_.doorbells : status.st_ino;
    std::memcpy(bytes.data(), &value, std::min(bytes.size(), sizeof value));
  }
  void write(uint32_t, uint64_t, std::span<const uint8_t>) override {
    step(kBeforeEffect);
    ++state_.doorbells;
    ++stage->effects;
    const uint64_t one = 1;
    if (vector_.valid()) (void)!::write(vector_.get(), &one, sizeof one);
  }
  void answered() override {}
  int map(const DmaRange& range, base::Fd file) override {
    if (state_.range != 0) return EEXIST;
    charge_.hold(kRange, file);
    range_ = std::move(file);
    state_.range = range.length;
    return 0;
  }
  int unmap(uint64_t, uint64_t length) override {
    if (state_.range != length) return ENOENT;
    state_.range = 0;
    return 0;
  }
  void unmap_all() override { state_.range = 0; }
  void set_vector(uint32_t, base::Fd eventfd) override {
    charge_.hold(kVector, eventfd);
    vector_ = std::move(eventfd);
    state_.has_vector = vector_.valid();
  }
  void reset() override {}
  void before_note() override {
    stage->states[stage->progress.begun % 2] = state_;
    step(kAfterEffect);
  }
  void forget() { state_ = {}; }

 private:
  Charge& charge_;
  Stage::State state_;
  base::Fd vector_, range_;
};

int serve(Inheritance inherited) {
  auto loop = base::EventLoop::create().value();
  Charge charge(std::move(inherited.keeper));
  Function function(inherited, charge);
  std::unique_ptr<VfioServer> server;
  const auto come = [&](base::Fd vmm) {
    served = vmm.get();
    server = VfioServer::serve(*loop, std::move(vmm), function, stage->progress,
                               [&](const std::string&) {
                                 loop->post([&] {
                                   server.reset();
                                   served = -1;
                                   function.forget();
                                   stage->progress.clear();
                                   charge.gone();
                                 });
                               })
                 .value();
  };
  auto watch = loop->watch(charge.fd(), EPOLLIN, [&](uint32_t) {
    auto vmm = charge.receive();
    if (!vmm)
      loop->stop();
    else if (vmm->valid())
      come(std::move(*vmm));
  });
  stage->child = ::getpid();
  ++stage->children;
  charge.ready();
  if (inherited.vmm.valid()) come(std::move(inherited.vmm));
  loop->run();
  return 0;
}

class KeeperTest : public ::testing::Test {
 protected:
  KeeperTest() {
    void* const at =
        ::mmap(nullptr, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    stage = new (at) Stage;
    listener_ = base::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // An abstract name that the kernel chooses.
    sockaddr_storage name{};
    name.ss_family = AF_UNIX;
    EXPECT_EQ(0, ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), sizeof(sa_family_t)));
    EXPECT_EQ(0, ::listen(listener_.get(), 8));
    end_ = base::Fd(::eventfd(0, EFD_CLOEXEC));
    keeper_ = ::fork();
    if (keeper_ == 0) {
      (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
      base::set_log([](base::LogLevel, const std::string&) {});
      Keeper keeper(std::move(listener_), std::move(end_), kSlots, serve,
                    std::chrono::milliseconds(0));
      ::_exit(keeper.run().value());
    }
    vmm_ = connect();
  }
  ~KeeperTest() override {
    const uint64_t one = 1;
    EXPECT_EQ(ssize_t{8}, ::write(end_.get(), &one, sizeof one));
    int status = -1;
    EXPECT_EQ(keeper_, ::waitpid(keeper_, &status, 0));
    EXPECT_EQ(0, status);
    ::munmap(stage, sizeof(Stage));
    stage = nullptr;
  }
  std::unique_ptr<Vmm> connect() {
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    EXPECT_EQ(0, ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &length));
    base::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(0, ::connect(fd.get(), reinterpret_cast<sockaddr*>(&name), length));
    const timeval lost{20, 0};  // an answer that never comes
    EXPECT_EQ(0, ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &lost, sizeof lost));
    return std::make_unique<Vmm>(std::move(fd));
  }

  // As QEMU does: what answers no request that waits is dropped, if it has no payload. The error of
  // the answer.
  template <class... Bodies>
  uint32_t ask(Message kind, const std::vector<int>& descriptors, const Bodies&... bodies) {
    if (!vmm_->send(vmm_->message(kind, Vmm::bytes_of(bodies...)), descriptors))
      return Vmm::kNoAnswer;
    for (;;) {
      last_ = vmm_->receive();
      if (last_.header.size == 0) return Vmm::kNoAnswer;
      if (last_.header.id == vmm_->last_id()) return last_.error();
      EXPECT_EQ(sizeof(vfio::Header), last_.header.size);
      ++dropped_;
    }
  }
  uint32_t ring() {
    return ask(Message::kRegionWrite, {}, vfio::RegionAccess{0, 0, 4}, uint32_t{7});
  }
  uint64_t read(uint32_t region) {
    EXPECT_EQ(0u, ask(Message::kRegionRead, {}, vfio::RegionAccess{0, region, 8}));
    return last_.as<uint64_t>(sizeof(vfio::RegionAccess));
  }
  uint32_t map(int file) { return ask(Message::kDmaMap, {file}, vfio::DmaMap{32, 3, 0, 0, 4096}); }
  uint32_t unmap() { return ask(Message::kDmaUnmap, {}, vfio::DmaUnmap{24, 0, 0, 4096}); }
  static void die(uint32_t at, uint32_t times = 1) {
    stage->deaths = times;
    stage->die_at = at;
  }
  static void wait_for_child(uint32_t number) {
    while (stage->children < number) std::this_thread::yield();
  }

  base::Fd listener_, end_;
  pid_t keeper_ = -1;
  std::unique_ptr<Vmm> vmm_;
  Vmm::Answer last_;
  size_t dropped_ = 0;
};

TEST_F(KeeperTest, DiesInEachStep) {
  ASSERT_EQ(0u, vmm_->negotiate());
  const base::Fd ram = base::make_memfd("ram", 4096).value(), event(::eventfd(0, EFD_NONBLOCK));
  struct stat status {};
  ASSERT_EQ(0, ::fstat(ram.get(), &status));
  ASSERT_EQ(0u, vmm_->assign(0, 1, {event.get()}));
  uint64_t rung = 0;
  for (uint32_t now = kBeforeLook; now < kSteps; ++now) {
    SCOPED_TRACE(now);
    const uint32_t before = stage->children;
    // A write: it is carried out once, and known to be, unless its answer may have left.
    die(now);
    ASSERT_EQ(now == kAfterTake ? uint32_t{EIO} : 0u, ring());
    wait_for_child(before + 1);
    EXPECT_EQ(++rung, read(0));
    EXPECT_EQ(rung, stage->states[stage->progress.noted % 2].doorbells);
    // A map with its descriptor, and an unmap. The interrupt's descriptor stays.
    if (now != kBeforeEffect) {
      die(now);
      ASSERT_EQ(0u, map(ram.get()));  // its answer has no payload
      wait_for_child(before + 2);
      EXPECT_EQ(status.st_ino, read(1));
      die(now);
      ASSERT_EQ(now == kAfterTake ? uint32_t{EIO} : 0u, unmap());
      wait_for_child(before + 3);
      EXPECT_EQ(uint32_t{ENOENT}, unmap());
    }
    uint64_t count = 0;
    EXPECT_EQ(0u, ring());
    ++rung;
    EXPECT_EQ(ssize_t{8}, ::read(event.get(), &count, sizeof count));
    EXPECT_GE(count, 2u);
  }
  EXPECT_EQ(3u, dropped_);  // of the deaths after an answer
  EXPECT_EQ(rung, read(0));
}

// An answer with payload is the one that the process before had kept.
TEST_F(KeeperTest, AReadIsAnswered) {
  ASSERT_EQ(0u, vmm_->negotiate());
  for (uint64_t i = 1; i <= 5; ++i) {
    ASSERT_EQ(0u, ring());
    die(kAfterNote);
    EXPECT_EQ(i, read(0));
    wait_for_child(static_cast<uint32_t>(1 + i));
  }
  EXPECT_EQ(0u, dropped_);
}

// Posted writes that wait in the socket are not lost, and get no answer.
TEST_F(KeeperTest, PostedWrites) {
  ASSERT_EQ(0u, vmm_->negotiate());
  for (uint32_t now = kBeforeLook; now < kAfterAnswer; ++now) {
    die(now);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(vmm_->post<uint32_t>(0, 0, 7));
    EXPECT_EQ(20 * now, read(0)) << now;
  }
  EXPECT_EQ(0u, dropped_);
}

// Of which two processes die.
TEST_F(KeeperTest, AMessageThatKills) {
  ASSERT_EQ(0u, vmm_->negotiate());
  ASSERT_EQ(0u, ring());
  for (uint64_t i = 1; i <= 3; ++i) {
    die(kBeforeEffect, 2);
    EXPECT_EQ(uint32_t{EIO}, ring());
    EXPECT_EQ(1 + 2 * i, stage->children);
    EXPECT_EQ(i, read(0));
    EXPECT_EQ(0u, ring());  // the next one is another
  }
  die(kBeforeEffect, 1);
  EXPECT_EQ(0u, ring());
  EXPECT_EQ(5u, read(0));
}

// The VMM would never connect again.
TEST_F(KeeperTest, TheNextProcessIsTriedAgain) {
  ASSERT_EQ(0u, vmm_->negotiate());
  stage->shortages = 3;
  die(kBeforeEffect);
  ASSERT_EQ(0u, ring());
  EXPECT_EQ(0u, stage->shortages);
  EXPECT_EQ(1u, read(0));
  EXPECT_EQ(2u, stage->children);
}

TEST_F(KeeperTest, TheNextVmm) {
  ASSERT_EQ(0u, vmm_->negotiate());
  ASSERT_EQ(0u, ring());
  const auto second = connect();  // one at a time
  EXPECT_EQ(Vmm::kNoAnswer, second->negotiate());
  for (int i = 0; i < 3; ++i) {
    const pid_t child = stage->child;
    vmm_->hang_up();
    // The keeper lets the next one in when its child has said that the first is gone.
    do vmm_ = connect();
    while (vmm_->negotiate() != 0);
    EXPECT_EQ(0u, read(0));
    ASSERT_EQ(0u, ring());
    ASSERT_EQ(0u, ring());
    EXPECT_EQ(child, stage->child);
    die(kAfterEffect);
    ASSERT_EQ(0u, ring());
    EXPECT_EQ(3u, read(0));
  }
}

TEST_F(KeeperTest, TwoHundredDeathsUnderTwoHundredThousandDoorbells) {
  constexpr uint64_t kRings = 200'000;
  constexpr uint32_t kDeaths = 200;
  ASSERT_EQ(0u, vmm_->negotiate());
  std::atomic<uint64_t> sent{0};
  std::thread killer([&] {
    std::mt19937_64 random(1);
    for (uint32_t i = 0; i < kDeaths; ++i) {
      while (sent < i * (kRings / kDeaths)) std::this_thread::yield();
      wait_for_child(i + 1);
      for (uint64_t spins = random() % 20'000; spins > 0; --spins)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      EXPECT_EQ(0, ::kill(stage->child, SIGKILL));
      while (stage->children == i + 1) std::this_thread::yield();
    }
  });
  size_t unknown = 0;
  for (uint64_t i = 0; i < kRings; ++i) {
    const uint32_t error = ring();
    ASSERT_TRUE(error == 0 || error == EIO) << error;
    unknown += error == EIO ? 1 : 0;
    ++sent;
  }
  killer.join();
  EXPECT_EQ(kRings, read(0));
  EXPECT_GE(stage->effects, kRings);
  EXPECT_EQ(kDeaths + 1, stage->children);
  EXPECT_LE(unknown + dropped_, size_t{kDeaths});
  std::printf("%zu requests failed, %zu answers were dropped, %llu writes began twice\n", unknown,
              dropped_, static_cast<unsigned long long>(stage->effects - kRings));
}

}  // namespace
}  // namespace vrdma::pvrdma
