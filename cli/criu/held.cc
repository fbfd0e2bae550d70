#include "cli/criu/held.h"

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "cli/criu/descriptors.h"

namespace vrdma::cli::criu {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

namespace {

constexpr size_t kScratch = 4096;

pid_t tracer_of(pid_t pid) { return std::atoi(status_of(pid, "TracerPid").c_str()); }

// Some calls, as vfork(2), are not interrupted, and a thread that is killed is not reaped while
// others of its process are traced. CRIU must not wait for either.
constexpr auto kPatience = std::chrono::seconds(2);

// The next stop of a traced thread; nothing: it has ended, or does not stop.
std::optional<int> stop_of(pid_t thread) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  constexpr useconds_t kNap = 100;
  do {
    int status = 0;
    const pid_t got = ::waitpid(thread, &status, __WALL | WNOHANG);
    if (got == thread && WIFSTOPPED(status)) return status;
    if (got != 0) return {};
    ::usleep(kNap);
  } while (std::chrono::steady_clock::now() < deadline);
  return {};
}

constexpr int kEventShift = 16;

// Waits for the stop of a thread that was asked to. A signal that comes before goes its way.
bool stopped(pid_t thread) {
  for (;;) {
    const auto status = stop_of(thread);
    if (!status) return false;
    if (*status >> kEventShift == PTRACE_EVENT_STOP) return true;
    if (::ptrace(PTRACE_CONT, thread, nullptr, static_cast<intptr_t>(WSTOPSIG(*status))) != 0)
      return false;
  }
}

pid_t own_number() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

}  // namespace

bool is_held(pid_t pid) { return tracer_of(pid) == own_number(); }

void end_all(pid_t root) {
  std::vector<std::pair<pid_t, std::vector<pid_t>>> all;  // processes and their threads
  for (const pid_t pid : tree_of(root)) all.emplace_back(pid, threads_of(pid));
  for (const auto& [pid, threads] : all) (void)::kill(pid, SIGKILL);
  // Descendants first. A process can be reaped after its other threads. ECHILD: CRIU does not trace
  // it.
  const auto reap = [](pid_t thread) {
    int status = 0;
    while (::waitpid(thread, &status, __WALL) == thread && !WIFEXITED(status) &&
           !WIFSIGNALED(status)) {
    }
  };
  std::for_each(all.rbegin(), all.rend(), [&](const auto& process) {
    for (const pid_t thread : process.second)
      if (thread != process.first) reap(thread);
    reap(process.first);
  });
}

Result<Held> Held::hold(pid_t pid) {
  Held held;
  held.pid_ = pid;
  held.pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!held.pidfd_.valid()) return fail_errno("open process " + std::to_string(pid));
  const pid_t tracer = tracer_of(pid);
  if (tracer == 0) {
    if (auto all = held.stop_all(); !all) return base::pass(std::move(all).error());
  } else if (tracer != own_number()) {
    return fail(EPERM,
                "process " + std::to_string(tracer) + " traces process " + std::to_string(pid));
  }
  if (::ptrace(PTRACE_GETREGS, pid, nullptr, &held.saved_) != 0)
    return fail_errno("read the registers of process " + std::to_string(pid));
  // No signal is taken in between: it would lose what comes with it.
  const uint64_t all = ~uint64_t{0};
  if (::ptrace(PTRACE_GETSIGMASK, pid, sizeof held.mask_, &held.mask_) != 0 ||
      ::ptrace(PTRACE_SETSIGMASK, pid, sizeof all, &all) != 0)
    return fail_errno("hold back signals of process " + std::to_string(pid));
  held.has_saved_ = true;
  if (auto found = held.find_instruction(); !found) return base::pass(std::move(found).error());
  return held;
}

Held& Held::operator=(Held&& other) noexcept {
  pid_ = std::exchange(other.pid_, 0);
  seized_ = std::exchange(other.seized_, {});
  saved_ = other.saved_;
  has_saved_ = std::exchange(other.has_saved_, false);
  mask_ = other.mask_;
  instruction_ = other.instruction_;
  scratch_ = std::exchange(other.scratch_, 0);
  pidfd_ = std::move(other.pidfd_);
  return *this;
}

Held::~Held() {
  if (scratch_ != 0) (void)call("unmap memory", SYS_munmap, std::exchange(scratch_, 0), kScratch);
  if (has_saved_) {
    (void)::ptrace(PTRACE_SETREGS, pid_, nullptr, &saved_);
    (void)::ptrace(PTRACE_SETSIGMASK, pid_, sizeof mask_, &mask_);
  }
  for (const pid_t thread : seized_) (void)::ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
}

// Threads may be made until all that there are have stopped.
Result<void> Held::stop_all() {
  for (bool more = true; more;) {
    more = false;
    for (const pid_t thread : threads_of(pid_)) {
      if (std::find(seized_.begin(), seized_.end(), thread) != seized_.end()) continue;
      more = true;
      // A filter of system calls is for the program's.
      if (::ptrace(PTRACE_SEIZE, thread, nullptr, intptr_t{PTRACE_O_SUSPEND_SECCOMP}) != 0 &&
          (errno == ESRCH || ::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0)) {
        if (errno == ESRCH) continue;
        return fail_errno("stop process " + std::to_string(pid_));
      }
      seized_.push_back(thread);
      if (::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0 || !stopped(thread))
        return fail(ETIMEDOUT, "thread " + std::to_string(thread) + " of process " +
                                   std::to_string(pid_) + " ends, or does not stop");
    }
  }
  return {};
}

// Any will do: nothing behind it is executed.
Result<void> Held::find_instruction() {
  std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    uint64_t start = 0, end = 0;
    char dash = 0;
    std::string protection;
    words >> std::hex >> start >> dash >> end >> protection;
    if (protection.size() < 3 || protection[2] != 'x' || end - start > (64u << 20)) continue;
    std::vector<uint8_t> text(end - start);
    if (!read(start, text.data(), text.size())) continue;
    static constexpr uint8_t kSyscall[] = {0x0f, 0x05};
    const auto at = std::search(text.begin(), text.end(), std::begin(kSyscall), std::end(kSyscall));
    if (at == text.end()) continue;
    instruction_ = start + static_cast<uint64_t>(at - text.begin());
    return {};
  }
  return fail(ENOEXEC, "process " + std::to_string(pid_) + " has no code that makes system calls");
}

// One instruction, or none: a stop may come before it.
bool Held::step() {
  return ::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr) == 0 && stop_of(pid_).has_value();
}

Result<uint64_t> Held::call(const char* what, long number, uint64_t a, uint64_t b, uint64_t c,
                            uint64_t d, uint64_t e, uint64_t f) {
  user_regs_struct now = saved_;
  now.rip = instruction_;
  now.rax = static_cast<unsigned long long>(number);
  now.orig_rax = ~0ull;  // it is in no system call that would be restarted
  now.rdi = a;
  now.rsi = b;
  now.rdx = c;
  now.r10 = d;
  now.r8 = e;
  now.r9 = f;
  if (::ptrace(PTRACE_SETREGS, pid_, nullptr, &now) != 0)
    return fail_errno(std::string(what) + " in process " + std::to_string(pid_));
  constexpr int kMostStops = 64;
  for (int stops = 0; now.rip != instruction_ + 2; ++stops)
    if (stops == kMostStops || !step() || ::ptrace(PTRACE_GETREGS, pid_, nullptr, &now) != 0)
      return fail_errno(std::string(what) + " in process " + std::to_string(pid_));
  constexpr auto kMostErrors = uint64_t{4095};
  if (now.rax > ~kMostErrors)
    return fail(static_cast<int>(-static_cast<int64_t>(now.rax)),
                std::string(what) + " in process " + std::to_string(pid_) + ": " +
                    std::strerror(static_cast<int>(-static_cast<int64_t>(now.rax))));
  return now.rax;
}

Result<uint64_t> Held::scratch() {
  if (scratch_ != 0) return scratch_;
  auto made = call("map memory", SYS_mmap, 0, kScratch, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, ~0ull, 0);
  if (made) scratch_ = *made;
  return made;
}

Result<void> Held::write(uint64_t to, const void* from, size_t size) const {
  const iovec here{const_cast<void*>(from), size}, there{reinterpret_cast<void*>(to), size};
  if (::process_vm_writev(pid_, &here, 1, &there, 1, 0) != static_cast<ssize_t>(size))
    return fail_errno("write to the memory of process " + std::to_string(pid_));
  return {};
}

Result<void> Held::read(uint64_t from, void* to, size_t size) const {
  const iovec here{to, size}, there{reinterpret_cast<void*>(from), size};
  if (::process_vm_readv(pid_, &here, 1, &there, 1, 0) != static_cast<ssize_t>(size))
    return fail_errno("read the memory of process " + std::to_string(pid_));
  return {};
}

Result<void> Held::end_thread(pid_t thread) {
  user_regs_struct now{};
  const std::string which = "end thread " + std::to_string(thread);
  if (::ptrace(PTRACE_GETREGS, thread, nullptr, &now) != 0) return fail_errno(which);
  now.rip = instruction_;
  now.rax = SYS_exit;
  now.orig_rax = ~0ull;
  now.rdi = 0;
  if (::ptrace(PTRACE_SETREGS, thread, nullptr, &now) != 0 ||
      ::ptrace(PTRACE_CONT, thread, nullptr, nullptr) != 0)
    return fail_errno(which);
  int status = 0;
  if (::waitpid(thread, &status, __WALL) != thread || !WIFEXITED(status))
    return fail(EINTR, which + ": it has not ended");
  std::erase(seized_, thread);
  return {};
}

Result<Fd> Held::take(int number) const {
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd_.get(), number, 0)));
  if (!fd.valid()) return fail_errno("take a descriptor of process " + std::to_string(pid_));
  return fd;
}

// By a message of a pair of sockets that the process makes.
Result<int> Held::give(const Fd& file) {
  struct Room {
    int pair[2];
    msghdr message;
    iovec byte;
    char text;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  };
  auto at = scratch();
  if (!at) return base::pass(std::move(at).error());
  Room room{};
  if (auto made = call("make a pair of sockets", SYS_socketpair, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC,
                       0, *at + offsetof(Room, pair));
      !made)
    return base::pass(std::move(made).error());
  if (auto done = read(*at + offsetof(Room, pair), room.pair, sizeof room.pair); !done)
    return base::pass(std::move(done).error());
  const auto given = [&]() -> Result<int> {
    const auto sender = take(room.pair[1]);
    if (!sender) return base::pass(sender.error());
    room.byte = {&room.text, 1};
    room.message.msg_iov = &room.byte;
    room.message.msg_iovlen = 1;
    room.message.msg_control = room.control;
    room.message.msg_controllen = sizeof room.control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&room.message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = file.get();
    std::memcpy(CMSG_DATA(rights), &number, sizeof number);
    if (::sendmsg(sender->get(), &room.message, MSG_DONTWAIT) != 1)
      return fail_errno("send a descriptor to process " + std::to_string(pid_));
    // The same message as the process sees it.
    const auto there = [&](size_t offset) { return reinterpret_cast<void*>(*at + offset); };
    room.byte.iov_base = there(offsetof(Room, text));
    room.message.msg_iov = static_cast<iovec*>(there(offsetof(Room, byte)));
    room.message.msg_control = there(offsetof(Room, control));
    if (auto done = write(*at, &room, sizeof room); !done)
      return base::pass(std::move(done).error());
    if (auto got = call("receive a descriptor", SYS_recvmsg, static_cast<uint64_t>(room.pair[0]),
                        *at + offsetof(Room, message), MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        !got)
      return base::pass(std::move(got).error());
    if (auto done = read(*at, &room, sizeof room); !done)
      return base::pass(std::move(done).error());
    int received = -1;
    std::memcpy(&received, room.control + CMSG_LEN(0), sizeof received);
    if (room.message.msg_controllen < CMSG_LEN(sizeof received))
      return fail(EMFILE, "process " + std::to_string(pid_) + " has too many descriptors open");
    return received;
  }();
  for (const int each : room.pair)
    (void)call("close a descriptor", SYS_close, static_cast<uint64_t>(each));
  return given;
}

}  // namespace vrdma::cli::criu
