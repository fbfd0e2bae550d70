// Programs with several threads that register memory, for standstill.sh:
//
//   standstill race VDEVICE SECONDS BYTES [PIECES]
//                                           threads write, and the kernel for one, while another
//                                           registers and deregisters, in PIECES one after the
//                                           other between which it makes more threads; no write
//                                           may be lost, and the number of late ones is printed
//   standstill calls VDEVICE                threads block in system calls: none may be disturbed
//   standstill falls VDEVICE HOW            registers memory that cannot be put in place because of
//                                           HOW
//
// Each prints its result and exits with 0 if it is right.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kPage = 4096;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::_Exit(1);
}

struct Device {
  ibv_pd* pd = nullptr;

  explicit Device(const char* name) {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    for (int i = 0; i < count; ++i)
      if (std::strcmp(ibv_get_device_name(list[i]), name) == 0)
        pd = ibv_alloc_pd(ibv_open_device(list[i]));
    if (pd == nullptr) fail("open the vdevice");
  }
  [[nodiscard]] ibv_mr* add(void* memory, size_t size) const {
    ibv_mr* const mr =
        ibv_reg_mr(pd, memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (mr == nullptr) fail("register");
    return mr;
  }
};

uint8_t* make_memory(size_t size) {
  void* const made =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) fail("mmap");
  return static_cast<uint8_t*>(made);
}

// Bytes of [memory, memory + size), in pages of the memory arena.
size_t in_place(const uint8_t* memory, size_t size) {
  FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) fail("open the maps");
  const auto from = reinterpret_cast<uint64_t>(memory), to = from + size;
  char line[512];
  size_t sum = 0;
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long long start = 0, end = 0;
    if (std::sscanf(line, "%llx-%llx", &start, &end) != 2 ||
        std::strstr(line, "vrdma-memory") == nullptr || start >= to || end <= from)
      continue;
    sum += std::min<uint64_t>(end, to) - std::max<uint64_t>(start, from);
  }
  std::fclose(maps);
  return sum;
}

// ---- race ---------------------------------------------------------------------------------------

constexpr unsigned kWriters = 4;
constexpr size_t kStep = 1024;  // bytes between two words of one writer
constexpr unsigned kMostWriters = kStep / 64;

struct Race {
  uint8_t* memory = nullptr;
  size_t size = 0, pieces = 1;
  std::atomic<bool> over = false;
  std::atomic<uint64_t> stores = 0, late = 0, lost = 0, blocks = 0, bad_blocks = 0;
};

// The written word is visible, or will be soon. It may be late only if the stopper was killed.
void look(Race& race, const volatile uint64_t& word, uint64_t written) {
  if (word == written) return;
  const auto end = Clock::now() + std::chrono::seconds(2);
  while (word != written && Clock::now() < end) ::usleep(100);
  ++(word == written ? race.late : race.lost);
}

// Writes to all of the memory except its last page, and checks each time whether its previous write
// is still there.
void write_words(Race& race, unsigned number) {
  const size_t words = (race.size - kPage) / kStep;
  std::vector<uint64_t> last(words, 0);
  uint64_t stores = 0;
  const auto word_at = [&](size_t i) {
    return reinterpret_cast<volatile uint64_t*>(race.memory + i * kStep + 64 * number);
  };
  while (!race.over.load(std::memory_order_relaxed)) {
    for (size_t i = 0; i < words && !race.over.load(std::memory_order_relaxed); ++i) {
      volatile uint64_t* const word = word_at(i);
      look(race, *word, last[i]);
      *word = last[i] = ++stores;
    }
  }
  for (size_t i = 0; i < words; ++i) look(race, *word_at(i), last[i]);
  race.stores += stores;
}

// The kernel writes to the last page.
void read_blocks(Race& race, int from) {
  uint8_t* const block = race.memory + race.size - kPage;
  for (uint64_t number = 0;; ++number) {
    std::array<uint64_t, 64> wanted{};
    wanted.fill(number);
    const ssize_t count = ::read(from, block, sizeof wanted);
    if (count == 0) return;
    if (count != sizeof wanted || std::memcmp(block, wanted.data(), sizeof wanted) != 0)
      ++race.bad_blocks;
    ++race.blocks;
  }
}

// Never blocks in write(2), in which it could not be stopped.
void send_blocks(Race& race, int to) {
  ::fcntl(to, F_SETFL, O_NONBLOCK);
  for (uint64_t number = 0; !race.over;) {
    std::array<uint64_t, 64> block{};
    block.fill(number);
    if (::write(to, block.data(), sizeof block) == sizeof block) ++number;
    ::usleep(50);
  }
  ::close(to);
}

// Registers fresh memory while all write to it. True if it was put in place.
bool run_round(const Device& device, Race& race) {
  int pipe[2];
  if (::pipe(pipe) != 0) fail("pipe");
  race.over = false;
  race.memory = make_memory(race.size);
  std::memset(race.memory, 0, race.size);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kWriters; ++i) threads.emplace_back([&, i] { write_words(race, i); });
  threads.emplace_back([&] { read_blocks(race, pipe[0]); });
  threads.emplace_back([&] { send_blocks(race, pipe[1]); });
  std::vector<ibv_mr*> mrs;
  const size_t piece = race.size / race.pieces;
  for (size_t i = 0; i < race.pieces; ++i) {
    mrs.push_back(device.add(race.memory + i * piece, piece));
    if (const unsigned next = kWriters + static_cast<unsigned>(i) / 4;
        race.pieces > 1 && i % 4 == 3 && next < kMostWriters)
      threads.emplace_back([&race, next] { write_words(race, next); });
  }
  const bool there = in_place(race.memory, race.size) == race.size;
  for (ibv_mr* const mr : mrs)
    if (ibv_dereg_mr(mr) != 0) fail("deregister");
  ::usleep(2000);  // the daemon limits its time for this
  race.over = true;
  for (auto& thread : threads) thread.join();
  ::close(pipe[0]);
  if (::munmap(race.memory, race.size) != 0) fail("munmap");
  return there;
}

int run_race(const Device& device, double seconds, size_t size, size_t pieces) {
  sigset_t term;
  ::sigemptyset(&term);
  ::sigaddset(&term, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &term, nullptr);
  std::atomic<bool> over = false;
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 10; ++i)
    sleepers.emplace_back([&] {
      while (!over) ::usleep(10'000);
    });
  Race race;
  race.size = size;
  race.pieces = pieces;
  uint64_t there = 0, rounds = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const auto told = [] {
    sigset_t pending;
    return ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGTERM) == 1;
  };
  for (; Clock::now() < end && !told(); ++rounds)
    if (run_round(device, race)) ++there;
  over = true;
  for (auto& thread : sleepers) thread.join();
  std::printf("%lu rounds, %lu in place, %lu stores, %lu late, %lu lost, %lu blocks, %lu bad\n",
              rounds, there, race.stores.load(), race.late.load(), race.lost.load(),
              race.blocks.load(), race.bad_blocks.load());
  return race.lost == 0 && race.bad_blocks == 0 ? 0 : 1;
}

// ---- calls --------------------------------------------------------------------------------------

struct Call {
  const char* name;
  // Blocks in the call until `wake` has been called; true if it returned as without a hold.
  std::function<bool()> sit;
  std::function<void()> wake;
};

struct Pipe {
  int out = -1, in = -1;
  Pipe() {
    int ends[2];
    if (::pipe(ends) != 0) fail("pipe");
    out = ends[0];
    in = ends[1];
  }
  void send() const {
    if (::write(in, "x", 1) != 1) fail("write");
  }
};

struct Pair {
  int a = -1, b = -1;
  Pair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("socketpair");
    a = ends[0];
    b = ends[1];
  }
  void send() const {
    if (::send(b, "x", 1, 0) != 1) fail("send");
  }
};

std::vector<Call> all_calls(std::atomic<uint32_t>& futex) {
  std::vector<Call> calls;
  const auto nothing = [] {};
  calls.push_back({"nanosleep",
                   [] {
                     const timespec time{2, 0};
                     const auto begun = Clock::now();
                     return ::nanosleep(&time, nullptr) == 0 &&
                            Clock::now() - begun >= std::chrono::milliseconds(1990);
                   },
                   nothing});
  calls.push_back({"futex",
                   [&futex] {
                     // EAGAIN: it was restarted after the value had changed (futex(2)).
                     return ::syscall(SYS_futex, &futex, FUTEX_WAIT, 0, nullptr, nullptr, 0) == 0 ||
                            (errno == EAGAIN && futex == 1);
                   },
                   [&futex] {
                     futex = 1;
                     ::syscall(SYS_futex, &futex, FUTEX_WAKE, 100, nullptr, nullptr, 0);
                   }});
  const Pipe polled, read, selected;
  calls.push_back({"poll",
                   [polled] {
                     pollfd one{polled.out, POLLIN, 0};
                     return ::poll(&one, 1, 60'000) == 1;
                   },
                   [polled] { polled.send(); }});
  calls.push_back({"select",
                   [selected] {
                     fd_set set;
                     FD_ZERO(&set);
                     FD_SET(selected.out, &set);
                     timeval time{60, 0};
                     return ::select(selected.out + 1, &set, nullptr, nullptr, &time) == 1;
                   },
                   [selected] { selected.send(); }});
  calls.push_back({"read of a pipe",
                   [read] {
                     char byte;
                     return ::read(read.out, &byte, 1) == 1;
                   },
                   [read] { read.send(); }});
  const Pipe waited;
  const int epoll = ::epoll_create1(0);
  epoll_event event{};
  event.events = EPOLLIN;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, waited.out, &event);
  for (const int timeout : {-1, 60'000})
    calls.push_back({timeout < 0 ? "epoll_wait" : "epoll_wait with a time-out",
                     [epoll, timeout] {
                       epoll_event came{};
                       return ::epoll_wait(epoll, &came, 1, timeout) == 1;
                     },
                     [waited] { waited.send(); }});
  const Pair plain, timed, sock;
  calls.push_back({"recv",
                   [plain] {
                     char byte;
                     return ::recv(plain.a, &byte, 1, 0) == 1;
                   },
                   [plain] { plain.send(); }});
  const timeval minute{60, 0};
  ::setsockopt(timed.a, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  ::setsockopt(sock.a, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  calls.push_back({"recv with a time-out",
                   [timed] {
                     char byte;
                     return ::recv(timed.a, &byte, 1, 0) == 1;
                   },
                   [timed] { timed.send(); }});
  calls.push_back({"read of a socket with a time-out",
                   [sock] {
                     char byte;
                     return ::read(sock.a, &byte, 1) == 1;
                   },
                   [sock] { sock.send(); }});
  const pid_t self = ::getpid();
  calls.push_back({"sigtimedwait",
                   [] {
                     sigset_t set;
                     ::sigemptyset(&set);
                     ::sigaddset(&set, SIGUSR1);
                     const timespec time{60, 0};
                     return ::sigtimedwait(&set, nullptr, &time) == SIGUSR1;
                   },
                   [self] { ::kill(self, SIGUSR1); }});
  calls.push_back({"sigwaitinfo",
                   [] {
                     sigset_t set;
                     ::sigemptyset(&set);
                     ::sigaddset(&set, SIGUSR2);
                     return ::sigwaitinfo(&set, nullptr) == SIGUSR2;
                   },
                   [self] { ::kill(self, SIGUSR2); }});
  const int timer = ::timerfd_create(CLOCK_MONOTONIC, 0);
  const itimerspec later{{0, 0}, {2, 0}};
  ::timerfd_settime(timer, 0, &later, nullptr);
  calls.push_back({"read of a timerfd",
                   [timer] {
                     uint64_t count;
                     return ::read(timer, &count, sizeof count) == sizeof count;
                   },
                   nothing});
  return calls;
}

int run_calls(const Device& device) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGUSR1);
  ::sigaddset(&set, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  static std::atomic<uint32_t> futex = 0;
  auto calls = all_calls(futex);
  std::vector<std::atomic<int>> result(calls.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < calls.size(); ++i)
    threads.emplace_back([&, i] {
      errno = 0;
      result[i] = calls[i].sit() ? 1 : -1 - errno;
    });
  ::usleep(200'000);
  constexpr size_t kSize = 64 * kPage;
  uint8_t* const memory = make_memory(kSize);
  int there = 0, rounds = 0;
  for (; rounds < 150; ++rounds) {
    std::memset(memory, rounds, kSize);
    ibv_mr* const mr = device.add(memory, kSize);
    if (in_place(memory, kSize) == kSize) ++there;
    if (ibv_dereg_mr(mr) != 0) fail("deregister");
    ::usleep(3000);
  }
  for (auto& call : calls) call.wake();
  for (auto& thread : threads) thread.join();
  int wrong = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (result[i] == 1) continue;
    std::printf("%s: %s\n", calls[i].name, std::strerror(-1 - result[i]));
    ++wrong;
  }
  std::printf("%zu calls, %d rounds, %d in place, %d wrong\n", calls.size(), rounds, there, wrong);
  return wrong == 0 && there >= rounds / 2 ? 0 : 1;
}

// ---- falls --------------------------------------------------------------------------------------

// Begins a thread and returns when it is in the system call with this number.
pid_t in_a_thread(long number, std::function<void()> work) {
  struct Thread {
    std::atomic<pid_t> id = 0;
    // A file that tells its system call, also where /proc is of another pid namespace.
    std::atomic<int> call = -1;
  };
  const auto thread = std::make_shared<Thread>();
  std::thread([thread, work = std::move(work)] {
    thread->id = static_cast<pid_t>(::syscall(SYS_gettid));
    thread->call = ::open("/proc/thread-self/syscall", O_RDONLY | O_CLOEXEC);
    work();
  }).detach();
  const auto its_call = [&] {
    char text[256] = "";
    return ::pread(thread->call, text, sizeof text - 1, 0) > 0 ? std::atol(text) : 0;
  };
  for (int i = 0; its_call() != number; ++i) {
    if (i == 30'000) fail("a thread does not begin its system call");
    ::usleep(1000);
  }
  return thread->id;
}

// A child traces the thread until it is killed.
pid_t trace(pid_t thread) {
  int ready[2];
  if (::pipe(ready) != 0) fail("pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) fail("trace");
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte;
  if (::read(ready[0], &byte, 1) != 1) fail("the tracer");
  return child;
}

int run_falls(const Device& device, const std::string& how) {
  constexpr size_t kSize = 16 * kPage;
  uint8_t* const memory = make_memory(kSize);
  std::memset(memory, 1, kSize);
  const pid_t sleeper = in_a_thread(SYS_pause, [] {
    for (;;) ::pause();
  });
  pid_t child = 0;
  static Pair pair;
  if (how == "traced") {
    child = trace(sleeper);
  } else if (how == "busy_call") {
    in_a_thread(SYS_sendto, [] {
      std::vector<char> much(8u << 20);
      (void)!::send(pair.a, much.data(), much.size(), 0);
    });
  } else if (how == "waitall") {
    in_a_thread(SYS_recvfrom, [] {
      char two[2];
      (void)!::recv(pair.a, two, sizeof two, MSG_WAITALL);
    });
  } else if (how == "vfork") {
    in_a_thread(SYS_vfork, [] {
      if (::vfork() == 0) {
        ::sleep(10);
        ::_exit(0);
      }
    });
  } else if (how != "nothing" && how != "unseen") {
    std::fprintf(stderr, "how?\n");
    return 2;
  }
  ibv_mr* mr = device.add(memory, kSize);
  size_t there = in_place(memory, kSize);
  // On a busy machine a thread may stop too late.
  for (int tries = 0; how == "nothing" && there < kSize && tries < 10; ++tries) {
    if (ibv_dereg_mr(mr) != 0) fail("deregister");
    ::usleep(100'000);
    mr = device.add(memory, kSize);
    there = in_place(memory, kSize);
  }
  std::printf("%s: %zu bytes of %zu in place\n", how.c_str(), there, kSize);
  if (ibv_dereg_mr(mr) != 0) fail("deregister");
  if (child != 0) ::kill(child, SIGKILL);
  return there == (how == "nothing" ? kSize : 0) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string what = argv[1];
  const Device device(argv[2]);
  int status = 2;
  if (what == "race" && (argc == 5 || argc == 6))
    status = run_race(device, std::atof(argv[3]), std::strtoul(argv[4], nullptr, 10),
                      argc == 6 ? std::strtoul(argv[5], nullptr, 10) : 1);
  else if (what == "calls")
    status = run_calls(device);
  else if (what == "falls" && argc == 4)
    status = run_falls(device, argv[3]);
  std::fflush(stdout);
  std::_Exit(status);
}
