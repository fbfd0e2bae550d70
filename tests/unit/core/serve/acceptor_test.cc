#include "core/serve/acceptor.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

namespace vrdma::serve {
namespace {

// A socket that listens on an address that the kernel chooses, and its clients.
class Listening : public testing::Test {
 protected:
  Listening() : listener_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const sa_family_t family = AF_UNIX;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&family), sizeof family),
              0);
    EXPECT_EQ(::listen(listener_.get(), 200), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &length_), 0);
  }
  void connect() {
    clients_.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(clients_.back().get(), reinterpret_cast<sockaddr*>(&address_), length_), 0);
  }
  void start(std::function<base::Duration()> closed_for = {}) {
    auto acceptor =
        Acceptor::start(*loop_, std::move(listener_), Acceptor::accept([this](base::Fd client) {
          accepted_.push_back(std::move(client));
          if (accepted_.size() == clients_.size()) loop_->stop();
        }),
                        std::move(closed_for));
    ASSERT_TRUE(acceptor) << acceptor.error().message();
    acceptor_ = std::move(*acceptor);
  }
  void run(std::chrono::milliseconds most) {
    const auto end = loop_->after(most, [this] { loop_->stop(); });
    loop_->run();
  }

  std::unique_ptr<base::EventLoop> loop_ = std::move(*base::EventLoop::create());
  base::Fd listener_;
  sockaddr_un address_{};
  socklen_t length_ = sizeof address_;
  std::vector<base::Fd> clients_, accepted_;
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(Listening, TakesAllWhoCome) {
  for (int i = 0; i < 100; ++i) connect();
  start();
  run(std::chrono::seconds(30));
  EXPECT_EQ(accepted_.size(), 100u);
}

TEST_F(Listening, LooksAwayWithoutDescriptorsAndTakesWhoWaitsLater) {
  connect();
  start();
  accepted_.reserve(1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  timespec spent_before{}, spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent_before);
  run(std::chrono::milliseconds(500));
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(accepted_.empty());
  // A spinning loop would use the whole half second.
  EXPECT_LT(
      (spent.tv_sec - spent_before.tv_sec) * 1'000'000'000 + spent.tv_nsec - spent_before.tv_nsec,
      100'000'000);
  run(std::chrono::seconds(30));
  EXPECT_EQ(accepted_.size(), 1u);
}

TEST_F(Listening, TakesNobodyWhileItIsClosed) {
  bool closed = true;
  int asked = 0;
  for (int i = 0; i < 20; ++i) connect();
  start([&] {
    ++asked;
    return closed ? std::chrono::milliseconds(20) : std::chrono::milliseconds(0);
  });
  run(std::chrono::milliseconds(200));
  EXPECT_TRUE(accepted_.empty());
  EXPECT_GT(asked, 0);
  EXPECT_LE(asked, 11) << "it is called again before the returned time";
  closed = false;
  run(std::chrono::seconds(30));
  EXPECT_EQ(accepted_.size(), 20u);
}

TEST_F(Listening, LeavesWhoWaitsToWhoStopsIt) {
  start();
  connect();
  const base::Fd listener = acceptor_->stop();
  EXPECT_TRUE(base::Fd(::accept(listener.get(), nullptr, nullptr)).valid());
  run(std::chrono::milliseconds(20));
  EXPECT_TRUE(accepted_.empty());
}

}  // namespace
}  // namespace vrdma::serve
