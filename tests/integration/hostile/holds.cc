// Misuse of holds: programs that have threads held without putting memory in place.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"

namespace vrdma::hostile {

namespace {

using Clock = std::chrono::steady_clock;
using ipc::HoldPhase;

// The longest hold lasts a second; the machine may be busy.
constexpr auto kLongest = std::chrono::seconds(10);

uint32_t own_number() { return static_cast<uint32_t>(::syscall(SYS_gettid)); }

// A session whose process has counting threads.
struct Crowd {
  explicit Crowd(const Target& target) : client(target.socket) {
    client.open();
    for (auto& count : counts)
      std::thread([&count] {
        for (;;) {
          ++count;
          ::usleep(5000);
        }
      }).detach();
    all_run("before");
  }
  // The threads run, or will when a hold's time is over.
  void all_run(const std::string& when) {
    const auto end = Clock::now() + kLongest;
    for (const auto& count : counts)
      for (const uint64_t before = count; count == before; ::usleep(2000))
        expect(Clock::now() < end, "threads stand still " + when);
  }
  [[nodiscard]] ipc::Request request(uint32_t thread) const {
    ipc::Request made = request_of(ipc::Call::kHold);
    made.hold.thread = thread;
    return made;
  }
  ipc::HoldReply ask(uint32_t thread) {
    ipc::Request asked = request(thread);
    const Answer answer = client.call(asked);
    expect(answer.came && answer.error == 0, "a hold has no answer");
    return answer.reply.hold;
  }
  // Retries until it is granted: the vdevice's time for holds is limited per second.
  uint32_t hold() {
    for (const auto end = Clock::now() + 3 * kLongest; Clock::now() < end; ::usleep(50'000))
      if (const auto came = ask(own_number()); came.reached == 0) return came.serial;
    failed("no hold is granted any more");
  }
  [[nodiscard]] ipc::HoldWords& words() const {
    return *client.arena.at<ipc::HoldWords>(ipc::kHoldOffset);
  }

  Client client;
  std::array<std::atomic<uint64_t>, 4> counts{};
};

// Of threads of other processes: its parent, pid 1, a child.
void holds_of_others(const Target& target) {
  Crowd it(target);
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  for (const uint32_t thread : {0u, 1u, static_cast<uint32_t>(::getppid()),
                                static_cast<uint32_t>(child), 0x7fffffffu, 0xffffffffu}) {
    expect(it.ask(thread).reached != 0, "a hold for thread " + std::to_string(thread));
    it.all_run("for a thread of somebody else");
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  (void)it.hold();
}

// The program never reports the end, reports an endless exchange, or hangs up.
void holds_without_end(const Target& target) {
  Crowd it(target);
  (void)it.hold();
  it.all_run("when nobody says that it is over");
  const uint32_t serial = it.hold();
  it.words().state = ipc::hold_word(HoldPhase::kExchanging, serial);
  it.all_run("in an exchange without end");
  (void)it.hold();
  it.client.hang_up();
  it.all_run("after their session");
}

// Random values in the words, continuously.
void damaged_holds(const Target& target) {
  Crowd it(target);
  Random random(target.seed);
  const auto damage = [&](uint32_t serial) {
    it.words().state =
        random() % 2 == 0 ? random() : ipc::hold_word(static_cast<HoldPhase>(random() % 4), serial);
    it.words().owner = random() % 2 == 0 ? random() : own_number() | FUTEX_WAITERS;
  };
  for (int i = 0; i < 20; ++i) {
    const uint32_t serial = it.hold();
    for (int k = 0; k < 20'000; ++k) damage(serial);
    // The only state that the stopper waits for without limit.
    while (ipc::hold_phase(it.words().state) == HoldPhase::kMoving) damage(serial);
    it.all_run("by damaged words");
  }
}

// A process in a kMoving that never ends is held until it dies.
void moves_without_end(const Target& target) {
  const pid_t helper = ::fork();
  if (helper == 0) {
    Crowd it(target);
    it.words().state = ipc::hold_word(HoldPhase::kMoving, it.hold());
    for (;;) ::pause();
  }
  ::sleep(2);
  Crowd other(target);
  other.words().state = ipc::hold_word(HoldPhase::kOver, other.hold());
  other.all_run("beside one whose pages are away");
  ::kill(helper, SIGKILL);
  const auto end = Clock::now() + kLongest;
  while (::waitpid(helper, nullptr, WNOHANG) == 0) {
    expect(Clock::now() < end, "a killed process whose pages are away does not go");
    ::usleep(1000);
  }
}

// Many processes hold as often as they may, never report the end, and are killed.
void holds_by_many(const Target& target) {
  std::array<pid_t, 12> helpers{};
  for (pid_t& helper : helpers) {
    helper = ::fork();
    if (helper != 0) continue;
    Crowd it(target);
    for (;;) (void)it.ask(own_number());
  }
  ::sleep(3);
  for (const pid_t helper : helpers) ::kill(helper, SIGKILL);
  for (const pid_t helper : helpers) {
    const auto end = Clock::now() + kLongest;
    while (::waitpid(helper, nullptr, WNOHANG) == 0) {
      expect(Clock::now() < end, "a killed process that was held does not go");
      ::usleep(1000);
    }
  }
  Crowd it(target);
  (void)it.hold();
}

}  // namespace

std::vector<Attack> hold_attacks() {
  return {{"holds_of_others", holds_of_others},
          {"holds_without_end", holds_without_end},
          {"moves_without_end", moves_without_end},
          {"damaged_holds", damaged_holds},
          {"holds_by_many", holds_by_many}};
}

}  // namespace vrdma::hostile
