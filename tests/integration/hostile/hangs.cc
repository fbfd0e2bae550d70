// Descriptors and memory whose close or read hangs.
//
//   vrdma_hangs send SOCKET SESSIONS SECONDS   connections with such descriptors beside messages of
//                                              all kinds, some of which are never read
//   vrdma_hangs hold SOCKET SECONDS            a session with reached memory that hangs, and a
//                                              descriptor of a FUSE file beside a message
//   vrdma_hangs lock SOCKET SECONDS            a session whose shared files are locked in the
//                                              kernel, by threads that hang in read(2) and write(2)
//   vrdma_hangs exec SOCKET SECONDS [COUNT]    a session, and 48 connections or COUNT, of a process
//                                              in execve(2) that waits for a FUSE file that it has
//                                              written to
//
// Writes "sent" or "held" when the daemon has all of it. Without FUSE it says so and omits that
// part.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"
#include "tests/unit/vrdmad/broker/lingering_socket.h"

namespace vrdma::hostile {
namespace {

using base::Fd;
using ipc::Call;

Fd full_pipe() {
  std::array<int, 2> ends{};
  expect(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0, "a pipe");
  ::close(ends[0]);
  return Fd(ends[1]);
}

// Epoll instances that watch one another, to the depth that the kernel allows.
Fd nested_epolls() {
  Fd inner(::epoll_create1(EPOLL_CLOEXEC));
  for (int depth = 0; depth < 4; ++depth) {
    Fd outer(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(outer.get(), EPOLL_CTL_ADD, inner.get(), &event) != 0) break;
    inner = std::move(outer);
  }
  return inner;
}

// In a child that exits without closing: a killed process does not wait for sockets.
[[noreturn]] void send_each(const char* path, const std::vector<Fd>& fds) {
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < fds.size(); ++i) clients.push_back(std::make_unique<Client>(path));
  ipc::Request probe = request_of(Call::kProbe);
  for (size_t i = 0; i < fds.size(); ++i) {
    // Preceding work, so that the daemon reaches some after this process has exited.
    for (size_t k = 0; k < i % 3 * 20; ++k) clients[i]->send(&probe, sizeof probe);
    constexpr std::array kCalls{Call::kProbe, Call::kHello, Call::kImportDevice, Call::kResume};
    ipc::Request request = request_of(kCalls[i % kCalls.size()]);
    const int fd = fds[i].get();
    clients[i]->send_raw_fds(&request, sizeof request, std::vector<int>(i % 7 == 0 ? 20 : 1, fd));
    clients[i]->send_raw_fds(&request, sizeof request, {fd});  // also behind a fatal request
  }
  std::cout << "sent" << std::endl;
  ::kill(::getpid(), SIGKILL);
  ::_exit(0);
}

void raise_descriptor_limit() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

void send(const char* path, int sessions, int seconds) {
  const SilentFile file = make_silent_file();
  raise_descriptor_limit();
  std::vector<Fd> fds;
  std::vector<Fd> others;  // are never read
  for (int i = 0; i < sessions; ++i) {
    switch (i % 5) {
      case 0:
        fds.push_back(file.path.empty() ? full_pipe()
                                        : Fd(::open(file.path.c_str(), O_RDWR | O_CLOEXEC)));
        break;
      case 1:
        fds.push_back(full_pipe());
        break;
      case 2:
        fds.push_back(nested_epolls());
        break;
      default:
        fds.push_back(test::lingering_socket(seconds, &others.emplace_back()));
    }
    expect(fds.back().valid(), "a descriptor");
  }
  std::array<int, 2> gate{};
  expect(::pipe2(gate.data(), O_CLOEXEC) == 0, "a pipe");
  if (::fork() == 0) {
    ::close(gate[1]);
    char none = 0;
    (void)!::read(gate[0], &none, 1);  // until its descriptors are the only ones
    send_each(path, fds);
  }
  fds.clear();
  if (!file.path.empty()) file.silence();
  ::close(gate[1]);
  ::sleep(static_cast<unsigned>(seconds) + 30);
}

// Pages of a file whose server does not answer: an access hangs.
struct SilentPages {
  explicit SilentPages(const SilentFile& file) : fd(::open(file.path.c_str(), O_RDWR | O_CLOEXEC)) {
    expect(fd.valid(), "open a FUSE file");
    struct stat status {};
    expect(::fstat(fd.get(), &status) == 0, "learn its size, without which it has no pages");
    bytes = ::mmap(nullptr, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd.get(), 0);
    expect(bytes != MAP_FAILED, "map a FUSE file");
  }
  [[nodiscard]] void* page(int which) const { return static_cast<char*>(bytes) + which * 4096; }
  Fd fd;
  void* bytes = nullptr;
};

void hold(const char* path, int seconds) {
  const SilentFile file = make_silent_file();
  if (file.path.empty()) {
    std::cout << "nothing" << std::endl;
    return;
  }
  const SilentPages pages(file);
  void* const page = pages.page(0);
  // A page that another process is reading hangs every other reader.
  if (::fork() == 0) {
    (void)*static_cast<volatile char*>(page);
    ::_exit(0);
  }
  ::usleep(100'000);
  Client client(path);
  client.open();
  const uint32_t pd = client.alloc_pd();
  const auto qp = client.create_qp(pd, client.create_cq());
  client.loop(qp);
  const auto addr = reinterpret_cast<uint64_t>(page);
  const auto silent = client.reg_mr(pd, addr, 4096, ipc::Way::kReached);
  static std::array<char, 64> sink{};
  const auto target =
      client.reg_mr(pd, reinterpret_cast<uint64_t>(sink.data()), sink.size(), ipc::Way::kReached);
  // All calls that need memory first: while a thread of the daemon faults in ours, this process
  // gets no more.
  constexpr std::array kCalls{Call::kProbe, Call::kHello, Call::kImportDevice};
  std::vector<std::unique_ptr<Client>> others;
  std::vector<ipc::Request> requests;
  for (const Call call : kCalls) {
    others.push_back(std::make_unique<Client>(path));
    requests.push_back(request_of(call));
  }
  const std::vector<int> beside{pages.fd.get()};
  ipc::SendWqe wqe{};
  wqe.opcode = static_cast<uint8_t>(verbs::Opcode::kRdmaWrite);
  wqe.num_sge = 1;
  wqe.rdma.remote_addr = reinterpret_cast<uint64_t>(sink.data());
  wqe.rdma.rkey = target.key;
  client.post(qp, wqe, {{addr, 64, silent.key}});
  expect(!client.executed(qp, 300), "the memory answers");
  file.silence();
  // The last descriptors are the daemon's or its helpers' when this process is killed.
  for (size_t i = 0; i < others.size(); ++i)
    others[i]->send_raw_fds(&requests[i], sizeof requests[i], beside);
  ::usleep(300'000);
  constexpr std::string_view kHeld = "held\n";
  expect(::write(STDOUT_FILENO, kHeld.data(), kHeld.size()) > 0, "write");
  ::sleep(static_cast<unsigned>(seconds));
}

void lock(const char* path, int seconds) {
  const SilentFile file = make_silent_file();
  if (file.path.empty()) {
    std::cout << "nothing" << std::endl;
    return;
  }
  const SilentPages silent(file);
  Client client(path);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto srq = client.create_srq(pd);
  // More than the daemon retains of destroyed ones.
  std::vector<ipc::CreateQpReply> qps;
  for (int i = 0; i < 128; ++i)
    qps.push_back(client.create_qp(pd, cq, i < 8 ? srq.handle : ipc::kNoObject));
  const auto fail = [&](const ipc::CreateQpReply& qp) {
    expect(client.modify(qp.handle, verbs::QpState::kErr, 0, {}) == 0, "to ERR");
  };
  fail(qps[0]);  // raises an event
  file.silence();
  std::vector<std::thread> hung;
  int which = 0;
  for (const Fd* each : {&client.arena_fd, &client.bell_fd, &client.memory_fd})
    hung.emplace_back([&silent, each, page = which++] {
      (void)!::pwrite(each->get(), silent.page(page), 4096, 16 << 20);
    });
  hung.emplace_back([&] { (void)!::read(client.events.get(), silent.page(which), 64); });
  ::usleep(300'000);
  for (size_t i = 1; i < qps.size(); ++i) {
    fail(qps[i]);
    if (i >= 8) expect(client.call(Call::kDestroyQp, qps[i].handle).error == 0, "kDestroyQp");
  }
  for (int i = 0; i < 8; ++i) (void)client.create_qp(pd, cq);
  constexpr std::string_view kHeld = "held\n";
  expect(::write(STDOUT_FILENO, kHeld.data(), kHeld.size()) > 0, "write");
  ::sleep(static_cast<unsigned>(seconds));
  ::_exit(0);
}

void exec(const char* path, int seconds, int connections) {
  const SilentFile file = make_silent_file(true);
  if (file.path.empty()) {
    std::cout << "nothing" << std::endl;
    return;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const Fd fd(::open(file.path.c_str(), O_RDWR | O_CLOEXEC));
    void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    struct stat status {};
    expect(fd.valid() && page != MAP_FAILED && ::fstat(fd.get(), &status) == 0, "map a FUSE file");
    static_cast<volatile char*>(page)[0] = 1;
    Client client(path);
    client.open();
    std::vector<Fd> others;
    file.silence();
    for (int i = 0; i < connections; ++i) others.push_back(dial(path));
    ::execl("/proc/self/exe", "vrdma_hangs", "sleep", path, "100", nullptr);
    ::_exit(1);
  }
  // The first request after silence() is that of execve(2), which writes back what the child has
  // written.
  for (int left = 6000; !file.keeps_waiting(); --left) {
    expect(left > 0, "the child does not hang in execve(2)");
    expect(::waitpid(child, nullptr, WNOHANG) == 0, "it has ended");
    ::usleep(10'000);
  }
  std::cout << "held" << std::endl;
  ::sleep(static_cast<unsigned>(seconds));
  ::kill(child, SIGKILL);
}

}  // namespace
}  // namespace vrdma::hostile

int main(int argc, char** argv) {
  using namespace vrdma::hostile;
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "send" && argc == 5)
    send(argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
  else if (what == "hold" && argc == 4)
    hold(argv[2], std::atoi(argv[3]));
  else if (what == "lock" && argc == 4)
    lock(argv[2], std::atoi(argv[3]));
  else if (what == "exec" && (argc == 4 || argc == 5))
    exec(argv[2], std::atoi(argv[3]), argc == 5 ? std::atoi(argv[4]) : 48);
  else if (what == "sleep" && argc == 4)
    ::sleep(static_cast<unsigned>(std::atoi(argv[3])));
  else
    return 2;
  return 0;
}
