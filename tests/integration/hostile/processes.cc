// What a process can do to itself: stop, fork, exec, hide, change its namespaces.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "core/ipc/socket.h"
#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"
#include "tests/integration/hostile/looped.h"

namespace vrdma::hostile {

namespace {

using base::Fd;
using ipc::Call;
using verbs::Opcode;

// A separate process that reports when it has done `what`, and then runs `then`.
struct Helper {
  Helper(const std::function<void()>& what, const std::function<void()>& then) {
    std::array<int, 2> ends{};
    expect(::pipe(ends.data()) == 0, "pipe");
    pid = ::fork();
    if (pid == 0) {
      what();
      (void)!::write(ends[1], "", 1);
      then();
      ::_exit(0);
    }
    ::close(ends[1]);
    char byte = 0;
    expect(::read(ends[0], &byte, 1) == 1, "a helper has failed");
    ::close(ends[0]);
  }
  int end() const {
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }
  pid_t pid = 0;
};

void wait_for_ever() {
  for (;;) ::pause();
}

// Stopped in the middle of everything, for any time.
void stopped(const Target& target) {
  Helper helper(
      [&] {
        auto* it = new Looped(target, true);
        auto* reached = new std::array<char, 65536>;
        const auto mr = it->client.reg_mr(it->pd, reinterpret_cast<uint64_t>(reached), 65536,
                                          ipc::Way::kReached);
        for (int i = 0; i < 60; ++i) {
          ipc::SendWqe wqe = it->wqe(i % 2 == 0 ? Opcode::kRdmaWrite : Opcode::kRdmaRead);
          wqe.rdma.remote_addr = reinterpret_cast<uint64_t>(reached);
          wqe.rdma.rkey = mr.key;
          it->client.post(it->qp, wqe, {it->data(65536)});
        }
        ipc::Request request = request_of(Call::kDeregMr);
        request.handle.handle = mr.handle;
        it->client.send(request);
      },
      wait_for_ever);
  ::kill(helper.pid, SIGSTOP);
  ::usleep(500'000);
  ::kill(helper.pid, SIGCONT);
  ::usleep(50'000);
  ::kill(helper.pid, SIGSTOP);
  helper.end();
}

// The process of a session executes another program, which inherits its descriptors.
void another_program(const Target& target) {
  Client* client = nullptr;
  Helper helper(
      [&] {
        auto* it = new Looped(target);
        client = &it->client;
        ::fcntl(client->fd(), F_SETFD, 0);
        for (int i = 0; i < 60; ++i) it->write(Looped::kLength);
      },
      [] { ::execl("/bin/sleep", "sleep", "30", nullptr); });
  ::usleep(300'000);
  helper.end();
}

// The parent dies; a child holds its socket, its arenas and its memory.
void heirs(const Target& target) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Helper helper(
      [&] {
        auto* it = new Looped(target);
        if (::fork() == 0) {
          it->client.map();  // mappings are not inherited
          for (int i = 0; i < 100; ++i) {
            it->write(4096);
            ::usleep(2000);
          }
          // The parent's death ended the session, although the child holds its socket.
          expect(it->client.ended(), "a session outlives its process");
          ::_exit(0);
        }
        ::usleep(20'000);
      },
      [] { ::kill(::getpid(), SIGKILL); });
  helper.end();
  int status = 0;
  expect(::waitpid(-1, &status, 0) > 0 && status == 0, "an heir dies");
}

// A process whose memory other processes may not read.
void hidden(const Target& target) {
  ::prctl(PR_SET_DUMPABLE, 0);
  Looped it(target);
  it.still_works();
}

// The first thread has ended; the process continues in another.
void without_its_first_thread(const Target& target) {
  Helper helper([] {},
                [&] {
                  std::thread([target] {
                    ::usleep(50'000);
                    Client client(target.socket);
                    const Answer answer = client.hello();
                    if (answer.came && answer.error == 0) (void)client.alloc_pd();
                    wait_for_ever();
                  }).detach();
                  ::pthread_exit(nullptr);
                });
  ::usleep(300'000);
  helper.end();
}

// The program's resource limits do not apply to the daemon's writes.
void with_no_limits_left(const Target& target) {
  const rlimit none{0, 0};
  ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &none);
  Looped it(target);
  it.still_works();
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const rlimit few{static_cast<rlim_t>(it.client.fd()) + 1, files.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  for (int i = 0; i < 10; ++i) {
    ipc::Request request = request_of(Call::kCreateChannel);
    (void)it.client.call(request);  // its descriptors do not fit
  }
  ::setrlimit(RLIMIT_NOFILE, &files);
  it.still_works();
}

// A full descriptor table cannot receive what the daemon sends.
void descriptors_that_find_no_place(const Target& target) {
  Client client(target.socket);
  rlimit few{};
  ::getrlimit(RLIMIT_NOFILE, &few);
  few.rlim_cur = static_cast<rlim_t>(client.fd()) + 3;
  ::setrlimit(RLIMIT_NOFILE, &few);
  (void)client.hello();
}

// The socket of another namespace's vdevice is useless, even where the process can reach it.
void from_another_namespace(const Target& target) {
  const bool moved = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
  if (!moved) return;
  Client client(target.socket);
  const Answer answer = client.hello();
  expect(!answer.came || answer.error != 0, "a process of another namespace gets a session");
}

// In its own user namespace the process is root, and gains nothing.
void root_of_its_own(const Target& target) {
  if (::unshare(CLONE_NEWUSER) != 0) return;
  Client client(target.socket);
  const Answer answer = client.hello();
  if (!answer.came || answer.error != 0) return;
  const uint32_t pd = client.alloc_pd();
  const auto qp = client.create_qp(pd, client.create_cq());
  client.loop(qp);
  ipc::Request request = request_of(Call::kCreateQp);
  request.create_qp = {pd, 1, 1, 0, 0, static_cast<uint32_t>(verbs::QpType::kRawPacket), 1, 1,
                       1,  1, 0, 0, {}};
  expect(client.call(request).error != 0, "raw packets without a packet socket");
}

// Another process gets the socket and sends requests on it.
void a_socket_given_away(const Target& target) {
  Client client(target.socket);
  client.open();
  if (::fork() == 0) {
    for (int i = 0; i < 50; ++i) {
      ipc::Request request = request_of(static_cast<Call>(i % 10 + 3));
      client.send(request);
    }
    ::_exit(0);
  }
  ::wait(nullptr);
  ::usleep(50'000);
}

// The operator's objects: the admin socket, and the names in the run directory.
void the_operators_socket(const Target& target) {
  const std::string directory = target.socket.substr(0, target.socket.rfind('/'));
  const std::string run = directory.substr(0, directory.rfind("/netns/"));
  if (::geteuid() != 0) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (run + "/admin.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    expect(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0,
           "anybody may connect to the operator's socket");
    for (const std::string& at : {run, run + "/netns", directory}) {
      expect(::open((at + "/mine").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600) < 0,
             "anybody may write into " + at);
      expect(::unlink(target.socket.c_str()) != 0, "anybody may remove a vdevice's socket");
    }
    return;
  }
  // Any process may connect to it, and then send nothing or garbage.
  std::vector<Fd> sockets;
  for (int i = 0; i < 50; ++i) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (run + "/admin.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    sockets.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(sockets.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      continue;
    Random random(target.seed + static_cast<uint32_t>(i));
    std::string noise = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    if (i % 2 == 0) noise.clear();
    for (int k = 0; k < 3000; ++k) noise.push_back(static_cast<char>(random()));
    (void)::send(sockets.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  }
}

}  // namespace

std::vector<Attack> process_attacks() {
  return {{"stopped", stopped},
          {"another_program", another_program},
          {"heirs", heirs},
          {"hidden", hidden},
          {"without_its_first_thread", without_its_first_thread},
          {"with_no_limits_left", with_no_limits_left},
          {"descriptors_that_find_no_place", descriptors_that_find_no_place},
          {"from_another_namespace", from_another_namespace},
          {"root_of_its_own", root_of_its_own},
          {"a_socket_given_away", a_socket_given_away},
          {"the_operators_socket", the_operators_socket}};
}

}  // namespace vrdma::hostile
