#include "client/dial/daemon_link.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

namespace vrdma::client {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kFirst = 1, kTold = 100, kAsked = 200;  // CmRequest::value

class Link final : public DaemonLink<ipc::CmRequest, ipc::CmReply> {
 public:
  int ask(uint32_t value, bool wait = true) {
    ipc::CmRequest request;
    ipc::CmReply reply;
    request.value = value;
    const std::lock_guard lock(mutex_);
    return converse(request, &reply, {}, nullptr, wait);
  }
  int tell(uint32_t value) {
    ipc::CmRequest request;
    request.value = value;
    const std::lock_guard lock(mutex_);
    return tell_now(request, true);
  }
  void become_known(milliseconds grace) { known(grace); }

 private:
  void ask_to_resume(ipc::CmRequest* request) override { request->call = ipc::CmCall::kResume; }
  Taken on_taken(const ipc::CmReply& reply, base::Fd socket) override {
    socket_ = std::move(socket);
    return {milliseconds(reply.grace_ms), reply.count};
  }
  std::string path_now(const std::string& path) override { return path; }
};

// A registered program, and the socket on which daemons listen.
class DaemonLinks : public testing::Test {
 protected:
  DaemonLinks() {
    char name[] = "/tmp/vrdma-link.XXXXXX";
    EXPECT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    path_ = directory_ + "/daemon.sock";
    listen();
  }
  ~DaemonLinks() override {
    listener_.reset();
    std::filesystem::remove_all(directory_);
  }

  void listen() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    ::unlink(path_.c_str());
    listener_ = base::Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    ASSERT_EQ(::listen(listener_.get(), 8), 0);
  }
  base::Fd accept() { return base::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
  static ipc::CmRequest next(const base::Fd& connection) {
    ipc::CmRequest request;
    std::vector<base::Fd> none;
    EXPECT_TRUE(ipc::receive(connection.get(), &request, &none));
    return request;
  }
  static void answer(const base::Fd& connection, const ipc::CmRequest& request,
                     uint32_t last_done = 0, int error = 0) {
    ipc::CmReply reply;
    reply.sequence = request.sequence;
    reply.error = error;
    reply.count = last_done;
    reply.grace_ms = 10'000;
    EXPECT_TRUE(ipc::send_message(connection.get(), &reply, sizeof reply));
  }
  // The daemon that registered the program; it has answered one request.
  base::Fd first_daemon(milliseconds grace) {
    EXPECT_EQ(link_.open(path_), 0);
    base::Fd connection = accept();
    std::thread program([this] { EXPECT_EQ(link_.ask(kFirst), 0); });
    answer(connection, next(connection));
    program.join();
    link_.become_known(grace);
    return connection;
  }

  std::string directory_, path_;
  base::Fd listener_;
  Link link_;
};

TEST_F(DaemonLinks, DialGoesOnAfterASignal) {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};  // without SA_RESTART
  ::sigaction(SIGUSR1, &action, &before);
  ASSERT_EQ(::listen(listener_.get(), 0), 0);  // one connection may wait
  const auto first = dial(path_);
  ASSERT_TRUE(first);
  std::atomic<bool> done = false, connected = false;
  std::thread second([&] {
    connected = dial(path_).has_value();
    done = true;
  });
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(milliseconds(5));
    ::pthread_kill(second.native_handle(), SIGUSR1);
  }
  EXPECT_FALSE(done);
  const base::Fd accepted = accept();
  second.join();
  EXPECT_TRUE(connected);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(DaemonLinks, TellTheNextDaemonWhatTheLastHadNotDone) {
  base::Fd connection = first_daemon(milliseconds(10'000));
  EXPECT_EQ(link_.tell(kTold), 0);
  const uint32_t done = next(connection).sequence;
  connection.reset();
  // The call does not wait for a daemon.
  EXPECT_EQ(link_.tell(kTold + 1), 0);
  EXPECT_EQ(link_.tell(kTold + 2), 0);
  EXPECT_EQ(link_.ask(kAsked, false), EAGAIN);

  std::thread program([this] { EXPECT_EQ(link_.ask(kAsked), 0); });
  base::Fd taken = accept();
  ipc::CmRequest request = next(taken);
  EXPECT_EQ(request.call, ipc::CmCall::kResume);
  answer(taken, request, 0, EAGAIN);  // not yet
  taken = accept();
  request = next(taken);
  EXPECT_EQ(request.call, ipc::CmCall::kResume);
  answer(taken, request, done);
  for (const uint32_t value : {kTold + 1, kTold + 2}) EXPECT_EQ(next(taken).value, value);
  request = next(taken);
  EXPECT_EQ(request.value, kAsked);
  answer(taken, request);
  program.join();
  EXPECT_EQ(link_.successions(), 1U);
  EXPECT_FALSE(link_.is_lost());
}

// As while another process of the namespace is in a long execve(2).
TEST_F(DaemonLinks, RepeatRequestsOfAProgramThatCannotBeInspected) {
  EXPECT_EQ(link_.open(path_), 0);
  const base::Fd connection = accept();
  std::thread program([this] { EXPECT_EQ(link_.ask(kFirst), 0); });
  for (const int error : {EAGAIN, EAGAIN, 0}) {
    const ipc::CmRequest request = next(connection);
    EXPECT_EQ(request.value, kFirst);
    answer(connection, request, 0, error);
  }
  program.join();
  // Once the program is registered, EAGAIN is the result of a call.
  link_.become_known(milliseconds(10'000));
  std::thread again([this] { EXPECT_EQ(link_.ask(kAsked), EAGAIN); });
  answer(connection, next(connection), 0, EAGAIN);
  again.join();
}

// The reply would be taken for that of the next request.
TEST_F(DaemonLinks, AreNotLeftBetweenARequestAndItsReply) {
  const base::Fd connection = first_daemon(milliseconds(10'000));
  std::atomic<int> error = -1;
  std::thread cancelled([&] {
    error = link_.ask(kAsked);
    int before = 0;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    EXPECT_EQ(before, PTHREAD_CANCEL_ENABLE);
  });
  const ipc::CmRequest request = next(connection);
  ASSERT_EQ(::pthread_cancel(cancelled.native_handle()), 0);
  answer(connection, request);
  cancelled.join();
  EXPECT_EQ(error, 0);
  std::thread program([this] { EXPECT_EQ(link_.ask(kAsked + 1), 0); });
  const ipc::CmRequest following = next(connection);
  EXPECT_EQ(following.value, kAsked + 1);
  answer(connection, following);
  program.join();
  EXPECT_EQ(link_.successions(), 0U);
}

TEST_F(DaemonLinks, WaitNoLongerThanTheGracePeriod) {
  constexpr milliseconds kGrace(200);
  base::Fd connection = first_daemon(kGrace);
  connection.reset();
  listener_.reset();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(link_.ask(kAsked, false), EAGAIN);
  EXPECT_EQ(link_.ask(kAsked), EIO);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kGrace);
  EXPECT_TRUE(link_.is_lost());
  EXPECT_EQ(link_.tell(kTold), EIO);
}

TEST_F(DaemonLinks, AreLostWhereTheNextDaemonDoesNotKnowThem) {
  base::Fd connection = first_daemon(milliseconds(60'000));
  connection.reset();
  std::thread program([this] { EXPECT_EQ(link_.ask(kAsked), EIO); });
  const base::Fd taken = accept();
  answer(taken, next(taken), 0, ESTALE);
  program.join();
  EXPECT_TRUE(link_.is_lost());
}

}  // namespace
}  // namespace vrdma::client
