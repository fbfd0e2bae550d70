// Descriptors beside requests, and misuse of descriptors that the daemon sent.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

#include "core/ipc/socket.h"
#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"
#include "tests/unit/vrdmad/broker/lingering_socket.h"

namespace vrdma::hostile {

namespace {

using base::Fd;
using ipc::Call;

void descriptors_on_everything(const Target& target) {
  for (uint32_t call = 1; call <= static_cast<uint32_t>(ipc::kLastCall) + 1; ++call) {
    // These four accept and inspect some. (So does kCreateQp, for raw packets only.)
    if (static_cast<Call>(call) == Call::kHello || static_cast<Call>(call) == Call::kImportDevice ||
        static_cast<Call>(call) == Call::kOpenXrcd || static_cast<Call>(call) == Call::kShowMemory)
      continue;
    Client client(target.socket);
    client.open();
    ipc::Request request = request_of(static_cast<Call>(call));
    client.send(request, {0, 1, 2, 0, 1, 2, 0, 1});
    expect(client.ended(), "descriptors beside call " + std::to_string(call));
  }
}

void too_many_descriptors(const Target& target) {
  for (const size_t count : {9u, 10u, 100u, 253u}) {
    for (int i = 0; i < 20; ++i) {
      Client client(target.socket);
      ipc::Request request = request_of(Call::kHello);
      client.send_raw_fds(&request, sizeof request, std::vector<int>(count, 2));
      expect(client.ended(), std::to_string(count) + " descriptors do not end the session");
    }
  }
}

// Another process sends the socket and exits, behind so much data that the daemon's descriptor is
// the last: a process that exits does not wait.
void leave_behind(const Target& target, size_t size, ipc::Request request, size_t count) {
  // The daemon accepts no connection while too many closes are unfinished, so only the last two
  // last.
  static std::vector<Fd> others;
  if (others.size() == 2) others.erase(others.begin());
  Fd socket = test::lingering_socket(30, &others.emplace_back());
  expect(socket.valid(), "connect to ourselves");
  std::array<int, 2> gate{};
  expect(::pipe2(gate.data(), O_CLOEXEC) == 0, "a pipe");
  Fd closed(gate[0]), close(gate[1]);
  const pid_t child = ::fork();
  if (child != 0) {
    socket.reset();
    close.reset();
    ::waitpid(child, nullptr, 0);
    return;
  }
  close.reset();
  char none = 0;
  (void)!::read(closed.get(), &none, 1);  // until ours is the last
  Client client(target.socket);
  if (request.call == Call::kAllocPd) client.open();
  ipc::Request probe = request_of(Call::kProbe);
  for (int i = 0; i < 50; ++i) client.send(probe);
  for (int i = 0; i < 5; ++i)
    client.send_raw_fds(&request, size, std::vector<int>(count, socket.get()));
  ::_exit(0);
}

void a_socket_that_lingers(const Target& target) {
  constexpr size_t kWhole = sizeof(ipc::Request);
  for (int i = 0; i < 5; ++i) {
    leave_behind(target, kWhole, request_of(Call::kProbe), 1);
    leave_behind(target, kWhole, request_of(Call::kAllocPd), 1);
    leave_behind(target, kWhole, request_of(Call::kHello), 1);
    leave_behind(target, kWhole, request_of(Call::kHello), 9);
    leave_behind(target, kWhole, request_of(Call::kHello), 200);
    ipc::Request version = request_of(Call::kHello);
    version.version = ipc::kVersion + 1;
    leave_behind(target, kWhole, version, 1);
    leave_behind(target, 17, request_of(Call::kProbe), 3);
  }
  ::sleep(2);
}

void foreign_arenas(const Target& target) {
  std::vector<Fd> strange;
  strange.emplace_back(::open("/dev/null", O_RDWR | O_CLOEXEC));
  strange.emplace_back(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  strange.emplace_back(::open("/", O_RDONLY | O_CLOEXEC));
  strange.emplace_back(::eventfd(0, EFD_CLOEXEC));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) == 0)
    for (const int end : ends) strange.emplace_back(end);
  strange.push_back(*base::make_memfd("own", 1ull << 47));
  strange.push_back(*base::make_memfd("small", 4096));
  strange.emplace_back(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  Fd future(::memfd_create("future", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ::fcntl(future.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  strange.push_back(std::move(future));
  Fd huge(::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB));
  if (huge.valid()) strange.push_back(std::move(huge));
  for (const Fd& fd : strange) {
    Client client(target.socket);
    expect(client.hello({fd.get()}).error == EPERM, "a memory arena that is none is taken");
  }
  // Our queue arena is not a memory arena; another session's memory arena is one.
  Client first(target.socket), second(target.socket), third(target.socket);
  first.open();
  expect(second.hello({first.arena_fd.get()}).error == EPERM, "a queue arena is taken for memory");
  const Answer again = third.hello({first.memory_fd.get()});
  expect(again.came && again.error == 0, "the own memory arena is refused");
}

// Another process's memory arena, which that process passed on.
void anothers_arena(const Target& target) {
  const auto ends = ipc::make_socket_pair().value();
  char byte = 0;
  if (::fork() == 0) {
    Client client(target.socket);
    client.open();
    (void)ipc::send_message(ends.second.get(), &byte, 1, {client.memory_fd.get()});
    ::pause();
  }
  std::vector<Fd> fds;
  expect(ipc::receive_message(ends.first.get(), &byte, 1, &fds).has_value() && fds.size() == 1,
         "helper");
  Client client(target.socket);
  expect(client.hello({fds[0].get()}).error == EPERM, "another process's memory is taken");
}

// The file asks its server for every fstat(2) and close(2), and the server does not answer.
void a_file_that_does_not_answer(const Target& target) {
  const SilentFile file = make_silent_file();
  if (file.path.empty()) return;
  Fd fd(::open(file.path.c_str(), O_RDWR | O_CLOEXEC));
  expect(fd.valid(), "open the file");
  file.silence();
  {
    Client client(target.socket);
    expect(client.hello({fd.get()}).error == EPERM, "a memory arena that is none is taken");
  }
  for (const Call call : {Call::kProbe, Call::kGoodbye}) {
    Client client(target.socket);
    ipc::Request request = request_of(call);
    client.send(request, {fd.get()});
    expect(client.ended(), "a strange descriptor is taken");
  }
  ::sleep(1);
  ::kill(file.server, SIGKILL);
}

// The pipes of a session with their other ends closed, full, small or blocking.
void pipes_that_nobody_reads(const Target& target) {
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd();
  const Answer channel = client.call(Call::kCreateChannel);
  expect(channel.came && channel.error == 0 && channel.fds.size() == 2, "kCreateChannel");
  const uint32_t cq = client.create_cq(channel.reply.create_channel.handle);
  auto qp = client.create_qp(pd, cq);
  client.loop(qp);
  const auto wake = [&] {
    // An error wakes the CQ and raises events.
    auto* bell = client.bells.at<ipc::CqBell>(0);
    for (uint32_t i = 0; i < 64; ++i) bell[i].arm.store(1);
    ipc::SendWqe wqe{};
    wqe.opcode = static_cast<uint8_t>(verbs::Opcode::kRdmaWrite);
    wqe.flags = ipc::kSignaled;
    wqe.num_sge = 1;
    wqe.rdma.rkey = 77;
    client.post(qp, wqe, {{4096, 8, 77}});
    expect(client.executed(qp), "a queue stands still");
    client.loop_again(qp);
  };
  ::fcntl(channel.fds[0].get(), F_SETPIPE_SZ, 4096);
  ::fcntl(channel.fds[0].get(), F_SETFL, 0);
  ::fcntl(channel.fds[1].get(), F_SETFL, 0);
  ::fcntl(client.events.get(), F_SETFL, 0);
  for (int i = 0; i < 700; ++i) wake();
  const_cast<Fd&>(channel.fds[0]).reset();
  client.events.reset();
  for (int i = 0; i < 5; ++i) wake();
}

void doorbells(const Target& target) {
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  for (int i = 0; i < 10; ++i) (void)client.create_qp(pd, cq);
  auto* kicks = client.arena.at<std::atomic<uint64_t>>(ipc::kKickOffset);
  for (int i = 0; i < 200'000; ++i) {
    if (i % 64 == 0)
      for (uint32_t word = 0; word < ipc::kMaxQpSlots / 64; ++word) kicks[word].store(~0ull);
    client.ring();
  }
  ::fcntl(client.doorbell.get(), F_SETFL, O_NONBLOCK);
  ::eventfd_write(client.doorbell.get(), ~0ull - 1);  // full: no more can be written
  eventfd_t value = 0;
  ::eventfd_read(client.doorbell.get(), &value);
  ::fcntl(client.doorbell.get(), F_SETFL, 0);
  expect(client.call(Call::kQueryDevice).came, "a session ends because of its doorbell");
}

// The session's files may be written, but not changed otherwise.
void files_of_the_daemon(const Target& target) {
  Client client(target.socket);
  client.open();
  for (const Fd* fd : {&client.arena_fd, &client.bell_fd, &client.memory_fd}) {
    expect(::ftruncate(fd->get(), 0) != 0, "a file of the daemon can be cut off");
    expect(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE) != 0,
           "a file of the daemon can be sealed");
  }
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto qp = client.create_qp(pd, cq);
  client.loop(qp);
  // Holes read as zeros.
  ::fallocate(client.arena_fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              static_cast<off_t>(ipc::kQueueArenaSize));
  client.ring();
  ipc::SendWqe wqe{};
  client.post(qp, wqe, {});
  (void)client.executed(qp, 200);
}

}  // namespace

std::vector<Attack> descriptor_attacks() {
  return {{"descriptors_on_everything", descriptors_on_everything},
          {"too_many_descriptors", too_many_descriptors},
          {"a_socket_that_lingers", a_socket_that_lingers},
          {"foreign_arenas", foreign_arenas},
          {"anothers_arena", anothers_arena},
          {"a_file_that_does_not_answer", a_file_that_does_not_answer},
          {"pipes_that_nobody_reads", pipes_that_nobody_reads},
          {"doorbells", doorbells},
          {"files_of_the_daemon", files_of_the_daemon}};
}

}  // namespace vrdma::hostile
