// What the broker answers, and what it refuses to control.
#include "vrdmad/broker/broker.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "core/base/netns_cookie.h"
#include "tests/unit/vrdmad/admin/fixture.h"
#include "tests/unit/vrdmad/broker/fork_helper.h"
#include "vrdmad/broker/broker_process.h"
#include "vrdmad/broker/broker_serve.h"
#include "vrdmad/broker/local_broker.h"

namespace vrdma::vrdmad {
namespace {

using broker::Answer;
using broker::get;
using broker::put;
using broker::Request;
using Op = Request::Op;
namespace fs = std::filesystem;

// A run directory, and a broker for it; this process is its control and its client.
struct Brokers : testing::Test {
  Brokers() { fs::create_directories(temp.path() + "/netns/" + std::to_string(cookie)); }
  [[nodiscard]] std::string place(const std::string& name) const {
    return temp.path() + "/netns/" + std::to_string(cookie) + "/" + name;
  }
  Answer ask(Op op, uint32_t entry = 0, const std::string& text = {}) {
    Request request;
    request.op = op;
    request.entry = entry;
    request.number = cookie;
    EXPECT_TRUE(put(text, request.text));
    return ask(request);
  }
  Answer ask(const Request& request) {
    beside = {};
    return broker->serve(request, &beside);
  }
  static base::Fd connect(const std::string& path) {
    base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    return socket;
  }
  // The entry of a connection of this process.
  uint32_t accepted(std::string path = {}) {
    static int count = 0;
    if (path.empty()) path = place(std::to_string(count++) + ".sock");
    place_of_peer = path;
    const uint32_t listener = ask(Op::kListen, 0, path).entry;
    clients.push_back(connect(path));
    return ask(Op::kAccept, listener).entry;
  }
  uint32_t identified(const std::string& path = {}) {
    const uint32_t entry = accepted(path);
    const Answer who = ask(Op::kAccept, entry);
    EXPECT_EQ(who.error, 0) << get(who.reason);
    EXPECT_EQ(who.peer.pid, ::getpid());
    peer = who.peer;
    return entry;
  }
  Answer check(uint32_t entry, const ipc::Sender& sender) {
    Request request;
    request.op = Op::kCheck;
    request.entry = entry;
    request.first = 1;
    request.sender = sender;
    return ask(request);
  }
  Answer find(const rdma::Peer& whom) { return find(whom, place_of_peer); }
  Answer find(const rdma::Peer& whom, const std::string& path) {
    Request request;
    request.op = Op::kFind;
    request.peer = whom;
    EXPECT_TRUE(put(path, request.text));
    return ask(request);
  }
  [[nodiscard]] ptrdiff_t given() const {
    return std::count_if(beside.begin(), beside.end(),
                         [](const base::Fd& fd) { return fd.valid(); });
  }
  const ipc::Sender self{::getpid(), ::getuid(), ::getgid()};

  const TempDir temp;
  const uint64_t cookie = base::own_netns_cookie().value();
  std::shared_ptr<Broker> broker = std::make_shared<LocalBroker>(BrokerPlace{temp.path(), 0});
  Broker::Beside beside;
  rdma::Peer peer;                              // who was identified last,
  std::string place_of_peer = place("0.sock");  // and where it connected
  std::vector<base::Fd> clients;
};

TEST_F(Brokers, TellWhoConnected) {
  const uint32_t entry = accepted();
  EXPECT_TRUE(beside[0].valid()) << "the connection";
  EXPECT_EQ(check(entry, self).error, EINVAL) << "it is not identified yet";
  const Answer who = ask(Op::kAccept, entry);
  EXPECT_EQ(who.peer.pid, ::getpid());
  EXPECT_EQ(who.peer.uid(), ::getuid());
  EXPECT_EQ(who.peer.netns_cookie, cookie);
  EXPECT_EQ(ask(Op::kAccept, entry).error, EINVAL) << "it is identified once";
  const std::string path = place("rdma_cm");
  Request accept;
  accept.op = Op::kAccept;
  accept.entry = ask(Op::kListen, 0, path).entry;
  accept.which = 1;
  clients.push_back(connect(path));
  const Answer at_once = ask(accept);
  EXPECT_EQ(at_once.peer, who.peer);
  EXPECT_TRUE(beside[0].valid()) << "the connection is lost";
  EXPECT_EQ(check(entry, self).error, 0);
  EXPECT_EQ(check(entry, {::getppid(), ::getuid(), ::getgid()}).error, EPERM);
  EXPECT_EQ(check(entry, {}).error, EPERM) << "a sender that the kernel does not name";
  Request open;
  open.op = Op::kCheck;
  open.entry = entry;
  open.files = Request::kMemory;
  EXPECT_EQ(ask(open).error, 0);
  EXPECT_EQ(given(), 3) << "memory, maps, pidfd";
  open.first = 1;
  EXPECT_EQ(ask(open).error, EPERM) << "without a sender";
  ask(Op::kForget, entry);
  EXPECT_EQ(ask(open).error, EINVAL);
}

TEST_F(Brokers, AcceptOnlyFromTheNamespaceOfTheListener) {
  const std::string path = place("0.sock");
  Request listen;
  listen.op = Op::kListen;
  listen.number = cookie + 1;
  EXPECT_TRUE(put(path, listen.text));
  const uint32_t listener = ask(listen).entry;
  EXPECT_EQ(ask(Op::kAccept, listener).error, EAGAIN) << "there is no connection";
  clients.push_back(connect(path));
  const Answer refused = ask(Op::kAccept, listener);
  EXPECT_EQ(refused.error, EXDEV);
  EXPECT_EQ(refused.entry, 0u);
  EXPECT_TRUE(beside[0].valid()) << "for the caller to close";
  clients.push_back(connect(path));
  listen.op = Op::kAccept;
  listen.entry = listener;
  listen.which = 1;
  EXPECT_EQ(ask(listen).error, EXDEV);
}

TEST_F(Brokers, ListenOnlyInTheRunDirectory) {
  for (const std::string& path :
       {temp.path() + "/admin.sock", std::string("/tmp/1.sock"), place("a.sock"), place(".sock"),
        place("../../1.sock"), place("1.sock/"), place("1.sockets"), temp.path() + "/netns/1.sock"})
    EXPECT_EQ(ask(Op::kListen, 0, path).error, EPERM) << path;
  EXPECT_EQ(ask(Op::kListen, 0, temp.path() + "/netns/7/1.sock").error, ENOENT);
  const TempDir other;
  fs::create_directory_symlink(other.path(), temp.path() + "/netns/7");
  EXPECT_EQ(ask(Op::kListen, 0, temp.path() + "/netns/7/1.sock").error, ENOTDIR);
  EXPECT_TRUE(fs::is_empty(other.path()));
  EXPECT_EQ(ask(Op::kListen, 0, place("rdma_cm")).error, 0);
  EXPECT_EQ(ask(Op::kListen, 0, place("rdma_cm")).error, EADDRINUSE);
}

TEST_F(Brokers, FindOnlyProcessesThatABrokerHasChecked) {
  rdma::Peer init;
  init.pid = 1;
  init.start_time = rdma::start_time_of(1).value();
  EXPECT_EQ(find(init).error, EPERM);
  const uint32_t entry = identified();
  EXPECT_EQ(find(peer).error, EPERM) << "it may have gained ids by exec";
  EXPECT_EQ(check(entry, self).error, 0);
  EXPECT_EQ(find(peer).error, 0);
  EXPECT_EQ(given(), 3) << "its memory, maps and pidfd";
  broker = std::make_shared<LocalBroker>(BrokerPlace{temp.path(), 0});
  EXPECT_EQ(find(peer).error, 0) << "the list is lost";
  rdma::Peer changed = peer;
  changed.program ^= 1;
  EXPECT_EQ(find(changed).error, EPERM);
}

// A worker writes the anchors of sessions, and may name any process in them.
TEST_F(Brokers, FindAProcessOnlyForTheListenersToWhichItConnected) {
  const std::vector<std::string> its{place("500.sock"), place("rdma_cm")};
  for (const std::string& path : its) EXPECT_EQ(check(identified(path), self).error, 0);
  for (int daemon = 0; daemon < 2; ++daemon) {
    for (const std::string& path : its) EXPECT_EQ(find(peer, path).error, 0) << path;
    for (const std::string& path :
         {place("501.sock"), temp.path() + "/netns/7/500.sock", temp.path() + "/netns/7/rdma_cm"}) {
      const Answer answer = find(peer, path);
      EXPECT_EQ(answer.error, EPERM) << path;
      EXPECT_EQ(answer.entry, 0u);
      EXPECT_NE(get(answer.reason).find("has not connected to that vdevice"),
                std::string_view::npos);
    }
    for (const std::string& path : {std::string(), place("x.sock"), place("500.sock/")})
      EXPECT_EQ(find(peer, path).error, EPERM) << path;
    broker = std::make_shared<LocalBroker>(BrokerPlace{temp.path(), 0});
  }
}

// An earlier vrdmad recorded no listeners.
TEST_F(Brokers, TakeOverTheListOfAnEarlierVersion) {
  const uint32_t entry = identified();
  EXPECT_EQ(ask(Op::kForget, entry).error, 0);
  const std::string list = temp.path() + "/broker/peers";
  fs::create_directory(temp.path() + "/broker");
  ::chmod((temp.path() + "/broker").c_str(), 0700);
  std::ofstream(list, std::ios::binary).write(reinterpret_cast<const char*>(&peer), sizeof peer);
  for (int daemon = 0; daemon < 2; ++daemon) {
    broker = std::make_shared<LocalBroker>(BrokerPlace{temp.path(), 0});
    EXPECT_EQ(find(peer, place("7.sock")).error, 0) << "in the daemon " << daemon;
    EXPECT_EQ(fs::file_size(list), sizeof peer) << "the list is changed before it was used";
  }
  EXPECT_EQ(check(find(peer, place("8.sock")).entry, self).error, 0);
  EXPECT_EQ(find(peer, place("9.sock")).error, 0) << "it may have several sessions";
  broker = std::make_shared<LocalBroker>(BrokerPlace{temp.path(), 0});
  EXPECT_EQ(find(peer, place("8.sock")).error, 0);
  EXPECT_EQ(find(peer, place("9.sock")).error, EPERM) << "it is for any listener forever";
}

TEST_F(Brokers, BelieveNoListOfAnother) {
  identified();
  const std::string directory = temp.path() + "/broker";
  fs::create_directory(directory);
  {
    std::ofstream list(directory + "/peers", std::ios::binary);
    list.write(reinterpret_cast<const char*>(&peer), sizeof peer);
  }
  for (const mode_t mode : {0770, 0707}) {
    ::chmod(directory.c_str(), mode);
    broker = std::make_shared<LocalBroker>(BrokerPlace{temp.path(), 0});
    const Answer answer = find(peer);
    EXPECT_EQ(answer.error, EPERM) << std::oct << mode;
    EXPECT_NE(get(answer.reason).find("another user"), std::string_view::npos);
  }
  ::chmod(directory.c_str(), 0700);
  fs::rename(directory, temp.path() + "/elsewhere");
  fs::create_directory_symlink(temp.path() + "/elsewhere", directory);
  broker = std::make_shared<LocalBroker>(BrokerPlace{temp.path(), 0});
  EXPECT_EQ(find(peer).error, EPERM) << "through a link";
}

TEST_F(Brokers, RemoveAListOfTheDead) {
  const uint32_t entry = identified();
  EXPECT_EQ(check(entry, self).error, 0);
  std::static_pointer_cast<LocalBroker>(broker)->end();
  EXPECT_TRUE(fs::exists(temp.path() + "/broker/peers")) << "this process lives";
  rdma::Peer dead = peer;
  dead.pid = 0x3fffffff;
  std::ofstream(temp.path() + "/broker/peers", std::ios::binary)
      .write(reinterpret_cast<const char*>(&dead), sizeof dead);
  broker = std::make_shared<LocalBroker>(BrokerPlace{temp.path(), 0});
  EXPECT_EQ(find(dead).error, ESRCH);
  std::static_pointer_cast<LocalBroker>(broker)->end();
  EXPECT_FALSE(fs::exists(temp.path() + "/broker"));
}

TEST_F(Brokers, SayWhatIsWrongWithANamespace) {
  EXPECT_EQ(ask(Op::kNetns, 0, "/proc/thread-self/ns/net").number, cookie);
  EXPECT_TRUE(beside[0].valid());
  const Answer none = ask(Op::kNetns, 0, "nosuchnetns");
  EXPECT_EQ(none.error, ENOENT);
  EXPECT_NE(get(none.reason).find("nosuchnetns"), std::string_view::npos);
  EXPECT_FALSE(beside[0].valid());
  EXPECT_EQ(ask(Op::kNetns, 0, "/etc/passwd").error, EINVAL);
  EXPECT_EQ(broker->netns(std::string(2000, 'x')).error().code(), EINVAL);
  const auto lo = broker->link(-1, "lo", 0);
  ASSERT_TRUE(lo) << lo.error().message();
  EXPECT_EQ(lo->name, "lo");
  EXPECT_TRUE(lo->loopback);
  EXPECT_EQ(broker->link(-1, "nosuchdev", 0).error().code(), ENODEV);
}

// It could get files and sockets that it cannot have itself.
TEST_F(Brokers, IdentifyNoProcessOfTheDaemon) {
  constexpr uid_t kDaemon = 64789;
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  ::chmod(temp.path().c_str(), 0755);
  broker = std::make_shared<LocalBroker>(BrokerPlace{temp.path(), kDaemon});
  const std::string path = place("7.sock");
  const uint32_t listener = ask(Op::kListen, 0, path).entry;
  ::chmod(path.c_str(), 0666);
  for (const uid_t uid : {kDaemon, kDaemon + 1}) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setuid(uid) != 0) ::_exit(1);
      const base::Fd socket = connect(path);
      ::pause();
      ::_exit(0);
    }
    Answer came;
    do {
      came = ask(Op::kAccept, listener);
    } while (came.error == EAGAIN);
    EXPECT_EQ(came.peer.pid, child);
    EXPECT_EQ(ask(Op::kAccept, came.entry).error, uid == kDaemon ? EPERM : 0);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

// Whatever control sends, there is an answer, and no descriptor of a process that did not connect.
TEST_F(Brokers, AnswerAnyRequest) {
  const uint32_t entry = identified();
  std::mt19937 random(7);
  for (int i = 0; i < 1'000; ++i) {
    Request request;
    auto* const bytes = reinterpret_cast<uint8_t*>(&request);
    for (size_t at = 0; at < sizeof request; ++at) bytes[at] = static_cast<uint8_t>(random());
    request.op = static_cast<Op>(random() % 12);
    request.entry = random() % 3 == 0 ? entry : static_cast<uint32_t>(random() % 5);
    request.files = static_cast<uint32_t>(random() % 7);
    request.text[0] = random() % 2 == 0 ? '\0' : '/';
    if (request.op == Op::kForget) continue;
    const Answer answer = ask(request);
    EXPECT_TRUE(answer.error == 0 || !get(answer.reason).empty()) << "no reason is given";
  }
}

// Of the main thread; the one that was started last.
pid_t child_of_this() {
  const std::string pid = std::to_string(::getpid());
  std::ifstream file("/proc/" + pid + "/task/" + pid + "/children");
  pid_t last = 0;
  while (file >> last) {
  }
  return last;
}

// The same in a process of its own.
struct BrokerProcesses : testing::Test {
  [[nodiscard]] base::Fd fork(unsigned requests) const {
    return fork_helper([&](base::Fd life) {
      broker::serve(std::move(life), {temp.path(), 0}, requests, [](const base::Fd&) {});
    });
  }
  const TempDir temp;
  std::shared_ptr<BrokerProcess> broker = BrokerProcess::attach(fork(2), 2).value_or(nullptr);
};

TEST_F(BrokerProcesses, ServeSeveralThreads) {
  ASSERT_NE(broker, nullptr);
  const uint64_t cookie = base::own_netns_cookie().value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        const auto found = broker->netns("/proc/self/ns/net");
        ASSERT_TRUE(found) << found.error().message();
        EXPECT_EQ(found->cookie, cookie);
        EXPECT_TRUE(found->fd.valid());
        EXPECT_EQ(broker->netns("nosuchnetns").error().code(), ENOENT);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(BrokerProcesses, EndWhenTheyAreAskedForMoreThanWasAgreed) {
  auto socket = fork(1);
  const pid_t child = child_of_this();
  const auto one = BrokerProcess::attach(std::move(socket), 2);
  ASSERT_TRUE(one);
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  pollfd ended{pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 20'000), 1);
}

TEST_F(BrokerProcesses, AreMissedWhenTheyEnd) {
  ASSERT_NE(broker, nullptr);
  auto loop = std::move(*base::EventLoop::create());
  bool died = false;
  auto watch = broker->watch(*loop, [&] {
    died = true;
    loop->stop();
  });
  ASSERT_TRUE(watch);
  const auto given_up = loop->after(std::chrono::seconds(20), [&] { loop->stop(); });
  const pid_t child = child_of_this();
  ASSERT_GT(child, 0);
  ::kill(child, SIGKILL);
  loop->run();
  EXPECT_TRUE(died);
  EXPECT_EQ(broker->netns("/proc/self/ns/net").error().code(), EPIPE);
}

}  // namespace
}  // namespace vrdma::vrdmad
