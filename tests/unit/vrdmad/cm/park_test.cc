// Sessions of rdma_cm whose program is written to disk. All clients are this process: a park()
// concerns those that are connected then.
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "tests/unit/vrdmad/admin/fixture.h"
#include "tests/unit/vrdmad/cm/rig.h"

namespace vrdma::vrdmad {
namespace {

using ipc::CmCall;
using qp1mux::CmEventType;

struct CmParked : testing::Test {
  TempDir temp;
  CmRig rig;
  CmClient two{rig, 1};
  std::optional<CmClient> peer;
  const std::string token = "token";

  CmParked() { rig.cm.keep_sessions(temp.path()); }
  auto park() { return rig.cm.park(::getpid(), token); }
  CmClient& one() {
    if (!peer) peer.emplace(rig, 0);
    return *peer;
  }
  // As the end of its program, after the session was detached.
  void kill(CmClient& client) {
    client.hang_up();
    for (auto& [handle, socket] : client.channels) socket.reset();
    rig.settle();
  }
  base::Result<void> attach() {
    const CmClient connected(rig, 1);
    return rig.cm.attach(token, ::getpid());
  }
  void reopen(CmClient& client) {
    ASSERT_EQ(client.resume(), 0);
    EXPECT_EQ(client.reply.count, client.sequence());
    for (auto& [handle, socket] : client.channels) {
      ASSERT_EQ(client.call(CmCall::kCreateChannel, handle), 0);
      socket = std::move(client.beside);
    }
  }
  static bool is(const std::optional<ipc::CmEventMessage>& event, CmEventType type) {
    return event && event->type == static_cast<uint32_t>(type);
  }
  // A connection between both. The number of the id of `two`.
  uint32_t connect(uint32_t* id) {
    two.listener(1, kPort);
    *id = one().caller(1, kPort, 3);
    const auto request = two.event();
    if (!is(request, CmEventType::kConnectRequest)) std::abort();
    if (two.with_qp(CmCall::kAccept, request->request, 2) != 0) std::abort();
    while (const auto event = one().event())
      if (is(event, CmEventType::kConnectResponse) && one().call(CmCall::kConfirm, *id) != 0)
        std::abort();
    if (!is(two.event(), CmEventType::kEstablished)) std::abort();
    return request->request;
  }
};

TEST_F(CmParked, TheirEventsAndRequestsWait) {
  const uint32_t listener = two.listener(1, kPort);
  const auto parked = park();
  ASSERT_TRUE(parked) << parked.error().message();
  ASSERT_EQ(parked->size(), 1u);
  EXPECT_EQ(parked->front().channels.size(), 1u);
  EXPECT_TRUE(parked->front().socket.ends_with("/netns/2/rdma_cm")) << parked->front().socket;
  one().caller(1, kPort, 3);
  EXPECT_FALSE(two.event());
  EXPECT_EQ(two.call(CmCall::kDestroyId, listener), -1) << "it is served";
  rig.cm.resume_parked(token);
  EXPECT_FALSE(rig.cm.has_parked(token));
  EXPECT_TRUE(is(two.event(), CmEventType::kConnectRequest));
  EXPECT_FALSE(two.event()) << "once";
  EXPECT_EQ(two.receive(), 0) << "the request that waited";
}

TEST_F(CmParked, GoOnInAProcessThatIsMadeOfAnImage) {
  uint32_t id = 0;
  const uint32_t mine = connect(&id);
  peer.reset();  // its process is this one, too
  EXPECT_TRUE(is(two.event(), CmEventType::kDisconnected));
  ASSERT_EQ(two.call(CmCall::kDestroyId, mine), 0);

  ASSERT_TRUE(park());
  rig.cm.detach(token);
  kill(two);
  EXPECT_TRUE(rig.cm.has_parked(token)) << "the end of its program has ended it";
  id = one().caller(1, kPort, 4);  // those of before have a TIMEWAIT
  EXPECT_EQ(rig.cm.attach(token, ::getpid()).error().code(), ENOTCONN);
  EXPECT_EQ(two.resume(), EAGAIN) << "another process may come";
  ASSERT_TRUE(attach());
  EXPECT_FALSE(rig.cm.has_parked(token)) << "a token is good for one process";
  reopen(two);
  const auto request = two.event();
  ASSERT_TRUE(is(request, CmEventType::kConnectRequest));
  EXPECT_FALSE(two.event()) << "once";
  ASSERT_EQ(two.with_qp(CmCall::kAccept, request->request, 5), 0);
  ASSERT_TRUE(is(one().event(), CmEventType::kAddrResolved));
  ASSERT_TRUE(is(one().event(), CmEventType::kRouteResolved));
  EXPECT_TRUE(is(one().event(), CmEventType::kConnectResponse));
}

TEST_F(CmParked, LearnOfADisconnectAfterwards) {
  uint32_t id = 0;
  connect(&id);
  ASSERT_TRUE(park());  // both
  peer.reset();
  rig.settle();
  rig.cm.detach(token);
  kill(two);
  ASSERT_TRUE(attach());
  reopen(two);
  EXPECT_TRUE(is(two.event(), CmEventType::kDisconnected));
}

TEST_F(CmParked, EndWithTheirConnectionUntilTheyAreDetached) {
  two.channel();
  ASSERT_TRUE(park());
  kill(two);
  EXPECT_FALSE(rig.cm.has_parked(token));
  EXPECT_EQ(rig.spaces[1]->sessions.count(), 0u);

  two.connect();
  two.channels.clear();
  two.channel();
  ASSERT_TRUE(park());
  rig.cm.detach(token);
  rig.cm.end_parked(token);
  rig.settle();
  EXPECT_FALSE(rig.cm.has_parked(token));
  EXPECT_EQ(rig.spaces[1]->channels.count(), 0u);
}

TEST_F(CmParked, WithoutChannelsBeginAnew) {
  ASSERT_EQ(two.call(CmCall::kDevices), 0);
  ASSERT_TRUE(park());
  rig.cm.detach(token);
  ASSERT_TRUE(attach());
  rig.settle();
  EXPECT_TRUE(two.ended());
  EXPECT_EQ(rig.spaces[1]->sessions.count(), 0u);
}

TEST_F(CmParked, AreTakenOverByTheNextDaemon) {
  two.listener(1, kPort);
  const auto before = park()->front().channels;
  rig.cm.detach(token);
  kill(two);
  ASSERT_TRUE(attach());
  rig.replace_daemon(temp.path());
  EXPECT_EQ(park()->front().channels, before) << "of a channel that is not open again";
  rig.cm.resume_parked(token);
  reopen(two);
  one().caller(1, kPort, 3);
  EXPECT_TRUE(is(two.event(), CmEventType::kConnectRequest));
  EXPECT_NE(park()->front().channels, before);
}

// A client that knows its own secret resumes its session while it is parked.
TEST_F(CmParked, StayParkedWhenTheirProgramReconnects) {
  two.listener(1, kPort);
  ASSERT_TRUE(park());
  ASSERT_EQ(two.resume(), 0);
  EXPECT_EQ(two.call(CmCall::kDevices), -1) << "it is served";
  EXPECT_TRUE(rig.cm.has_parked(token));
  rig.cm.resume_parked(token);
  EXPECT_EQ(two.receive(), 0);
  ASSERT_TRUE(park());
  two.hang_up();
  rig.settle();
  EXPECT_FALSE(rig.cm.has_parked(token)) << "its new connection has ended";
}

TEST_F(CmParked, AreRefusedWithoutAFile) {
  rig.cm.leave_sessions();
  rig.spaces = {};
  rig.devices = {};
  rig.new_daemon();
  rig.attach();
  CmClient lost(rig, 1);
  lost.channel();
  const auto parked = park();
  ASSERT_FALSE(parked);
  EXPECT_EQ(parked.error().code(), ENOTSUP);
  EXPECT_EQ(lost.call(CmCall::kDevices), 0) << "it goes on";
}

TEST_F(CmParked, AreParkedOnce) {
  two.channel();
  ASSERT_TRUE(park());
  EXPECT_EQ(rig.cm.park(::getpid(), "another").error().code(), EALREADY);
  EXPECT_TRUE(rig.cm.has_parked(token)) << "the second attempt has resumed it";
  EXPECT_TRUE(rig.cm.park(::getpid() + 1, "none")->empty());
}

}  // namespace
}  // namespace vrdma::vrdmad
