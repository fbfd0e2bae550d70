#include "vrdmad/admin/checkpoint_server.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <mutex>
#include <vector>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class CheckpointServerTest : public AdminFixture {
 protected:
  CheckpointServerTest() {
    checkpoints_ = on_control([this] {
      return CheckpointServer::start(*loop_, *backend_, path(),
                                     [this](const AuditRecord& record) { note(record); })
          .value();
    });
  }
  ~CheckpointServerTest() override { stop_checkpoints(); }

  std::string path() { return run_dir_->checkpoint_socket(); }
  void stop_checkpoints() {
    if (checkpoints_ == nullptr) return;
    std::promise<void> stopped;
    loop_->post([&] { checkpoints_->stop([&] { stopped.set_value(); }); });
    stopped.get_future().wait();
    on_control([this] {
      checkpoints_.reset();
      return true;
    });
  }
  void note(const AuditRecord& record) {
    const std::lock_guard lock(mutex_);
    audit_.push_back(record.action + " " + record.object + " " + std::to_string(record.error));
  }

  base::Fd connect() {
    base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      return {};
    return socket;
  }
  static std::string answer_of(const base::Fd& socket, const std::string& request) {
    for (size_t sent = 0; sent < request.size();) {
      const ssize_t put =
          ::send(socket.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (put <= 0) break;
      sent += static_cast<size_t>(put);
    }
    ::shutdown(socket.get(), SHUT_WR);
    std::string answer;
    char some[4096];
    for (ssize_t got = 0; (got = ::recv(socket.get(), some, sizeof some, 0)) > 0;)
      answer.append(some, static_cast<size_t>(got));
    return answer;
  }
  std::string ask(const std::string& request) { return answer_of(connect(), request); }

  std::unique_ptr<CheckpointServer> checkpoints_;
  std::mutex mutex_;
  std::vector<std::string> audit_;
};

TEST_F(CheckpointServerTest, serves_each_request_as_the_admin_api_does) {
  const std::string parked = ask("park 4711\n");
  EXPECT_THAT(parked, HasSubstr("\"token\": \"6f1a\""));
  EXPECT_THAT(parked, HasSubstr("\"doorbell\": 4"));
  EXPECT_EQ(ask("show 6f1a\n"), parked);
  EXPECT_EQ(ask("show 4711"), parked);  // also without a newline
  EXPECT_EQ(ask("detach 6f1a\n"), parked);
  EXPECT_EQ(backend_->last_step(), "show");
  EXPECT_EQ(ask("resume 4711\n"), "{}");
  EXPECT_EQ(backend_->last_step(), "resume");
  EXPECT_EQ(ask("abandon 6f1a\n"), "{}");
  EXPECT_EQ(backend_->last_step(), "abandon");
  EXPECT_THAT(ask("place\n" + parked), HasSubstr("\"socket\": \"/run/7.sock\""));
  EXPECT_EQ(ask("attach\n" + parked), "{}");
  EXPECT_EQ(backend_->last_step(), "attach");
  EXPECT_EQ(backend_->attached().sessions.at(0).files.channels.at(6), 7U);
  EXPECT_THAT(parked, HasSubstr("\"image\": \"2aff\""));
  EXPECT_EQ(backend_->attached().connections.at(0).image, (std::vector<uint8_t>{0x2a, 0xff}));
}

TEST_F(CheckpointServerTest, carries_errors_with_their_sentences) {
  EXPECT_EQ(ask("park 4712\n"), R"({"error":"process 4712 has no vdevice open","errno":2})");
  EXPECT_EQ(ask("park 4711x\n"),
            R"({"error":"'4711x' is not the number of a process","errno":22})");
  EXPECT_EQ(ask("park -1\n"), R"({"error":"'-1' is not the number of a process","errno":22})");
  EXPECT_THAT(ask("detach x\n"), HasSubstr("\"errno\":2}"));
  EXPECT_THAT(ask("resume 1\n"), HasSubstr("\"errno\":2}"));
  EXPECT_THAT(ask("attach\n{\"pid\": 4711"), HasSubstr("\"errno\":22}"));
  EXPECT_THAT(ask("place\n[]\n"), HasSubstr("\"errno\":22}"));
  EXPECT_THAT(ask("dump 4711\n"), HasSubstr("there is no such request as 'dump'"));
  EXPECT_THAT(ask("\xff\n"), HasSubstr("there is no such request as '\\\\xff'"));
  EXPECT_THAT(ask(""), HasSubstr("there is no such request"));
  EXPECT_THAT(ask("attach\n" + std::string(CheckpointServer::kMostBytes, '[')),
              StartsWith("{\"error\""));
}

TEST_F(CheckpointServerTest, a_request_that_is_too_long_is_not_executed) {
  ASSERT_THAT(ask("park 4711\n"), HasSubstr("6f1a"));
  (void)ask("resume 4711\n" + std::string(CheckpointServer::kMostBytes, ' '));
  EXPECT_EQ(backend_->last_step(), "");
}

TEST_F(CheckpointServerTest, the_audit_knows_what_was_changed_and_no_token) {
  (void)ask("park 4712\n");
  const std::string parked = ask("park 4711\n");
  (void)ask("show 4711\n");
  (void)ask("detach 0123456789abcdef0123456789abcdef\n");
  (void)ask("attach\n" + parked);
  const std::lock_guard lock(mutex_);
  EXPECT_THAT(audit_, ElementsAre("checkpoint park 4712 2", "checkpoint park 4711 0",
                                  "checkpoint detach by its token 2", "checkpoint attach 4711 0"));
}

TEST_F(CheckpointServerTest, a_silent_client_delays_no_other_until_there_are_too_many) {
  std::vector<base::Fd> silent;
  while (silent.size() + 1 < CheckpointServer::kMost) silent.push_back(connect());
  EXPECT_THAT(ask("park 4711\n"), HasSubstr("6f1a"));
  silent.push_back(connect());
  const base::Fd waiting = connect();
  std::thread freeing([&] { silent.clear(); });
  EXPECT_THAT(answer_of(waiting, "park 4711\n"), HasSubstr("6f1a"));
  freeing.join();
}

TEST_F(CheckpointServerTest, the_end_of_the_server_ends_a_silent_client) {
  const base::Fd silent = connect();
  ASSERT_THAT(ask("park 4711\n"), HasSubstr("6f1a"));  // the first one was accepted before
  stop_checkpoints();
  EXPECT_THAT(answer_of(silent, ""), Not(HasSubstr("6f1a")));
  EXPECT_NE(::access(path().c_str(), F_OK), 0);
  EXPECT_FALSE(connect().valid());
}

TEST_F(CheckpointServerTest, serves_no_other_user) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(1);
    const base::Fd socket = connect();
    ::_exit(socket.valid() && answer_of(socket, "park 4711\n").empty() ? 0 : 2);
  }
  int result = 0;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace vrdma::vrdmad
