#include "client/device/session.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "core/ipc/socket.h"

namespace vrdma::client {
namespace {

constexpr uint64_t kNodeGuid = 0x5a;

// A program that no daemon has registered yet, and the socket on which daemons listen.
class Strangers : public testing::Test {
 protected:
  Strangers() {
    char name[] = "/tmp/vrdma-session.XXXXXX";
    EXPECT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    path_ = directory_ + "/va.sock";
    listen();
  }
  ~Strangers() override {
    listener_.reset();
    std::filesystem::remove_all(directory_);
  }

  void listen() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    listener_ = base::Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    ASSERT_EQ(::listen(listener_.get(), 8), 0);
  }
  // Accepts the next connection and receives its first request.
  base::Fd accept(ipc::Request* request) {
    base::Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::vector<base::Fd> none;
    (void)ipc::receive(client.get(), request, &none);
    return client;
  }
  void answer() {
    ipc::Request request;
    ipc::Reply reply;
    const base::Fd client = accept(&request);
    reply.sequence = request.sequence;
    reply.probe.node_guid = kNodeGuid;
    EXPECT_TRUE(ipc::send_message(client.get(), &reply, sizeof reply));
  }
  int probe() {
    Session session;
    if (const int error = session.open(path_); error != 0) return error;
    ipc::Request request;
    ipc::Reply reply;
    request.call = ipc::Call::kProbe;
    const int error = session.call(request, &reply);
    EXPECT_EQ(reply.probe.node_guid, error == 0 ? kNodeGuid : 0);
    return error;
  }

  std::string directory_, path_;
  base::Fd listener_;
};

TEST_F(Strangers, AreServedByTheDaemonAfterTheOneThatDiesMeanwhile) {
  std::thread daemons([this] {
    constexpr auto kMoment = std::chrono::milliseconds(50);
    ipc::Request unanswered;
    (void)accept(&unanswered);
    listener_.reset();  // killed: its socket file remains
    std::this_thread::sleep_for(kMoment);
    ::unlink(path_.c_str());  // the next one starts
    std::this_thread::sleep_for(kMoment);
    listen();
    answer();
  });
  EXPECT_EQ(probe(), 0);
  daemons.join();
}

TEST_F(Strangers, DoNotComeForEverWhereTheyAreNotWanted) {
  std::thread daemon([this] {
    ipc::Request unanswered;
    for (int i = 0; i < Newcomer::kMostDials; ++i) (void)accept(&unanswered);
  });
  EXPECT_EQ(probe(), EIO);
  daemon.join();
}

TEST_F(Strangers, DoNotWaitWhereThereIsNoDaemon) {
  listener_.reset();
  EXPECT_EQ(probe(), ECONNREFUSED);
  ::unlink(path_.c_str());
  EXPECT_EQ(probe(), ENOENT);
}

}  // namespace
}  // namespace vrdma::client
