// rsocket_children ADDRESS PORT: children of a program whose plain sockets librspreload.so moves
// over RDMA. They close descriptors and duplicate them, as before exec(3), and their parent's
// sockets go on.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "rsocket_children: %s: %s\n", what, std::strerror(errno));
  std::_Exit(1);
}

struct Sockets {
  int listener = -1, client = -1, server = -1, set = -1;

  explicit Sockets(const sockaddr_in& address) {
    const auto* const at = reinterpret_cast<const sockaddr*>(&address);
    listener = ::socket(AF_INET, SOCK_STREAM, 0);
    check(::bind(listener, at, sizeof address) == 0, "bind");
    check(::listen(listener, 4) == 0, "listen");
    std::thread accepting([&] { server = ::accept(listener, nullptr, nullptr); });
    client = ::socket(AF_INET, SOCK_STREAM, 0);
    check(::connect(client, at, sizeof address) == 0, "connect");
    accepting.join();
    check(server >= 0, "accept");
    set = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN;
    check(::epoll_ctl(set, EPOLL_CTL_ADD, server, &event) == 0, "epoll_ctl");
  }
  void work(const char* when) const {
    char byte = 0;
    epoll_event event{};
    check(::send(client, "x", 1, 0) == 1, when);
    check(::epoll_wait(set, &event, 1, 10'000) == 1, when);
    check(::recv(server, &byte, 1, 0) == 1 && byte == 'x', when);
    check(::send(server, "y", 1, 0) == 1, when);
    check(::recv(client, &byte, 1, 0) == 1 && byte == 'y', when);
  }
};

void await(pid_t child, const char* what) {
  int status = -1;
  check(::waitpid(child, &status, 0) == child, what);
  if (status == 0) return;
  std::fprintf(stderr, "rsocket_children: %s ends with status %#x\n", what, status);
  std::_Exit(1);
}

// It has its parent's memory, and descriptors of its own.
void vfork_and_close(const Sockets& all) {
  const pid_t child = ::vfork();  // NOLINT: that it is no fork(2) is the point
  if (child == 0) {
    const bool done = ::dup2(all.client, 0) == 0 && ::dup2(0, all.set) == all.set &&
                      ::dup(all.client) >= 0 && ::close(all.client) == 0 &&
                      ::close(all.server) == 0 && ::close(all.listener) == 0;
    ::_exit(done ? 0 : 1);
  }
  await(child, "a child of vfork(2)");
  struct stat input {};
  check(::fstat(0, &input) == 0 && S_ISCHR(input.st_mode), "standard input is what it was");
  char byte = 0;
  check(::read(0, &byte, 1) == 0, "standard input is read as before");
  all.work("after a child of vfork(2)");
}

// Children of fork(3) while other threads change what the library knows of sockets and sets.
void fork_beside_threads(const Sockets& all) {
  constexpr int kChildren = 300;
  constexpr unsigned kPatience = 10;  // s
  std::atomic<bool> over = false;
  std::thread sets([&] {
    epoll_event event{};
    event.events = EPOLLIN;
    while (!over) check(::epoll_ctl(all.set, EPOLL_CTL_MOD, all.server, &event) == 0, "epoll_ctl");
  });
  std::thread sockets([&] {
    while (!over) check(::close(::socket(AF_INET, SOCK_STREAM, 0)) == 0, "close");
  });
  for (int i = 0; i < kChildren; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(kPatience);
      const bool done = ::close(all.client) == 0 && ::close(::dup(1)) == 0;
      if (!done) std::perror("close");
      // exit(3) closes what is left of sockets; only the parent's must not be.
      done ? std::exit(0) : ::_exit(1);
    }
    await(child, "a child of fork(3)");
  }
  over = true;
  sets.join();
  sockets.join();
  all.work("after children of fork(3)");
}

// A server that forks: the child closes what it inherits, and uses the numbers for its own.
void fork_and_use_the_numbers(const Sockets& all) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int number : {all.listener, all.client, all.server}) {
      bool done = ::close(number) == 0;
      const int fresh = ::socket(AF_INET, SOCK_STREAM, 0);
      const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      done = done && fresh >= 0 && file >= 0 && fresh != file && ::fcntl(fresh, F_GETFD) >= 0;
      if (!done) {
        std::perror("a socket of the child");
        ::_exit(1);
      }
    }
    std::exit(0);
  }
  await(child, "a child that makes sockets");
  all.work("after a child that made sockets");
}

}  // namespace

int main(int argc, char** argv) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (argc != 3 || ::inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
    std::fprintf(stderr, "usage: rsocket_children IPV4 PORT\n");
    return 2;
  }
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[2])));
  const Sockets all(address);
  all.work("at first");
  vfork_and_close(all);
  fork_and_use_the_numbers(all);
  fork_beside_threads(all);
  return 0;
}
