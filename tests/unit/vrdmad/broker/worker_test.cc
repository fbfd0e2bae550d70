// Worker processes of the broker: what they are, and what the broker answers them.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "core/base/netns_cookie.h"
#include "core/ipc/socket.h"
#include "tests/unit/vrdmad/admin/fixture.h"
#include "tests/unit/vrdmad/broker/pidfds.h"
#include "tests/unit/vrdmad/broker/worker_program.h"
#include "vrdmad/broker/broker_process.h"
#include "vrdmad/broker/earlier_workers.h"
#include "vrdmad/broker/local_broker.h"
#include "vrdmad/broker/worker_child.h"

namespace vrdma::vrdmad {
namespace {

namespace fs = std::filesystem;
using broker::Answer;
using broker::get;
using broker::put;
using broker::Request;
using Op = Request::Op;
constexpr uid_t kDaemon = 64789, kFirst = 200'000;
constexpr gid_t kGroup = 64790;

// Empty: there is no such process.
std::string state_of(pid_t pid) {
  return word_of("/proc/" + std::to_string(pid) + "/status", "State:");
}

// A broker that starts the test's program, and connections of this process.
struct Workers : testing::Test {
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, as the broker does";
    fs::create_directories(temp.path() + "/netns/" + std::to_string(cookie));
    ::chmod(temp.path().c_str(), 0755);
    broker = std::make_shared<LocalBroker>(place);
  }
  [[nodiscard]] std::string path(const std::string& name) const {
    return temp.path() + "/netns/" + std::to_string(cookie) + "/" + name;
  }
  [[nodiscard]] WorkerProcess start() const {
    auto made = broker->start_worker();
    EXPECT_TRUE(made) << made.error().message();
    return std::move(*made);
  }
  static void order(const WorkerProcess& worker, char what) {
    EXPECT_EQ(::send(worker.link.get(), &what, 1, MSG_NOSIGNAL), 1);
  }
  static bool says_yes(const WorkerProcess& worker, char what) {
    order(worker, what);
    char byte = 0;
    return ::recv(worker.link.get(), &byte, 1, 0) == 1 && byte == 1;
  }
  static worker_program::Report report(const WorkerProcess& worker) {
    order(worker, worker_program::kReport);
    worker_program::Report report;
    EXPECT_EQ(::recv(worker.link.get(), &report, sizeof report, 0), ssize_t{sizeof report});
    return report;
  }
  // Through the worker.
  Answer ask(const WorkerProcess& worker, const Request& request) {
    beside.clear();
    Answer answer;
    EXPECT_TRUE(ipc::send_message(worker.link.get(), &request, sizeof request));
    EXPECT_TRUE(ipc::receive_message(worker.link.get(), &answer, sizeof answer, &beside));
    return answer;
  }
  Answer ask(const WorkerProcess& worker, Op op, uint32_t entry, uint32_t files = 0) {
    Request request;
    request.op = op;
    request.entry = entry;
    request.files = files;
    return ask(worker, request);
  }
  // A request of control.
  Answer ask(Request request) {
    with = {};
    return broker->serve(request, &with);
  }
  // Accepts a connection of this process for the worker.
  Answer accept(uint32_t worker, uint32_t rights) {
    const std::string name = path(std::to_string(++connections) + ".sock");
    Request request;
    request.op = Op::kListen;
    request.number = cookie;
    EXPECT_TRUE(put(name, request.text));
    request.entry = ask(request).entry;
    clients.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, name.c_str());
    EXPECT_EQ(::connect(clients.back().get(), reinterpret_cast<const sockaddr*>(&address),
                        sizeof address),
              0);
    request.op = Op::kAccept;
    request.which = 1;
    request.first = worker;
    request.files = rights;
    return ask(request);
  }
  uint32_t entry_for(const WorkerProcess& worker, uint32_t rights = 0) {
    const Answer answer = accept(worker.worker, rights);
    EXPECT_EQ(answer.error, 0) << get(answer.reason);
    peer = answer.peer;
    return answer.entry;
  }

  const TempDir temp;
  const uint64_t cookie = base::own_netns_cookie().value();
  const BrokerPlace place{temp.path(), kDaemon, kGroup, VRDMA_WORKER_PROGRAM, {}, kFirst};
  std::shared_ptr<Broker> broker;
  Broker::Beside with;
  std::vector<base::Fd> beside;  // the answer to a worker
  std::vector<base::Fd> clients;
  rdma::Peer peer;
  int connections = 0;
};

TEST_F(Workers, HaveNothingButTheirChannels) {
  ::signal(SIGUSR1, SIG_IGN);
  sigset_t some;
  sigemptyset(&some);
  sigaddset(&some, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &some, nullptr);
  const gid_t group = 7;
  ASSERT_EQ(::setgroups(1, &group), 0);
  const WorkerProcess worker = start();
  const worker_program::Report is = report(worker);
  for (const uint32_t uid : is.uids) EXPECT_EQ(uid, kFirst);
  for (const uint32_t gid : is.gids) EXPECT_EQ(gid, kFirst);
  EXPECT_EQ(is.groups, 0);
  EXPECT_EQ(is.permitted | is.effective | is.inheritable | is.bounds, 0u);
  EXPECT_EQ(is.no_new_privs, 1);
  EXPECT_EQ(is.death_signal, SIGKILL);
  EXPECT_EQ(is.descriptors, 0b11111u);
  EXPECT_EQ(is.root_entries, 0);
  EXPECT_EQ(is.at_root, 1);
  EXPECT_EQ(is.core_limit, 0u);
  EXPECT_EQ(is.blocked, 0u);
  EXPECT_EQ(is.ignored, 0u);
  EXPECT_EQ(is.arguments, 1);
  EXPECT_STREQ(is.name.data(), "vrdmad-worker");
  EXPECT_EQ(is.variables, 0);
  const std::string of = "/proc/" + std::to_string(pid_of(worker.pidfd));
  for (const char* stream : {"/fd/0", "/fd/1"})
    EXPECT_EQ(fs::read_symlink(of + stream), "/dev/null") << stream;
  EXPECT_EQ(fs::read_symlink(of + "/root"), temp.path() + "/broker/root");
  struct stat root {};
  ASSERT_EQ(::stat((temp.path() + "/broker/root").c_str(), &root), 0);
  EXPECT_EQ(root.st_uid, 0u);
  EXPECT_EQ(root.st_mode & 07777, 0555u);
  ::pthread_sigmask(SIG_UNBLOCK, &some, nullptr);
  ASSERT_EQ(::setgroups(0, nullptr), 0);
  ::signal(SIGUSR1, SIG_DFL);
}

TEST_F(Workers, HaveUsersOfTheirOwn) {
  const WorkerProcess one = start();
  {
    const WorkerProcess other = start();
    EXPECT_EQ(report(one).uids[0], kFirst);
    EXPECT_EQ(report(other).uids[0], kFirst + 1);
    EXPECT_EQ(report(other).gids[0], kFirst + 1);
  }
  const auto has_user = [&](uid_t uid) { return report(start()).uids[0] == uid; };
  for (int tries = 0; !has_user(kFirst + 1); ++tries) {  // until the other has been reaped
    ASSERT_LT(tries, 1000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_F(Workers, WaitWhenTheirRequestsHaveCostTooMuch) {
  BrokerPlace poor = place;
  poor.worker_time = 1;
  broker = std::make_shared<LocalBroker>(poor);
  const WorkerProcess one = start(), other = start();
  EXPECT_EQ(ask(one, Op::kCheck, 1).error, EPERM);
  Request request;
  request.op = Op::kCheck;
  EXPECT_TRUE(ipc::send_message(one.link.get(), &request, sizeof request));
  pollfd answer{one.link.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&answer, 1, 100), 0) << "it is answered without end";
  EXPECT_EQ(ask(other, Op::kCheck, 1).error, EPERM) << "another worker pays for it";
}

// In a user namespace that has no others.
TEST_F(Workers, HaveTheDaemonsUserOtherwise) {
  BrokerPlace without = place;
  without.first_worker_user = 0;
  broker = std::make_shared<LocalBroker>(without);
  const WorkerProcess worker = start();
  const auto is = report(worker);
  EXPECT_EQ(is.uids[0], kDaemon);
  EXPECT_EQ(is.gids[0], kGroup);
}

TEST_F(Workers, ShareAnEmptyNetwork) {
  const WorkerProcess one = start(), other = start();
  const uint64_t its = report(one).netns_cookie;
  EXPECT_NE(its, 0u);
  EXPECT_NE(its, cookie);
  EXPECT_EQ(report(other).netns_cookie, its);
  EXPECT_NE(one.worker, other.worker);
}

TEST_F(Workers, NeedNoRunDirectoryInTests) {
  broker = std::make_shared<LocalBroker>(BrokerPlace{{}, kDaemon, kGroup, VRDMA_WORKER_PROGRAM});
  const WorkerProcess worker = start();
  EXPECT_EQ(report(worker).root_entries, 0);
}

// As the seccomp profile of a container without CAP_SYS_CHROOT. Of this thread, and those it
// starts.
bool forbid_chroot() {
  std::array<sock_filter, 4> filter{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_chroot, 0, 1),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{filter.size(), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 && ::chroot("/") != 0;
}

TEST_F(Workers, HaveAnEmptyRootWithoutChroot) {
  std::thread([&] {
    ASSERT_TRUE(forbid_chroot());
    const WorkerProcess one = start(), other = start();
    for (const WorkerProcess* worker : {&one, &other}) {
      const worker_program::Report is = report(*worker);
      EXPECT_EQ(is.root_entries, 0);
      EXPECT_EQ(is.at_root, 1);
      EXPECT_EQ(is.permitted | is.effective | is.inheritable | is.bounds, 0u);
      const std::string of = "/proc/" + std::to_string(pid_of(worker->pidfd));
      std::ifstream mounts(of + "/mountinfo");
      std::string first, second;
      EXPECT_TRUE(std::getline(mounts, first));
      EXPECT_FALSE(std::getline(mounts, second)) << "it can see " << second;
    }
    // So that the next broker finds it.
    const std::string path = temp.path() + "/broker/root";
    const base::Fd root(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    end_earlier_workers(root, std::chrono::seconds(20));
    EXPECT_TRUE(ends(one.pidfd));
    EXPECT_TRUE(ends(other.pidfd));
  }).join();
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);)
    EXPECT_EQ(line.find(temp.path()), std::string::npos) << line;
}

TEST_F(Workers, AreKilledWhenTheyAreForgotten) {
  std::optional<WorkerProcess> worker{start()};
  const base::Fd link = worker->link.duplicate().value();  // at whose end it would end itself
  const base::Fd pidfd = worker->pidfd.duplicate().value();
  const pid_t pid = pid_of(pidfd);
  ASSERT_GT(pid, 0);
  worker.reset();
  EXPECT_TRUE(ends(pidfd));
  EXPECT_TRUE(eventually([pid] { return state_of(pid).empty(); })) << "it is a zombie";
}

TEST_F(Workers, AreReapedWhenTheyEndByThemselves) {
  const WorkerProcess worker = start();
  const pid_t pid = pid_of(worker.pidfd);
  const uint32_t entry = entry_for(worker);
  order(worker, worker_program::kEnd);
  EXPECT_TRUE(ends(worker.pidfd));
  EXPECT_TRUE(eventually([pid] { return state_of(pid).empty(); })) << "it is a zombie";
  EXPECT_EQ(accept(worker.worker, 0).error, ENXIO);
  EXPECT_FALSE(with[0].valid()) << "the connection is lost";
  Request find;
  find.op = Op::kFind;
  find.peer = peer;
  EXPECT_TRUE(put(path("1.sock"), find.text));
  Request check;
  check.op = Op::kCheck;
  check.entry = entry;
  EXPECT_EQ(ask(check).error, 0) << "control still may";
  EXPECT_EQ(ask(find).error, 0);
  find.first = worker.worker;
  EXPECT_EQ(ask(find).error, ENXIO);
}

TEST_F(Workers, EndWithTheBroker) {
  Request request;
  request.op = Op::kStartWorker;
  ASSERT_EQ(ask(request).error, 0);
  const base::Fd pidfd = std::move(with[1]);
  broker.reset();
  EXPECT_TRUE(ends(pidfd));
}

TEST_F(Workers, OpenOnlyWhatIsForThem) {
  const WorkerProcess one = start(), other = start();
  const uint32_t entry = entry_for(one);
  for (const uint32_t files : {Request::kNone, Request::kMemory, Request::kWritableMemory}) {
    const Answer answer = ask(one, Op::kCheck, entry, files);
    EXPECT_EQ(answer.error, 0) << get(answer.reason);
    EXPECT_EQ(beside.size(), files == Request::kNone ? 0u : 3u);
    const Answer refused = ask(other, Op::kCheck, entry, files);
    EXPECT_EQ(refused.error, EPERM);
    EXPECT_EQ(get(refused.reason), "the entry is not for this worker");
    EXPECT_TRUE(beside.empty());
  }
  for (uint32_t files = Request::kUserfaultfd; files < Request::kHeld + 3; ++files)
    EXPECT_EQ(ask(one, Op::kCheck, entry, files).error, EPERM) << files;
  const uint32_t of_control = accept(0, 0).entry;
  EXPECT_NE(of_control, 0u);
  EXPECT_EQ(ask(one, Op::kCheck, of_control).error, EPERM);
  EXPECT_EQ(ask(one, Op::kCheck, one.worker).error, EPERM);
  EXPECT_EQ(ask(one, Op::kCheck, 12345).error, EPERM);
  Request forget;
  forget.op = Op::kForget;
  forget.entry = entry;
  EXPECT_EQ(ask(one, forget).error, EPERM);
  EXPECT_EQ(ask(one, Op::kCheck, entry).error, 0) << "it was forgotten";
  ask(forget);
  EXPECT_EQ(ask(one, Op::kCheck, entry).error, EPERM);
}

TEST_F(Workers, AskForNothingElse) {
  const WorkerProcess worker = start();
  const uint32_t entry = entry_for(worker, Request::kMayPacketSocket);
  for (uint32_t op = 0; op < 20; ++op) {
    if (op == static_cast<uint32_t>(Op::kCheck) || op == static_cast<uint32_t>(Op::kPacketSocket))
      continue;
    Request request;
    request.op = static_cast<Op>(op);
    request.entry = entry;
    request.number = cookie;
    request.peer = peer;
    EXPECT_TRUE(put(op == static_cast<uint32_t>(Op::kNetns) ? "/proc/self/ns/net" : path("9.sock"),
                    request.text));
    const Answer answer = ask(worker, request);
    EXPECT_EQ(answer.error, EPERM) << op;
    EXPECT_EQ(get(answer.reason), "a worker may not ask for that");
    EXPECT_TRUE(beside.empty());
  }
  EXPECT_FALSE(fs::exists(path("9.sock")));
}

TEST_F(Workers, GetPacketSocketsOnlyWithTheRight) {
  const WorkerProcess worker = start();
  const uint32_t without = entry_for(worker), having = entry_for(worker, Request::kMayPacketSocket);
  Request request;
  request.op = Op::kPacketSocket;
  request.which = 1;  // lo
  request.entry = without;
  EXPECT_EQ(ask(worker, request).error, EPERM);
  EXPECT_TRUE(beside.empty());
  request.entry = having;
  const Answer answer = ask(worker, request);
  EXPECT_EQ(answer.error, 0) << get(answer.reason);
  EXPECT_EQ(beside.size(), 1u);
  EXPECT_EQ(accept(worker.worker, 2).error, EINVAL) << "there is no such right";
}

TEST_F(Workers, AreRecipientsOfWhatIsFound) {
  const WorkerProcess worker = start();
  const uint32_t entry = entry_for(worker);
  EXPECT_EQ(ask(worker, Op::kCheck, entry).error, 0);
  const WorkerProcess next = start();
  const auto found = broker->find(peer, path("1.sock"), {next.worker, 0}, {});
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(ask(next, Op::kCheck, found->caller->entry()).error, 0);
  EXPECT_EQ(ask(worker, Op::kCheck, found->caller->entry()).error, EPERM);
  EXPECT_EQ(ask(next, Op::kCheck, entry).error, EPERM);
}

TEST_F(Workers, LoseTheirChannelByNonsense) {
  const WorkerProcess one = start(), two = start(), good = start();
  const uint32_t entry = entry_for(good), its = entry_for(one);
  EXPECT_EQ(ask(one, Op::kCheck, its).error, 0);
  EXPECT_TRUE(says_yes(one, worker_program::kNonsense));
  EXPECT_EQ(ask(one, Op::kCheck, its).error, EPIPE) << "the channel is served";
  EXPECT_TRUE(says_yes(two, worker_program::kBeside));
  EXPECT_EQ(report(one).no_new_privs, 1) << "it lives";
  EXPECT_EQ(ask(good, Op::kCheck, entry).error, 0) << "others are served";
}

TEST_F(Workers, AreNotTenants) {
  const WorkerProcess worker = start();
  const std::string netns = "/proc/" + std::to_string(pid_of(worker.pidfd)) + "/ns/net";
  Request request;
  request.op = Op::kListen;
  request.number = report(worker).netns_cookie;
  EXPECT_TRUE(put(path("77.sock"), request.text));
  request.entry = ask(request).entry;
  ::chmod(path("77.sock").c_str(), 0666);
  for (const uid_t uid : {kDaemon, kFirst}) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int in = ::open(netns.c_str(), O_RDONLY | O_CLOEXEC);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::strcpy(address.sun_path, path("77.sock").c_str());
      if (::setns(in, CLONE_NEWNET) != 0 || ::setuid(uid) != 0) ::_exit(1);
      const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
      if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        ::_exit(1);
      ::pause();
      ::_exit(0);
    }
    request.op = Op::kAccept;
    request.which = 1;
    Answer came;
    do {
      came = ask(request);
    } while (came.error == EAGAIN);
    EXPECT_EQ(came.error, EPERM) << get(came.reason);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

TEST_F(Workers, SayWhyTheyDoNotStart) {
  const std::string program = temp.path() + "/program";
  const auto reason = [&] {
    broker = std::make_shared<LocalBroker>(BrokerPlace{temp.path(), kDaemon, kGroup, program});
    auto made = broker->start_worker();
    return made ? std::string() : made.error().message();
  };
  EXPECT_NE(reason().find("open the program " + program), std::string::npos);
  std::ofstream(program) << "nonsense";
  ::chmod(program.c_str(), 0755);
  EXPECT_NE(reason().find("it could not execute its program"), std::string::npos) << reason();
  ::chmod(program.c_str(), 0600);
  EXPECT_NE(reason().find("Permission denied"), std::string::npos) << reason();
  fs::remove(program);
  fs::create_directory(program);
  EXPECT_NE(reason().find("is not a program"), std::string::npos) << reason();
  broker = std::make_shared<LocalBroker>(BrokerPlace{temp.path(), kDaemon, kGroup, {}});
  const auto none = broker->start_worker();
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message().find("lib/vrdma/vrdmad-worker"), std::string::npos);
}

// In a worker: the broker over one channel, and an entry that control owns.
TEST_F(Workers, BorrowTheEntriesOfControl) {
  auto [own, other] = ipc::make_socket_pair().value();
  const auto channel = BrokerProcess::over(std::move(own));
  std::thread serving([&, &other = other] {
    Request request;
    std::vector<base::Fd> none;
    while (ipc::receive_message(other.get(), &request, sizeof request, &none)) {
      const Answer answer = ask(request);
      if (!broker::send_answer(other, answer, with)) return;
    }
  });
  const uint32_t entry = accept(0, 0).entry;
  {
    const auto caller = channel->borrowed(entry, {});
    EXPECT_EQ(caller->entry(), entry);
    const auto opened = caller->open(true);
    ASSERT_TRUE(opened) << opened.error().message();
    EXPECT_TRUE(opened->memory.memory.valid());
  }
  EXPECT_TRUE(channel->borrowed(entry, {})->open(false)) << "the entry is forgotten";
  ::shutdown(other.get(), SHUT_RDWR);
  serving.join();
}

// A listener with a recipient; the process of the connections is this one.
TEST_F(Workers, AreNamedAtEachAccept) {
  auto loop = std::move(*base::EventLoop::create());
  std::optional<WorkerProcess> worker{start()};
  const uint32_t first = worker->worker;
  Recipient recipient{first, 0};
  std::vector<Arrival> arrivals;
  Reception reception;
  reception.closed_for = [] { return base::Duration(0); };
  reception.arrived = [] {};
  reception.recipient = [&] { return recipient; };
  reception.accepted = [&](Arrival arrival) {
    arrivals.push_back(std::move(arrival));
    loop->stop();
  };
  reception.lost = [&](base::Fd) {
    ADD_FAILURE() << "a connection is lost";
    loop->stop();
  };
  const std::string name = path("5.sock");
  const auto acceptor = broker->listen(*loop, name, cookie, std::move(reception));
  ASSERT_TRUE(acceptor);
  const auto given_up = loop->after(std::chrono::seconds(20), [&] { loop->stop(); });
  const auto connect = [&] {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, name.c_str());
    clients.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(clients.back().get(), reinterpret_cast<const sockaddr*>(&address),
                        sizeof address),
              0);
  };
  connect();
  loop->run();
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(ask(*worker, Op::kCheck, arrivals[0].caller->entry()).error, 0);
  worker.reset();
  connect();  // it waits, because that worker has ended
  const auto replaced = loop->after(std::chrono::milliseconds(100), [&] {
    EXPECT_EQ(arrivals.size(), 1u);
    worker.emplace(start());
    recipient.worker = worker->worker;
  });
  loop->run();
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(ask(*worker, Op::kCheck, arrivals[1].caller->entry()).error, 0);
}

}  // namespace
}  // namespace vrdma::vrdmad
