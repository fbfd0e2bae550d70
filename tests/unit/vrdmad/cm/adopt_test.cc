// rdma_cm sessions that the next daemon adopts.
#include <filesystem>

#include "core/ipc/socket.h"
#include "tests/unit/vrdmad/admin/fixture.h"
#include "tests/unit/vrdmad/broker/hung_broker.h"
#include "tests/unit/vrdmad/cm/rig.h"
#include "vrdmad/broker/broker_process.h"

namespace vrdma::vrdmad {
namespace {

using ipc::CmCall;
using qp1mux::CmEventType;

struct CmAdopted : testing::Test {
  TempDir temp;
  const std::string state_dir = temp.path();
  CmRig rig;
  CmClient one{rig, 0}, two{rig, 1};

  CmAdopted() { rig.cm.keep_sessions(state_dir); }
  void replace_daemon() { rig.replace_daemon(state_dir); }
  void resume(CmClient& client) {
    ASSERT_EQ(client.resume(), 0);
    ASSERT_EQ(client.reply.count, client.sequence());
    ASSERT_EQ(client.reply.grace_ms, SessionSettings().grace_ms);
    for (auto& [handle, socket] : client.channels) {
      ASSERT_EQ(client.call(CmCall::kCreateChannel, handle), 0);
      ASSERT_EQ(client.reply.handle, handle);
      socket = std::move(client.beside);
    }
  }
  void resume_both() {
    replace_daemon();
    resume(one);
    resume(two);
  }
  // The type of the next event.
  CmEventType next(CmClient& client) {
    const auto message = client.event();
    EXPECT_TRUE(message) << "no event";
    if (!message) return CmEventType::kAddrError;
    EXPECT_GT(message->sequence, last.sequence);
    last = *message;
    return static_cast<CmEventType>(message->type);
  }
  [[nodiscard]] size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(temp.path()), {}));
  }

  ipc::CmEventMessage last;
};

TEST_F(CmAdopted, ConnectAndDisconnectWithADaemonForEachStep) {
  two.listener(1, kPort);
  const uint32_t id = one.id(one.channel());
  resume_both();
  ASSERT_EQ(one.resolve(id, CmRig::address(1, kPort)), 0);
  EXPECT_EQ(next(one), CmEventType::kAddrResolved);
  resume_both();
  ASSERT_EQ(one.call(CmCall::kResolveRoute, id), 0);
  EXPECT_EQ(next(one), CmEventType::kRouteResolved);
  resume_both();
  ASSERT_EQ(one.with_qp(CmCall::kConnect, id, 3), 0);
  last.sequence = 0;
  EXPECT_EQ(next(two), CmEventType::kConnectRequest);
  const uint32_t request = last.request;
  resume_both();
  ASSERT_EQ(two.with_qp(CmCall::kAccept, request, 2), 0);
  last.sequence = 0;
  EXPECT_EQ(next(one), CmEventType::kConnectResponse);
  EXPECT_EQ(last.param.qpn, 2u);
  resume_both();
  ASSERT_EQ(one.call(CmCall::kConfirm, id), 0);
  last.sequence = 0;
  EXPECT_EQ(next(two), CmEventType::kEstablished);
  resume_both();
  ASSERT_EQ(one.call(CmCall::kDisconnect, id), 0);
  last.sequence = 0;
  EXPECT_EQ(next(two), CmEventType::kDisconnected);
  resume_both();
  ASSERT_EQ(two.call(CmCall::kDestroyId, request), 0);
  last.sequence = 0;
  EXPECT_EQ(next(one), CmEventType::kDisconnected);
  resume_both();
  ASSERT_EQ(one.call(CmCall::kDestroyId, id), 0);
  EXPECT_EQ(files(), 2u);
  one.hang_up();
  two.hang_up();
  rig.settle();
  EXPECT_EQ(files(), 0u);
  for (const auto& space : rig.spaces) {
    EXPECT_EQ(space->sessions.count() + space->channels.count() + space->ids.count(), 0u);
    EXPECT_EQ(space->events, 0u);
  }
}

TEST_F(CmAdopted, WaitForThoseOfAnotherNamespace) {
  two.listener(1, kPort);
  const uint32_t id = one.id(one.channel());
  ASSERT_EQ(one.resolve(id, CmRig::address(1, kPort)), 0);
  ASSERT_EQ(one.call(CmCall::kResolveRoute, id), 0);
  ASSERT_EQ(one.with_qp(CmCall::kConnect, id, 3), 0);
  EXPECT_EQ(next(two), CmEventType::kConnectRequest);
  const uint32_t request = last.request;
  ASSERT_EQ(two.with_qp(CmCall::kAccept, request, 2), 0);
  rig.replace_daemon(state_dir, {2});
  resume(one);
  EXPECT_EQ(two.resume(), EAGAIN);
  while (const auto message = one.event())
    EXPECT_NE(static_cast<CmEventType>(message->type), CmEventType::kDisconnected);
  rig.cm.adopt_sessions({});
  resume(two);
  ASSERT_EQ(one.call(CmCall::kConfirm, id), 0);
  last.sequence = 0;
  EXPECT_EQ(next(two), CmEventType::kEstablished);
  ASSERT_EQ(one.call(CmCall::kDisconnect, id), 0);
  EXPECT_EQ(next(two), CmEventType::kDisconnected);
}

TEST_F(CmAdopted, WaitForProcessesThatCannotBeInspected) {
  const uint32_t id = one.id(one.channel());
  const size_t before = files();
  const auto hung = std::make_shared<HungBroker>(rig.broker);
  rig.replace_daemon(state_dir, {}, hung);
  EXPECT_EQ(one.resume(), EAGAIN);
  EXPECT_EQ(files(), before) << "its records are harmed";
  hung->error = 0;
  const auto end = base::Clock::steady().now() + std::chrono::seconds(20);
  while (rig.cm.awaits_others(1) && base::Clock::steady().now() < end) rig.settle(1);
  resume(one);
  ASSERT_EQ(one.call(CmCall::kDestroyId, id), 0);
}

TEST_F(CmAdopted, HoldTheirPortsAndOptions) {
  const uint32_t id = one.id(one.channel());
  ipc::CmRequest option;
  option.call = CmCall::kSetOption;
  option.handle = id;
  option.value = static_cast<uint32_t>(ipc::CmOption::kTos);
  option.setting = 12;
  ASSERT_EQ(one.call(option), 0);
  ASSERT_EQ(one.bind(id, CmRig::address(0, kPort)), 0);
  replace_daemon();
  resume(one);
  CmClient other(rig, 0);
  EXPECT_EQ(other.bind(other.id(other.channel()), CmRig::address(0, kPort)), EADDRINUSE);
  ASSERT_EQ(one.resolve(id, CmRig::address(1, kPort)), 0);
  EXPECT_EQ(next(one), CmEventType::kAddrResolved);
  EXPECT_EQ(last.where.traffic_class, 12);
}

TEST_F(CmAdopted, AnswerARequestThatWasServedAsThen) {
  const uint32_t id = one.id(one.channel());
  ipc::CmRequest bind;
  bind.call = CmCall::kBind;
  bind.handle = id;
  bind.local = CmRig::address(0, kPort);
  ASSERT_EQ(one.call(bind), 0);
  replace_daemon();
  ASSERT_EQ(one.resume(), 0);
  EXPECT_EQ(one.say_again(bind, one.sequence()), 0) << "a repetition gets the first reply";
  EXPECT_EQ(one.reply.where.local.port, kPort);
  EXPECT_EQ(one.say_again(bind, one.sequence()), EINVAL) << "a new request, and the id is bound";
}

// The program does not know the channel that was created last, and repeats the request.
TEST_F(CmAdopted, MakeAChannelOnce) {
  one.channel();
  ASSERT_EQ(one.call(CmCall::kCreateChannel), 0);
  const uint32_t handle = one.reply.handle;
  replace_daemon();
  ASSERT_EQ(one.resume(), 0);
  ipc::CmRequest again;
  again.call = CmCall::kCreateChannel;
  one.beside.reset();
  ASSERT_EQ(one.say_again(again, one.sequence()), 0);
  EXPECT_EQ(one.reply.handle, handle);
  EXPECT_TRUE(one.beside.valid());
  EXPECT_EQ(rig.cm.space(1)->channels.count(), 2u);
}

TEST_F(CmAdopted, KeepEventsForWhoIsNotThereYet) {
  two.listener(1, kPort);
  const uint32_t id = one.id(one.channel());
  replace_daemon();
  resume(one);
  ASSERT_EQ(one.resolve(id, CmRig::address(1, kPort)), 0);
  ASSERT_EQ(one.call(CmCall::kResolveRoute, id), 0);
  ASSERT_EQ(one.with_qp(CmCall::kConnect, id, 3), 0);
  rig.settle();
  replace_daemon();  // no program got its reply
  resume(two);
  EXPECT_EQ(next(two), CmEventType::kConnectRequest);
  const uint32_t request = last.request;
  EXPECT_FALSE(two.event()) << "once";
  ASSERT_EQ(two.with_qp(CmCall::kAccept, request, 2), 0);
  resume(one);
  last.sequence = 0;
  EXPECT_EQ(next(one), CmEventType::kConnectResponse) << "earlier events were delivered before";
  EXPECT_FALSE(one.event());
}

TEST_F(CmAdopted, TellThatTheVdeviceDidNotSurvive) {
  const uint32_t id = one.id(one.channel());
  ASSERT_EQ(one.bind(id, CmRig::address(0, kPort)), 0);
  rig.cm.leave_sessions();
  rig.spaces = {};
  rig.devices = {};
  rig.new_daemon();
  rig.cm.keep_sessions(state_dir);
  rig.cm.adopt_sessions({});
  rig.attach();
  resume(one);
  EXPECT_EQ(next(one), CmEventType::kDeviceRemoval);
  EXPECT_EQ(one.call(CmCall::kListen, id, 1), ENODEV);
  EXPECT_EQ(one.call(CmCall::kDestroyId, id), 0);
}

TEST_F(CmAdopted, AreLeftToTheNextDaemonIfTheBrokerHasEnded) {
  one.channel();
  two.channel();
  rig.cm.leave_sessions();
  rig.spaces = {};
  rig.devices = {};
  const auto ended = BrokerProcess::over(std::move(ipc::make_socket_pair()->first));
  rig.daemon.emplace(*rig.loop, CmRig::settings_of(ended), rig.network);
  rig.attach();
  rig.cm.keep_sessions(state_dir);
  rig.cm.adopt_sessions({});
  EXPECT_EQ(files(), 2u);
  resume_both();
}

TEST_F(CmAdopted, AreNotForWhoDoesNotKnowTheSecret) {
  one.channel();
  two.channel();
  replace_daemon();
  one.secret[3] ^= 1;
  EXPECT_EQ(one.resume(), ESTALE);
  one.secret = two.secret;
  EXPECT_EQ(one.resume(), ESTALE) << "the session of another namespace";
}

TEST_F(CmAdopted, AreNotThoseOfAnOlderProtocol) {
  ipc::CmRequest request;
  request.call = CmCall::kCreateChannel;
  request.version = ipc::kCmOldestVersion - 1;
  EXPECT_EQ(one.call(request), EPROTONOSUPPORT);
  EXPECT_EQ(one.reply.version, request.version);
  EXPECT_EQ(files(), 0u);
}

// A client that knows its own secret resumes its session with a living daemon.
TEST_F(CmAdopted, ResumeAndSayAgainWhatTheyLike) {
  const uint32_t channel = one.channel();
  ipc::CmRequest nudge, create;
  nudge.call = CmCall::kNudge;
  nudge.channel = channel;
  ASSERT_EQ(one.call(nudge), 0);
  create.call = CmCall::kCreateChannel;
  ASSERT_EQ(one.resume(), 0);
  EXPECT_EQ(one.say_again(create, one.sequence()), EINVAL) << "the last request was a nudge";
  ASSERT_EQ(one.call(CmCall::kCreateChannel), 0);
  one.beside.reset();
  rig.settle();
  ASSERT_EQ(one.resume(), 0);
  EXPECT_EQ(one.say_again(create, one.sequence()), EINVAL) << "the channel was destroyed";
  EXPECT_EQ(one.call(CmCall::kDevices), 0);
}

TEST_F(CmAdopted, GiveAwayAListenerWhoseRequestHasGone) {
  const uint32_t listener = two.listener(1, kPort);
  replace_daemon();  // so that events are queued
  ASSERT_EQ(two.resume(), 0);
  one.connect();
  one.caller(1, kPort, 3);
  rig.settle();
  uint32_t destroyed = 0;
  for (uint32_t handle = 1; handle < 16; ++handle)
    destroyed += two.call(CmCall::kDestroyId, handle) == 0 ? 1 : 0;
  ASSERT_EQ(destroyed, 1u);
  CmClient heir(rig, 1);
  ipc::CmRequest take;
  take.call = CmCall::kTakeId;
  take.handle = listener;
  take.channel = heir.channel();
  std::memcpy(take.param.data, two.secret.data(), sizeof two.secret);
  EXPECT_EQ(heir.call(take), 0);
  EXPECT_FALSE(heir.event()) << "its request was destroyed";
}

TEST_F(CmAdopted, HoldAPortAsTheyHadAskedForIt) {
  CmClient other(rig, 0);
  std::vector<std::pair<CmClient*, uint32_t>> holders;
  for (CmClient* each : {&one, &other}) {
    const uint32_t id = each->id(each->channel());
    ipc::CmRequest reuse;
    reuse.call = CmCall::kSetOption;
    reuse.handle = id;
    reuse.value = static_cast<uint32_t>(ipc::CmOption::kReuseAddress);
    reuse.setting = 1;
    ASSERT_EQ(each->call(reuse), 0);
    ASSERT_EQ(each->bind(id, CmRig::address(0, kPort)), 0);
    holders.emplace_back(each, id);
  }
  ipc::CmRequest alone;
  alone.call = CmCall::kSetOption;
  alone.handle = holders[0].second;
  alone.value = static_cast<uint32_t>(ipc::CmOption::kReuseAddress);
  ASSERT_EQ(one.call(alone), 0) << "without effect on an id that is bound";
  replace_daemon();
  for (auto& [client, id] : holders) {
    resume(*client);
    EXPECT_EQ(client->resolve(id, CmRig::address(1, kPort)), 0);
    EXPECT_EQ(client->event()->type, static_cast<uint32_t>(CmEventType::kAddrResolved));
  }
}

TEST_F(CmAdopted, EndWhenTheirProcessBeginsAnother) {
  ASSERT_EQ(one.bind(one.id(one.channel()), CmRig::address(0, kPort)), 0);
  replace_daemon();
  CmClient fresh(rig, 0);
  const uint32_t id = fresh.id(fresh.channel());
  rig.settle();
  EXPECT_EQ(fresh.bind(id, CmRig::address(0, kPort)), 0) << "the port is free again";
  EXPECT_EQ(one.resume(), ESTALE);
}

TEST_F(CmAdopted, KeepAnIdFromTheFirstRequestAboutIt) {
  ipc::CmRequest request;
  request.call = CmCall::kQpAttributes;
  request.channel = one.channel();
  request.handle = ipc::kCmOwnHandle | 7;
  request.space = kTcpSpace;
  request.qp_type = kRc;
  request.value = static_cast<uint32_t>(verbs::QpState::kInit);
  EXPECT_EQ(one.call(request), EINVAL) << "the id has no device yet";
  EXPECT_EQ(one.reply.handle, request.handle) << "but the id exists";
  replace_daemon();
  resume(one);
  EXPECT_EQ(one.bind(request.handle, CmRig::address(0, kPort)), 0);
}

}  // namespace
}  // namespace vrdma::vrdmad
