// What a client may send before the last request has been answered.
#include "vrdmad/broker/conversation.h"

#include <gtest/gtest.h>

#include "core/ipc/messages.h"

namespace vrdma::vrdmad {
namespace {

struct ConversationTest : testing::Test {
  using Talk = Conversation<ipc::Request, ipc::Reply>;
  std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create());
  std::pair<base::Fd, base::Fd> ends = std::move(*ipc::make_socket_pair(SOCK_NONBLOCK));
  Talk talk{*loop, std::make_shared<Intake::Account>(nullptr), std::move(ends.second), nullptr, 0,
            [] {}};

  void send(uint32_t sequence) {
    ipc::Request request;
    request.sequence = sequence;
    ASSERT_TRUE(ipc::send_message(ends.first.get(), &request, sizeof request));
  }
  Talk::Heard hear() {
    ipc::Request request;
    return talk.hear(&request);
  }
};

TEST_F(ConversationTest, HearsNothingMoreBeforeTheReply) {
  send(1);
  ASSERT_EQ(hear(), Talk::Heard::kRequest);
  talk.defer();
  EXPECT_EQ(talk.hear_while_busy(), Talk::Heard::kNothing);
  send(2);
  EXPECT_EQ(talk.hear_while_busy(), Talk::Heard::kNonsense);
}

// rdma_disconnect() does not wait, and the program may destroy its queue pair next.
TEST_F(ConversationTest, HearsWhatFollowsARequestWithoutAReplyAfterIt) {
  send(0);
  ASSERT_EQ(hear(), Talk::Heard::kRequest);
  talk.defer();
  send(1);
  EXPECT_EQ(talk.hear_while_busy(), Talk::Heard::kNothing);
  EXPECT_TRUE(talk.is_busy());
  ipc::Reply reply;
  ASSERT_EQ(talk.answer(&reply), 0);
  EXPECT_FALSE(talk.is_busy());
  EXPECT_EQ(hear(), Talk::Heard::kRequest);
  EXPECT_TRUE(talk.is_awaited());
  ends.first.reset();
  talk.defer();
  EXPECT_EQ(talk.hear_while_busy(), Talk::Heard::kEnd);
}

}  // namespace
}  // namespace vrdma::vrdmad
