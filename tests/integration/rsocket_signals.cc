// rsocket_signals wait ADDRESS PORT: blocking calls on sockets over RDMA while signals arrive, at
// both ends of connections to itself, until their thread is cancelled, and by several threads.
// rsocket_signals take ADDRESS PORT LENGTH...: accepts a connection for each LENGTH, which must
// bring that many bytes before it ends. rsocket_signals leave ADDRESS PORT LENGTH
// close|shutdown|half: sends LENGTH bytes, and closes the socket while signals arrive, after a
// shutdown of nothing, both directions or its own.
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "rsocket_signals: %s: %s\n", what, std::strerror(errno));
  std::_Exit(1);
}

std::atomic<int> handled;

void handle(int number, int flags) {
  struct sigaction action {};
  action.sa_handler = [](int) { ++handled; };
  action.sa_flags = flags;
  check(sigaction(number, &action, nullptr) == 0, "sigaction");
}

// Runs `call` while signals with a handler of `flags` arrive at this thread; after some of them
// calls `then`. Returns the result of `call`; errno is that of `call`.
ssize_t disturb(
    int flags, const std::function<ssize_t()>& call, const std::function<void()>& then = [] {}) {
  handle(SIGUSR1, flags);
  std::atomic<bool> returned = false;
  handled = 0;
  std::thread disturber([&, waiter = pthread_self()] {
    for (bool done = false; !returned;) {
      pthread_kill(waiter, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (done || handled < 20) continue;
      then();
      done = true;
    }
  });
  const ssize_t result = call();
  const int error = errno;
  returned = true;
  disturber.join();
  errno = error;
  return result;
}

void expect_interrupted(int flags, const std::function<ssize_t()>& call, const char* what) {
  check(disturb(flags, call) == -1 && errno == EINTR, what);
}

sockaddr_in address_of(char** words) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(words[1])));
  check(inet_pton(AF_INET, words[0], &address.sin_addr) == 1, "the address");
  return address;
}

int listen_at(const sockaddr_in& address) {
  const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
  check(fd >= 0, "rsocket");
  check(rbind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "rbind");
  check(rlisten(fd, 4) == 0, "rlisten");
  return fd;
}

int connect_to(const sockaddr_in& address, int fd = rsocket(AF_INET, SOCK_STREAM, 0)) {
  return rconnect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? fd : -1;
}

void receive_all(int fd, size_t length) {
  std::vector<char> buffer(length);
  check(rrecv(fd, buffer.data(), length, MSG_WAITALL) == static_cast<ssize_t>(length), "rrecv");
}

// A thread that blocks in rrecv() ends when it is cancelled, and unwinds.
[[maybe_unused]] void expect_cancelled(int fd) {
  struct Sleeper {
    int fd;
    std::atomic<bool> unwound = false;
  } sleeper{fd};
  struct Mark {
    std::atomic<bool>& unwound;
    ~Mark() { unwound = true; }
  };
  pthread_t thread;
  const auto sleep = [](void* argument) -> void* {
    auto* const self = static_cast<Sleeper*>(argument);
    const Mark mark{self->unwound};
    char byte = 0;
    check(rrecv(self->fd, &byte, 1, 0) >= 0, "rrecv that is cancelled");
    return nullptr;
  };
  check(pthread_create(&thread, nullptr, sleep, &sleeper) == 0, "pthread_create");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  check(pthread_cancel(thread) == 0, "pthread_cancel");
  void* result = nullptr;
  check(pthread_join(thread, &result) == 0, "pthread_join");
  check(result == PTHREAD_CANCELED && sleeper.unwound, "the thread was cancelled");
}

// Threads that wait for a byte each, at one socket.
class Readers {
 public:
  Readers(int fd, bool polls) : fd_(fd), polls_(polls) {
    for (Reader& each : readers_) {
      each.all = this;
      check(pthread_create(&each.thread, nullptr, run, &each) == 0, "pthread_create");
    }
  }
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // Until those that have no byte yet sleep.
  void await(int done) const {
    const auto is_asleep = [](const Reader& each) {
      const int id = each.id;
      if (id == 0) return false;
      char text[512] = {};
      FILE* const file =
          std::fopen(("/proc/self/task/" + std::to_string(id) + "/stat").c_str(), "r");
      if (file == nullptr) return true;  // it has ended
      const bool read = std::fread(text, 1, sizeof text - 1, file) > 0;
      std::fclose(file);
      const char* const state = std::strrchr(text, ')');
      return read && state != nullptr && state[2] == 'S';
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (done_ != done || !std::all_of(readers_.begin(), readers_.end(), is_asleep)) {
      check(std::chrono::steady_clock::now() < end, "threads that wait for a byte sleep");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // One of those that still wait.
  void cancel() {
    const auto one = std::find_if(readers_.begin(), readers_.end(),
                                  [](const Reader& each) { return !each.done; });
    check(pthread_cancel(one->thread) == 0, "pthread_cancel");
    end(*one);
    one->done = true;
  }
  void join() {
    for (Reader& each : readers_) end(each);
  }

 private:
  struct Reader {
    Readers* all = nullptr;
    pthread_t thread{};
    std::atomic<int> id = 0;
    std::atomic<bool> done = false;
    bool joined = false;
  };
  static void* run(void* argument) {
    auto* const self = static_cast<Reader*>(argument);
    self->id = static_cast<int>(::gettid());
    self->all->read();
    self->done = true;
    ++self->all->done_;
    return nullptr;
  }
  void read() const {
    char byte = 0;
    if (!polls_) return check(rrecv(fd_, &byte, 1, 0) == 1, "rrecv of one of several threads");
    for (;;) {
      pollfd one{fd_, POLLIN, 0};
      check(rpoll(&one, 1, -1) == 1, "rpoll of one of several threads");
      if (rrecv(fd_, &byte, 1, MSG_DONTWAIT) == 1) return;
      check(errno == EAGAIN, "rrecv after rpoll");
    }
  }
  static void end(Reader& reader) {
    if (!std::exchange(reader.joined, true)) (void)pthread_join(reader.thread, nullptr);
  }

  const int fd_;
  const bool polls_;
  std::atomic<int> done_ = 0;
  std::array<Reader, 4> readers_;
};

// They take no processor time while there is nothing to read.
void expect_idle(const char* what) {
  constexpr int kMost = 100'000'000, kWhile = 300'000'000;  // ns
  const auto used = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
  };
  const auto before = used();
  std::this_thread::sleep_for(std::chrono::nanoseconds(kWhile));
  check(used() - before < kMost, what);
}

void wait_together(int from, int to, bool polls) {
  Readers readers(to, polls);
  readers.await(0);
  check(rsend(from, "1", 1, 0) == 1, "rsend to several threads");
  readers.await(1);
  expect_idle("three threads that wait at one socket spin");
  int done = 1;
#ifndef __SANITIZE_ADDRESS__
  readers.cancel();
#else
  check(rsend(from, "2", 1, 0) == 1, "rsend to three threads");
  readers.await(++done);
#endif
  check(rsend(from, "3", 1, 0) == 1, "rsend to two threads");
  readers.await(++done);
  expect_idle("a thread spins that waits where others have waited");
  check(rsend(from, "4", 1, 0) == 1, "rsend to one thread");
  readers.join();
}

// ---- wait ---------------------------------------------------------------------------------------

void wait(const sockaddr_in& address) {
  const int listener = listen_at(address);
  const auto accept = [&] { return raccept(listener, nullptr, nullptr); };
  expect_interrupted(0, accept, "raccept without SA_RESTART");

  // Each waits for the other.
  int client = -1;
  std::thread other;
  const ssize_t server = disturb(
      SA_RESTART, accept, [&] { other = std::thread([&] { client = connect_to(address); }); });
  check(server >= 0, "raccept");
  other.join();
  check(client >= 0, "rconnect");
  int second = -1;
  const ssize_t connected = disturb(
      SA_RESTART, [&] { return connect_to(address); },
      [&] { second = static_cast<int>(raccept(listener, nullptr, nullptr)); });
  check(connected >= 0, "rconnect while signals come");
  check(second >= 0, "raccept of it");

  const int to = static_cast<int>(server);
  char byte = 0;
  const auto receive = [&] { return rrecv(to, &byte, 1, 0); };
  expect_interrupted(0, receive, "rrecv without SA_RESTART");
  check(disturb(SA_RESTART, receive, [&] { check(rsend(client, "x", 1, 0) == 1, "rsend"); }) == 1,
        "rrecv");
  check(byte == 'x', "what has come");
  const timeval limit{60, 0};
  check(rsetsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0, "SO_RCVTIMEO");
  expect_interrupted(SA_RESTART, receive, "rrecv with a limit");

#ifndef __SANITIZE_ADDRESS__  // it reports the unwinding of a cancelled thread as an overflow
  expect_cancelled(second);
#endif

  wait_together(client, to, false);
  wait_together(client, to, true);

  const std::vector<char> many(1U << 22, 'y');
  size_t before = 0;
  for (ssize_t some = 0; some >= 0; before += static_cast<size_t>(std::max<ssize_t>(some, 0)))
    some = rsend(client, many.data(), many.size(), MSG_DONTWAIT);
  check(errno == EAGAIN, "rsend until there is no room");
  const auto send = [&] { return rsend(client, many.data(), many.size(), 0); };
  expect_interrupted(0, send, "rsend without SA_RESTART");
  std::thread reader;
  const ssize_t sent = disturb(SA_RESTART, send, [&] {
    reader = std::thread([&] { receive_all(to, before + many.size()); });
  });
  check(sent == static_cast<ssize_t>(many.size()), "rsend");
  reader.join();
  for (const int fd : {client, to, static_cast<int>(connected), second, listener}) rclose(fd);
}

// ---- take and leave -----------------------------------------------------------------------------

void take(int listener, size_t length) {
  const int fd = raccept(listener, nullptr, nullptr);
  check(fd >= 0, "raccept");
  size_t taken = 0;
  char buffer[4096];
  for (;;) {
    const ssize_t some = rrecv(fd, buffer, sizeof buffer, 0);
    if (some < 0) std::fprintf(stderr, "rsocket_signals: after %zu bytes\n", taken);
    check(some >= 0, "rrecv");
    if (some == 0) break;
    taken += static_cast<size_t>(some);
  }
  if (taken != length) {
    std::fprintf(stderr, "rsocket_signals: %zu bytes of %zu have come\n", taken, length);
    std::_Exit(1);
  }
  rclose(fd);
}

void leave(const sockaddr_in& address, size_t length, const std::string& how) {
  const int fd = connect_to(address);
  check(fd >= 0, "rconnect");
  const std::vector<char> bytes(length, 'z');
  check(rsend(fd, bytes.data(), length, 0) == static_cast<ssize_t>(length), "rsend");
  handle(SIGALRM, 0);
  const itimerval often{{0, 1000}, {0, 1000}};
  check(setitimer(ITIMER_REAL, &often, nullptr) == 0, "setitimer");
  if (how != "close") check(rshutdown(fd, how == "half" ? SHUT_WR : SHUT_RDWR) == 0, "rshutdown");
  check(rclose(fd) == 0, "rclose");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 3 ? argv[1] : "";
  if (what == "wait") {
    wait(address_of(argv + 2));
  } else if (what == "take") {
    const int listener = listen_at(address_of(argv + 2));
    for (int i = 4; i < argc; ++i) take(listener, std::strtoul(argv[i], nullptr, 10));
    rclose(listener);
  } else if (what == "leave" && argc == 6) {
    leave(address_of(argv + 2), std::strtoul(argv[4], nullptr, 10), argv[5]);
  } else {
    std::fprintf(stderr, "usage: see rsocket_signals.cc\n");
    return 2;
  }
  return 0;
}
