#include "vrdmad/stopper/hold.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "vrdmad/stopper/calls.h"

namespace vrdma::vrdmad::stopper {

using base::Fd;
using base::Result;
using ipc::HoldPhase;
using ipc::Reached;

namespace {

constexpr auto kLook = std::chrono::milliseconds(1);  // between two looks at a hold that lasts
constexpr int kInterrupted = SIGTRAP | PTRACE_EVENT_STOP << 8;  // si_status after PTRACE_INTERRUPT
constexpr unsigned long kWorkerOfTheKernel = 0x10 | 0x4000;     // PF_IO_WORKER, PF_USER_WORKER

void pause_for(std::chrono::microseconds time) {
  const timespec wanted{0, std::chrono::nanoseconds(time).count()};
  ::nanosleep(&wanted, nullptr);
}

void wait_while(ipc::Word& word, uint32_t value, std::chrono::milliseconds time) {
  const timespec wanted{0, std::chrono::nanoseconds(time).count()};
  (void)::syscall(SYS_futex, &word, FUTEX_WAIT, value, &wanted, nullptr, 0);
}

// Makes the kernel set FUTEX_OWNER_DIED in `owner` if this thread ends before the next call;
// nullptr: no word. Replaces the C library's robust list, which is for mutexes that this process
// does not use.
void announce_death_at(ipc::Word* owner) {
  struct Robust {
    robust_list_head head;
    robust_list entry;
  };
  static thread_local Robust robust;
  robust.entry.next = &robust.head.list;
  robust.head.list.next = owner != nullptr ? &robust.entry : &robust.head.list;
  robust.head.list_op_pending = nullptr;
  robust.head.futex_offset =
      reinterpret_cast<char*>(owner) - reinterpret_cast<char*>(&robust.entry);
  (void)::syscall(SYS_set_robust_list, &robust.head, sizeof robust.head);
}

}  // namespace

Result<Hold> Hold::make(rdma::PeerHandle process, const Fd& arena, uint32_t thread) {
  const auto directory = rdma::open_directory(process);
  if (!directory) return base::pass(directory.error());
  Fd tasks(::openat(directory->get(), "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!tasks.valid()) return base::fail_errno("list the threads of a process");
  auto page = base::Mapping::shared(arena, 4096, 0, PROT_READ | PROT_WRITE);
  if (!page) return base::pass(std::move(page).error());
  Hold hold(std::move(process), std::move(tasks), std::move(*page));
  hold.wanted_ = thread;
  return hold;
}

Hold::Hold(rdma::PeerHandle process, Fd tasks, base::Mapping page)
    : process_(std::move(process)), tasks_(std::move(tasks)), page_(std::move(page)) {}

std::string Hold::read(pid_t thread, const char* file) const {
  const Fd opened(
      ::openat(tasks_.get(), (std::to_string(thread) + "/" + file).c_str(), O_RDONLY | O_CLOEXEC));
  char text[4096];
  const ssize_t length = opened.valid() ? ::read(opened.get(), text, sizeof text) : -1;
  return length > 0 ? std::string(text, static_cast<size_t>(length)) : std::string();
}

// Whether the number is that of a thread of the process now.
bool Hold::is_there(pid_t thread) const {
  return ::faccessat(tasks_.get(), std::to_string(thread).c_str(), F_OK, 0) == 0;
}

bool Hold::list(std::vector<pid_t>* found) const {
  found->clear();
  if (::lseek(tasks_.get(), 0, SEEK_SET) != 0) return false;
  alignas(8) char entries[8192];
  for (;;) {
    const long length = ::syscall(SYS_getdents64, tasks_.get(), entries, sizeof entries);
    if (length < 0) return false;
    if (length == 0) return !found->empty();
    for (long at = 0; at < length;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      if (const int thread = std::atoi(entry->d_name); thread > 0) found->push_back(thread);
    }
  }
}

// In a pid namespace the program knows a thread by the last of its numbers.
bool Hold::is_spared(pid_t thread) {
  if (spared_ != 0) return thread == spared_;
  const std::string status = read(thread, "status");
  const size_t line = status.find("\nNSpid:");
  if (line == std::string::npos) return false;
  unsigned long last = 0;
  const char* at = status.c_str() + line + 7;
  for (;;) {
    while (*at == '\t' || *at == ' ') ++at;
    if (*at == '\n' || *at == '\0') break;
    char* end = nullptr;
    last = std::strtoul(at, &end, 10);
    if (end == at) break;
    at = end;
  }
  if (last != wanted_) return false;
  spared_ = thread;
  return true;
}

// Gives threads that are about to leave a call time to do so.
Reached Hold::wait_for_calls(const std::vector<pid_t>& threads) const {
  const auto deadline = Clock::now() + kPatience;
  for (const pid_t thread : threads) {
    for (;;) {
      const auto call = parse_call(read(thread, "syscall"));
      const Reached obstacle = call ? obstacle_in(*call) : Reached::kNot;
      if (obstacle == Reached::kNot) break;
      if (Clock::now() >= deadline) return obstacle;
      pause_for(std::chrono::microseconds(100));
    }
  }
  return Reached::kNot;
}

namespace {

thread_local sigjmp_buf* way_out = nullptr;

// While a thread of a process is in execve(2), ptrace(2) blocks; and if other threads of it are
// already traced, execve(2) waits for the tracer. ptrace has no timeout and restarts after a
// signal, so the handler jumps out of it.
class Impatience {
 public:
  explicit Impatience(std::chrono::nanoseconds after) {
    static const bool handled = [] {
      struct sigaction action {};
      action.sa_handler = [](int) {
        if (way_out != nullptr) ::siglongjmp(*way_out, 1);
      };
      return ::sigaction(SIGUSR1, &action, nullptr) == 0;
    }();
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGUSR1;
    event._sigev_un._tid = ::gettid();
    if (!handled || ::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;
    made_ = true;
    constexpr timespec kAgain{0, 5'000'000};
    const itimerspec times{kAgain, {0, after.count()}};
    ::timer_settime(timer_, 0, &times, nullptr);
  }
  ~Impatience() {
    if (made_) ::timer_delete(timer_);
  }
  Impatience(const Impatience&) = delete;
  Impatience& operator=(const Impatience&) = delete;

 private:
  timer_t timer_{};
  bool made_ = false;
};

// ETIME: it took too long.
int seize_in_time(pid_t thread) {
  sigjmp_buf out;
  if (sigsetjmp(out, 1) != 0) {
    way_out = nullptr;
    return ETIME;
  }
  way_out = &out;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const int error = ::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0 ? 0 : errno;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  way_out = nullptr;
  return error;
}

}  // namespace

// kNot also if the thread has ended.
Reached Hold::seize(pid_t thread) {
  if (!is_there(thread)) return Reached::kNot;
  const int error = seize_in_time(thread);
  if (error == ETIME) {
    // It may have been seized at the last moment.
    if (::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0) threads_[thread];
    return Reached::kDeadline;
  }
  if (error != 0) {
    errno = error;
    if (errno == ESRCH) return Reached::kNot;
    // "PID (name) state ppid pgrp session tty tpgid flags"
    const std::string stat = read(thread, "stat");
    const size_t name = stat.rfind(')');
    if (name == std::string::npos || name + 2 >= stat.size()) return Reached::kNot;
    const char state = stat[name + 2];
    if (state == 'Z' || state == 'X') {
      threads_[thread].state = State::kGone;
      return Reached::kNot;
    }
    size_t at = name + 2;
    for (int field = 3; field < 9 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
    const unsigned long flags =
        at == std::string::npos ? 0 : std::strtoul(stat.c_str() + at, nullptr, 10);
    return (flags & kWorkerOfTheKernel) != 0 ? Reached::kIoUring : Reached::kTraced;
  }
  // A number cannot be reused while its thread is traced. A thread of another process is not
  // stopped, and the kernel detaches it when this thread ends.
  if (!is_there(thread)) return Reached::kOther;
  threads_[thread];
  return ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0 || errno == ESRCH
             ? Reached::kNot
             : Reached::kOther;
}

// The thread may have stopped on its way out of a system call. The instruction of a call is two
// bytes long, whichever it was. If a signal handler is about to run, the program must see EINTR.
void Hold::begin_again(pid_t thread, int signal) const {
  user_regs_struct registers{};
  if (::ptrace(PTRACE_GETREGS, thread, nullptr, &registers) != 0) return;
  const auto number = static_cast<int64_t>(registers.orig_rax);
  if (static_cast<int64_t>(registers.rax) != -EINTR || !may_begin_again(number)) return;
  const std::string status = read(thread, "status");
  const auto signals = [&](const char* key) {
    const size_t line = status.find(key);
    return line == std::string::npos ? 0 : std::strtoull(status.c_str() + line + 8, nullptr, 16);
  };
  const uint64_t pending = (signals("\nSigPnd:") | signals("\nShdPnd:")) & ~signals("\nSigBlk:");
  const uint64_t arrived = signal > 0 ? uint64_t{1} << (signal - 1) : 0;
  if (status.empty() || ((pending | arrived) & signals("\nSigCgt:")) != 0) return;
  (void)::ptrace(PTRACE_POKEUSER, thread, offsetof(user, regs.rip), registers.rip - 2);
  (void)::ptrace(PTRACE_POKEUSER, thread, offsetof(user, regs.rax), registers.orig_rax);
}

// Checks whether the thread has stopped; does not wait.
Reached Hold::await(pid_t thread, Thread* its) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(thread), &info,
               WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL | __WNOTHREAD) != 0) {
    its->state = State::kGone;
    return Reached::kNot;
  }
  if (info.si_pid == 0) return Reached::kNot;  // not yet
  if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED) {
    (void)::waitid(P_PID, static_cast<id_t>(thread), &info,
                   WEXITED | WNOHANG | __WALL | __WNOTHREAD);
    its->state = State::kGone;
    return Reached::kNot;
  }
  its->state = State::kStopped;
  const int status = info.si_status;
  if (status == kInterrupted) return Reached::kNot;
  if (status >> 8 == PTRACE_EVENT_STOP) return Reached::kStopped;
  its->signal = status & 0x7f;
  return Reached::kNot;
}

Reached Hold::await_all(Clock::time_point deadline) {
  auto nap = std::chrono::microseconds(10);
  for (;;) {
    bool all = true;
    for (auto& [thread, its] : threads_) {
      if (its.state != State::kSeized) continue;
      if (const Reached obstacle = await(thread, &its); obstacle != Reached::kNot) return obstacle;
      all = all && its.state != State::kSeized;
    }
    if (all) return Reached::kNot;
    if (Clock::now() >= deadline) return Reached::kDeadline;
    pause_for(nap);
    nap = std::min(2 * nap, std::chrono::microseconds(500));
  }
}

Reached Hold::stop(uint32_t serial) {
  const auto deadline = Clock::now() + kStopping;
  const Impatience impatience(kStopping);
  for (;;) {
    std::vector<pid_t> found, fresh;
    if (!list(&found)) return Reached::kOther;
    if (found.size() > kMostThreads) return Reached::kRefused;
    for (const pid_t thread : found)
      if (!is_spared(thread) && !threads_.contains(thread)) fresh.push_back(thread);
    if (spared_ == 0) return Reached::kOther;  // it has ended, or belongs to another process
    if (fresh.empty()) break;
    if (const Reached busy = wait_for_calls(fresh); busy != Reached::kNot) return busy;
    for (const pid_t thread : fresh)
      if (const Reached obstacle = seize(thread); obstacle != Reached::kNot) return obstacle;
    // Stopped threads make no new ones.
    if (const Reached late = await_all(deadline); late != Reached::kNot) return late;
    if (Clock::now() >= deadline) return Reached::kDeadline;
  }
  if (!rdma::is_unchanged(process_)) return Reached::kOther;
  serial_ = serial;
  words().owner.store(static_cast<uint32_t>(::gettid()));
  announce_death_at(&words().owner);
  words().rest.store(1);
  words().state.store(ipc::hold_word(HoldPhase::kHeld, serial));
  return Reached::kNot;
}

bool Hold::is_over() const {
  const uint32_t state = words().state.load();
  return state >> 2 != serial_ || ipc::hold_phase(state) == HoldPhase::kOver;
}

// A stopped thread ends only by SIGKILL. Then all threads end, and another process may wait for
// that. waitid(2) reports a merely stopped tracee whatever the flags.
bool Hold::one_has_ended() const {
  for (const auto& [thread, its] : threads_) {
    if (its.state != State::kStopped) continue;
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(thread), &info,
                    WEXITED | WNOHANG | WNOWAIT | __WALL | __WNOTHREAD) != 0 ||
           (info.si_pid != 0 && info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED);
  }
  return false;
}

void Hold::keep(const std::function<bool()>& hurry) {
  const auto began = Clock::now();
  const uint32_t held = ipc::hold_word(HoldPhase::kHeld, serial_);
  uint32_t rest = 1;
  auto rests_since = began;
  while (!is_over()) {
    const auto looked = Clock::now();
    const auto lasted = looked - began;
    if (const uint32_t said = words().rest.load(); said != rest) {
      rest = said;
      rests_since = looked;
    }
    const bool rested = rest > 1 && looked - rests_since >= ipc::kRest;
    if (lasted >= kLongest || rested || hurry()) {
      uint32_t expected = held;
      if (words().state.compare_exchange_strong(expected,
                                                ipc::hold_word(HoldPhase::kOver, serial_)))
        break;
    }
    // The program wakes this futex when it is done, but not when an exchange begins or ends.
    const uint32_t now = words().state.load();
    const bool may_end = now != ipc::hold_word(HoldPhase::kMoving, serial_);
    if ((lasted >= kHardest && may_end) || !rdma::is_alive(process_.pidfd) || one_has_ended())
      break;
    if (now != ipc::hold_word(HoldPhase::kOver, serial_)) wait_while(words().state, now, kLook);
  }
}

void Hold::let_go() {
  // The thread that makes an exchange must learn of the end before other threads run.
  if (serial_ != 0) words().owner.store(FUTEX_OWNER_DIED);
  announce_death_at(nullptr);
  // An interrupted thread will stop, if late; its call must be restarted too.
  const auto deadline = Clock::now() + kHardest;
  for (;;) {
    bool all = true;
    for (auto& [thread, its] : threads_) {
      if (its.state == State::kSeized) (void)await(thread, &its);
      all = all && its.state != State::kSeized;
      if (its.state != State::kStopped) continue;
      begin_again(thread, its.signal);
      (void)::ptrace(PTRACE_DETACH, thread, nullptr, static_cast<intptr_t>(its.signal));
      its.state = State::kGone;
    }
    if (all || Clock::now() >= deadline) return;
    pause_for(std::chrono::microseconds(200));
  }
}

}  // namespace vrdma::vrdmad::stopper
