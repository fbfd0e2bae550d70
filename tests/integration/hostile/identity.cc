// Processes that pose as another: by exec, by a passed socket, by a reused process id, by a
// set-user-id program.
//
//   vrdma_identity SOCKET SET_ID            run as root; SET_ID: this program, set-user-id
//   vrdma_identity SOCKET hello FD WORD     what SET_ID runs: see say_hello()
#include <fcntl.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "core/ipc/socket.h"
#include "tests/integration/hostile/client.h"

namespace vrdma::hostile {

namespace {

using base::Fd;
using ipc::Call;

constexpr uid_t kNobody = 65534;
constexpr int kEnded = 200;  // the daemon closed the connection

struct Target {
  std::string socket, set_id;
};

void become_nobody() {
  expect(::setresgid(kNobody, kNobody, kNobody) == 0 && ::setresuid(kNobody, kNobody, kNobody) == 0,
         "setresuid");
  ::prctl(PR_SET_DUMPABLE, 1);  // as in a program that the user has started
}

// The exit status of `body` in a child; it may be any number below 256.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  expect(::waitpid(child, &status, 0) == child, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

// Returns when the daemon has accepted the connection, and so has identified this process.
void accepted(Client& client) {
  const Answer answer = client.call(Call::kProbe);
  expect(answer.came && answer.error == 0, "kProbe");
}

// A complete kHello on a connection that may be another process's.
int hello_on(Client& client) {
  const Answer answer = client.hello();
  return answer.came ? answer.error : kEnded;
}

int say_hello(const std::string& socket, int fd, const std::string& word) {
  if (word == "root") expect(::setresuid(0, 0, 0) == 0 && ::setresgid(0, 0, 0) == 0, "setresuid");
  if (word == "mine") return hello_on(*std::make_unique<Client>(socket));
  Client client(socket);
  ::dup2(fd, client.fd());
  return hello_on(client);
}

// Made before a fork. The process that shares it and does not wait executes another program, or
// ends.
class Execution {
 public:
  Execution() { expect(::pipe2(ends_.data(), O_CLOEXEC) == 0, "pipe2"); }
  void wait() {
    ::close(ends_[1]);
    char none = 0;
    (void)!::read(ends_[0], &none, 1);
  }

 private:
  std::array<int, 2> ends_{};
};

int run(const std::string& program, const std::string& socket, int fd, const std::string& word) {
  if (fd >= 0) ::fcntl(fd, F_SETFD, 0);
  ::execl(program.c_str(), program.c_str(), socket.c_str(), "hello", std::to_string(fd).c_str(),
          word.c_str(), nullptr);
  return 127;
}

void expect_status(int status, int wanted, const std::string& what) {
  expect(status == wanted, what + ": " + std::to_string(status) + " (" + std::strerror(status) +
                               "), wanted " + std::to_string(wanted));
}

void honest(const Target& target) {
  expect_status(in_child([&] {
                  become_nobody();
                  Client client(target.socket);
                  return hello_on(client);
                }),
                0, "an honest program");
}

// The attacker executes a set-user-id program, whose memory the session would use.
void set_id(const Target& target) {
  for (const char* word : {"mine", "inherited", "root"})
    expect_status(in_child([&] {
                    become_nobody();
                    Client client(target.socket);
                    const bool own = std::string(word) == "mine";
                    accepted(client);
                    return run(target.set_id, target.socket, own ? -1 : client.fd(), word);
                  }),
                  std::string(word) == "mine" ? EACCES : EPERM,
                  std::string("a set-user-id program, ") + word);
  // The program itself sends kHello; its ids are all equal by then.
  expect_status(in_child([&] {
                  become_nobody();
                  ::setenv("VRDMA_HOSTILE_ALL_EQUAL", "1", 1);
                  return run(target.set_id, target.socket, -1, "mine");
                }),
                EACCES, "a set-user-id program that became root for good");
}

// A child uses the connection of its parent, which has executed a set-user-id program.
void set_id_of_parent(const Target& target) {
  expect_status(in_child([&] {
                  become_nobody();
                  std::array<int, 2> result{};
                  expect(::pipe2(result.data(), O_CLOEXEC) == 0, "pipe2");
                  const pid_t parent = ::fork();
                  if (parent == 0) {
                    auto client = std::make_unique<Client>(target.socket);
                    accepted(*client);
                    Execution execution;
                    if (::fork() != 0) {
                      ::execl(target.set_id.c_str(), target.set_id.c_str(), "sleep", nullptr);
                      ::_exit(127);
                    }
                    execution.wait();
                    const auto status = static_cast<uint8_t>(hello_on(*client));
                    (void)!::write(result[1], &status, 1);
                    ::_exit(0);
                  }
                  ::close(result[1]);
                  uint8_t status = 255;
                  (void)!::read(result[0], &status, 1);
                  // It runs as root: only it can end itself.
                  ::waitpid(parent, nullptr, 0);
                  return static_cast<int>(status);
                }),
                EPERM, "the child of a set-user-id program");
}

// The process that connected executes another program while the daemon cannot accept.
void set_id_before_accept(const Target& target, pid_t daemon) {
  Execution execution;
  const pid_t child = ::fork();
  if (child == 0) {
    become_nobody();
    Client client(target.socket);
    ::_exit(run(target.set_id, target.socket, client.fd(), "inherited"));
  }
  execution.wait();
  ::kill(daemon, SIGCONT);
  int status = 0;
  ::waitpid(child, &status, 0);
  expect_status(WEXITSTATUS(status), kEnded, "exec of a set-user-id program before the accept");
}

// The same program again, in another address space.
void exec_before_hello(const Target& target) {
  expect_status(in_child([&] {
                  become_nobody();
                  Client client(target.socket);
                  accepted(client);
                  return run("/proc/self/exe", target.socket, client.fd(), "inherited");
                }),
                EPERM, "exec between the accept and kHello");
}

void passed_on(const Target& target) {
  expect_status(in_child([&] {
                  become_nobody();
                  Client client(target.socket);
                  return in_child([&] { return hello_on(client); });
                }),
                EPERM, "a socket passed to a child");
}

void changed_ids(const Target& target) {
  expect_status(in_child([&] {
                  Client client(target.socket);
                  accepted(client);
                  become_nobody();
                  return hello_on(client);
                }),
                EPERM, "other ids than at the accept");
  expect_status(in_child([&] {
                  expect(::setresuid(0, kNobody, 0) == 0, "setresuid");
                  Client client(target.socket);
                  return hello_on(client);
                }),
                EACCES, "ids that differ");
}

// A process with CAP_SYS_ADMIN may claim that another process sent a message.
int hello_in_the_name_of(Client& client, pid_t pid) {
  uint64_t place = 0;
  ipc::Request request = request_of(Call::kHello);
  request.sequence = ++client.sequence();
  request.hello.challenge_addr = reinterpret_cast<uint64_t>(&place);
  iovec piece{&request, sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))]{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_CREDENTIALS;
  header->cmsg_len = CMSG_LEN(sizeof(ucred));
  const ucred forged{pid, ::getuid(), ::getgid()};
  std::memcpy(CMSG_DATA(header), &forged, sizeof forged);
  if (::sendmsg(client.fd(), &message, MSG_NOSIGNAL) < 0) return errno;
  const Answer answer = client.receive();
  if (!answer.came || answer.error != 0) return answer.came ? answer.error : kEnded;
  place = answer.reply.challenge.challenge;
  const Answer proof = client.call(Call::kProve);
  return proof.came ? proof.error : kEnded;
}

void forged_credentials(const Target& target) {
  Client client(target.socket);
  expect_status(hello_in_the_name_of(client, 1), EPERM, "credentials of another process");
  Client own(target.socket);
  expect_status(hello_in_the_name_of(own, ::getpid()), 0, "credentials of its own");
  // In the name of the process that connected, but the proof is in the caller's memory.
  Client passed(target.socket);
  const pid_t owner = ::getpid();
  expect_status(in_child([&] { return hello_in_the_name_of(passed, owner); }), EPERM,
                "credentials of the process that connected");
}

// The process that connected has ended, and its pid was reused by the same user.
void pid_again(const Target& target) {
  std::array<int, 2> pass{};
  expect(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pass.data()) == 0, "socketpair");
  char byte = 0;
  const pid_t first = ::fork();
  if (first == 0) {
    Client own(target.socket);
    accepted(own);
    (void)ipc::send_message(pass[1], &byte, 1, {own.fd()});
    ::_exit(0);
  }
  std::vector<Fd> fds;
  expect(ipc::receive_message(pass[0], &byte, 1, &fds).has_value() && fds.size() == 1, "pass");
  ::waitpid(first, nullptr, 0);
  static uint64_t place = 0;  // at the same address in all these processes
  Client client(target.socket);
  ::dup2(fds[0].get(), client.fd());
  pid_t wanted = first;
  clone_args args{};
  args.exit_signal = SIGCHLD;
  args.set_tid = reinterpret_cast<uint64_t>(&wanted);
  args.set_tid_size = 1;
  const auto second = static_cast<pid_t>(::syscall(SYS_clone3, &args, sizeof args));
  if (second == 0) {
    for (;;) ::pause();
  }
  expect(second == first, std::string("clone3: ") + std::strerror(errno));
  const int forged = hello_in_the_name_of(client, second);
  const int own = client.ended(0) ? EPERM : client.ask_challenge(&place).error;
  ::kill(second, SIGKILL);
  ::waitpid(second, nullptr, 0);
  expect_status(forged, EPERM, "the number of a dead process, in the name of its next owner");
  expect_status(own, EPERM, "the number of a dead process");
}

void three_failures(const Target& target) {
  Client client(target.socket);
  in_child([&] {
    for (int i = 0; i < 3; ++i) (void)client.call(request_of(Call::kHello).call);
    return 0;
  });
  expect(client.ended(), "three failures do not end the connection");
}

// Whether two sessions of this process get a direct link.
bool links_directly(const Target& target) {
  struct End {
    std::unique_ptr<Client> client;
    ipc::CreateQpReply qp;
  };
  std::array<End, 2> ends;
  verbs::QpAttributes attributes{};
  for (End& end : ends) {
    end.client = std::make_unique<Client>(target.socket);
    end.client->open();
    const uint32_t pd = end.client->alloc_pd();
    end.qp = end.client->create_qp(pd, end.client->create_cq());
    const Answer gids = end.client->call(Call::kQueryGids);
    std::memcpy(attributes.av.dgid, gids.reply.gids.gids[0], 16);
  }
  attributes.port_num = attributes.av.is_global = attributes.av.port_num = 1;
  attributes.path_mtu = 5;
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = attributes.min_rnr_timer = 1;
  bool direct = false;
  for (size_t i = 0; i < 2; ++i) {
    using namespace verbs;  // NOLINT: names of attributes
    attributes.dest_qpn = ends[1 - i].qp.qpn;
    Client& client = *ends[i].client;
    expect(client.modify(ends[i].qp.handle, QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags,
                         attributes) == 0,
           "INIT");
    ipc::Request request = request_of(Call::kModifyQp);
    attributes.state = static_cast<uint32_t>(QpState::kRtr);
    request.modify_qp = {
        ends[i].qp.handle,
        kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
        0,
        0,
        {},
        attributes};
    const Answer answer = client.call(request);
    expect(answer.came && answer.error == 0, "RTR");
    direct = direct || answer.reply.modify_qp.direct != 0;
  }
  return direct;
}

void not_dumpable(const Target& target) {
  expect_status(in_child([&] {
                  become_nobody();
                  return links_directly(target) ? 0 : 1;
                }),
                0, "sessions of one user are linked directly");
  expect_status(in_child([&] {
                  become_nobody();
                  ::prctl(PR_SET_DUMPABLE, 0);
                  return links_directly(target) ? 0 : 1;
                }),
                1, "sessions of a process that is not dumpable are mediated");
}

}  // namespace

}  // namespace vrdma::hostile

int main(int argc, char** argv) {
  using namespace vrdma::hostile;
  if (argc == 2 && std::string(argv[1]) == "sleep") return ::sleep(2) == 0 ? 0 : 1;
  if (argc == 5 && std::string(argv[2]) == "hello") {
    if (::getenv("VRDMA_HOSTILE_ALL_EQUAL") != nullptr)
      expect(::setresuid(0, 0, 0) == 0, "setresuid");
    return say_hello(argv[1], std::stoi(argv[3]), argv[4]);
  }
  if (argc < 3) return 2;
  const Target target{argv[1], argv[2]};
  if (argc == 4) {
    set_id_before_accept(target, std::stoi(argv[3]));
    return 0;
  }
  const auto attack = [&](const char* name, const auto& body) {
    std::cout << name << std::endl;
    body(target);
  };
  attack("honest", honest);
  attack("set_id", set_id);
  attack("set_id_of_parent", set_id_of_parent);
  attack("exec_before_hello", exec_before_hello);
  attack("passed_on", passed_on);
  attack("changed_ids", changed_ids);
  attack("forged_credentials", forged_credentials);
  attack("pid_again", pid_again);
  attack("three_failures", three_failures);
  attack("not_dumpable", not_dumpable);
  attack("honest", honest);
  return 0;
}
