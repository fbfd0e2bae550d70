#include "vrdmad/worker/link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "core/ipc/socket.h"
#include "vrdmad/worker/messages_codec.h"

namespace vrdma::vrdmad {
namespace {

// A link, and the other end of its socket.
struct Links : testing::Test {
  Links() {
    auto ends = ipc::make_socket_pair().value();
    other = std::move(ends.second);
    link = Link::start(
               *loop, std::move(ends.first),
               [this](std::span<const uint8_t> bytes, Beside beside) {
                 came.emplace_back(bytes.begin(), bytes.end());
                 descriptors += beside.size();
                 return came.back() != "nonsense";
               },
               [this](const std::string& reason) {
                 why = reason;
                 link.reset();
               })
               .value();
  }
  void run() {
    const auto limit = loop->after(std::chrono::milliseconds(100), [this] { loop->stop(); });
    loop->run();
  }
  static std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
  [[nodiscard]] ipc::Received receive() const {
    return ipc::receive_any(other.get(), buffer.get(), kMostMessage, MSG_DONTWAIT);
  }
  void say(const std::string& text) const {
    EXPECT_TRUE(ipc::send_message(other.get(), text.data(), text.size()));
  }

  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  const std::unique_ptr<char[]> buffer = std::make_unique<char[]>(kMostMessage);
  base::Fd other;
  std::vector<std::string> came;
  size_t descriptors = 0;
  std::string why;
  std::unique_ptr<Link> link;
};

TEST_F(Links, KeepTheOrderOfMoreThanTheSocketHolds) {
  constexpr unsigned kMany = 2000;
  for (unsigned i = 0; i < kMany; ++i) {
    Beside beside;
    if (i % 2 == 0) beside.push_back(other.duplicate().value());
    link->send(bytes(std::to_string(i)), std::move(beside));
  }
  for (unsigned i = 0; i < kMany; ++i) {
    auto received = receive();
    if (received.error == EAGAIN) {
      run();
      received = receive();
    }
    ASSERT_EQ(std::string(buffer.get(), static_cast<size_t>(received.length)), std::to_string(i));
    ASSERT_EQ(received.fds.size(), i % 2 == 0 ? 1u : 0u);
  }
}

TEST_F(Links, SendsTheLargestMessageWithTheMostDescriptors) {
  Beside beside;
  for (int i = 0; i < 253; ++i) beside.push_back(other.duplicate().value());
  link->send(std::vector<uint8_t>(kMostMessage, 'x'), std::move(beside));
  const auto received = receive();
  EXPECT_EQ(received.length, static_cast<ssize_t>(kMostMessage));
  EXPECT_EQ(received.fds.size(), 253u);
  EXPECT_FALSE(received.truncated);
}

TEST_F(Links, EndsWithTheOtherEnd) {
  say("one");
  other.reset();
  run();
  EXPECT_EQ(came, std::vector<std::string>{"one"});
  EXPECT_EQ(why, "it has ended");
}

TEST_F(Links, EndsBehindTheLastMessageWhenItIsHungUp) {
  const base::Fd of_a_program = other.duplicate().value();
  say("last");
  link->hang_up();
  EXPECT_FALSE(ipc::send_message(of_a_program.get(), "more", 4));
  run();
  EXPECT_EQ(came, (std::vector<std::string>{"last"}));
  EXPECT_EQ(why, "it has ended");
}

TEST_F(Links, EndsAtNonsense) {
  say("one");
  say("nonsense");
  say("three");
  run();
  EXPECT_EQ(came, (std::vector<std::string>{"one", "nonsense"}));
  EXPECT_EQ(why, "it sends nonsense");
}

// Closing them may take as long as their maker likes.
TEST_F(Links, ReceivesNoDescriptorsOfAWorker) {
  auto [own, worker] = ipc::make_socket_pair().value();
  link = Link::start(
             *loop, std::move(own),
             [this](std::span<const uint8_t> bytes, const Beside& beside) {
               came.emplace_back(bytes.begin(), bytes.end());
               descriptors += beside.size();
               return true;
             },
             [this](const std::string& reason) { why = reason; },
             std::make_shared<Intake::Account>(nullptr))
             .value();
  EXPECT_TRUE(ipc::send_message(worker.get(), "one", 3));
  EXPECT_TRUE(ipc::send_message(worker.get(), "two", 3, {worker.get()}));
  EXPECT_TRUE(ipc::send_message(worker.get(), "three", 5));
  run();
  EXPECT_EQ(came, std::vector<std::string>{"one"});
  EXPECT_EQ(descriptors, 0u);
  EXPECT_EQ(why, "it sends descriptors");
}

TEST_F(Links, GivesUpAnEndThatDoesNotRead) {
  for (size_t i = 0; i < Link::kMostQueued + 2000; ++i) link->send(bytes("x"), {});
  run();
  EXPECT_EQ(why, "it does not read");
}

}  // namespace
}  // namespace vrdma::vrdmad
