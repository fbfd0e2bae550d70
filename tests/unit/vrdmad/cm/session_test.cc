// Valid and invalid requests at the rdma_cm socket.
#include "vrdmad/cm/session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/vrdmad/cm/rig.h"

namespace vrdma::vrdmad {
namespace {

using ipc::CmCall;
using qp1mux::CmEventType;
using testing::Each;
using testing::IsEmpty;

uint32_t number(CmEventType type) { return static_cast<uint32_t>(type); }

struct CmSessions : testing::Test {
  CmRig rig;
  CmClient one{rig, 0}, two{rig, 1};

  // The events on the client's first channel.
  std::vector<uint32_t> events(CmClient& client) {
    std::vector<uint32_t> all;
    while (const auto message = client.event()) {
      all.push_back(message->type);
      last = *message;
    }
    return all;
  }
  // Makes a connection; returns the ids of its ends.
  std::pair<uint32_t, uint32_t> establish() {
    two.listener(1, kPort);
    const uint32_t id = one.caller(1, kPort, 3);
    events(two);
    const uint32_t request = last.request;
    EXPECT_EQ(two.with_qp(CmCall::kAccept, request, 2), 0);
    events(one);
    EXPECT_EQ(last.type, number(CmEventType::kConnectResponse));
    EXPECT_EQ(one.call(CmCall::kConfirm, id), 0);
    EXPECT_THAT(events(two), testing::ElementsAre(number(CmEventType::kEstablished)));
    return {id, request};
  }
  uint64_t used(provisioning::Kind kind, size_t vdevice = 0) {
    return rig.devices[vdevice]->rows()[static_cast<size_t>(kind)].used;
  }
  uint64_t refused(provisioning::Kind kind, size_t vdevice = 0) {
    return rig.devices[vdevice]->rows()[static_cast<size_t>(kind)].refused;
  }
  // The programs' objects are gone, except those in TIMEWAIT.
  void expect_nothing() {
    rig.settle();
    for (const auto& space : rig.spaces) {
      EXPECT_EQ(space->sessions.count(), 0u);
      EXPECT_EQ(space->channels.count(), 0u);
      EXPECT_EQ(space->ids.count(), 0u);
      EXPECT_EQ(space->events, 0u);
    }
    EXPECT_EQ(used(provisioning::Kind::kCmIds, 0), 0u);
    EXPECT_EQ(used(provisioning::Kind::kCmIds, 1), 0u);
    for (const auto& info : rig.cm.mux().connections())
      EXPECT_THAT(info.state, testing::AnyOf(qp1mux::State::kTimewait, qp1mux::State::kDreqSent));
  }

  ipc::CmEventMessage last;
};

TEST_F(CmSessions, ConnectAndDisconnect) {
  const auto [id, request] = establish();
  EXPECT_EQ(used(provisioning::Kind::kCmIds, 0), 1u);
  EXPECT_EQ(used(provisioning::Kind::kCmIds, 1), 2u) << "the listener and the accepted request";
  EXPECT_EQ(used(provisioning::Kind::kCmConns, 1), 1u);
  EXPECT_EQ(one.call(CmCall::kDisconnect, id), 0);
  EXPECT_THAT(events(two), testing::ElementsAre(number(CmEventType::kDisconnected)));
  EXPECT_EQ(two.call(CmCall::kDestroyId, request), 0);
  EXPECT_THAT(events(one), testing::ElementsAre(number(CmEventType::kDisconnected)));
  one.hang_up();
  two.hang_up();
  expect_nothing();
}

TEST_F(CmSessions, JoinGroups) {
  const uint32_t id = one.id(one.channel(), kUdpSpace, kUd);
  ipc::CmRequest join;
  join.call = CmCall::kJoin;
  join.handle = id;
  join.value = 9;
  join.remote = CmRig::address(0, 0);
  join.remote.gid[12] = 239;
  EXPECT_EQ(one.call(join), EINVAL) << "the id is not bound";
  ASSERT_EQ(one.resolve(id, join.remote), 0) << "a group is reachable from any vdevice";
  EXPECT_EQ(events(one), std::vector{number(CmEventType::kAddrResolved)});
  EXPECT_EQ(one.call(join), 0);
  EXPECT_EQ(events(one), std::vector{number(CmEventType::kMulticastJoin)});
  EXPECT_EQ(last.token, 9u);
  EXPECT_EQ(std::memcmp(last.where.remote.gid, join.remote.gid, 16), 0);
  EXPECT_EQ(last.param.qpn, 0xffffffu);
  join.remote = CmRig::address(1, 0);
  EXPECT_EQ(one.call(join), EINVAL) << "the address of a neighbour is not a group";
}

TEST_F(CmSessions, MoveIdsWithWhatIsNotToldYet) {
  const uint32_t from = one.channel(), to = one.channel();
  const uint32_t id = one.id(from), other = one.id(from);
  // More than a socket's buffer holds.
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(one.resolve(id, CmRig::address(77, kPort)), 0);
    ASSERT_EQ(one.resolve(other, CmRig::address(77, kPort)), 0);
  }
  ipc::CmRequest migrate;
  migrate.call = CmCall::kMigrateId;
  migrate.handle = id;
  migrate.channel = to;
  ASSERT_EQ(one.call(migrate), 0);
  size_t of_id = 0, of_other = 0;
  while (const auto event = one.event()) ++(event->handle == id ? of_id : of_other);
  EXPECT_EQ(of_other, 2000u);
  EXPECT_LT(of_id, 2000u) << "the others were in the socket";
  std::swap(one.channels[0], one.channels[1]);
  while (const auto event = one.event()) {
    EXPECT_EQ(event->handle, id);
    ++of_id;
  }
  EXPECT_EQ(of_id, 2000u);
  EXPECT_EQ(rig.spaces[0]->events, 0u);
}

TEST_F(CmSessions, HaveChannelsOfOneDirection) {
  one.channel();
  const int fd = one.channels.front().second.get();
  char byte = 0;
  EXPECT_EQ(::send(fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
  pollfd state{fd, POLLIN | POLLRDHUP, 0};
  EXPECT_EQ(::poll(&state, 1, 0), 0) << "no event can be read";
  const uint32_t id = one.id(one.channels.front().first);
  ASSERT_EQ(one.resolve(id, CmRig::address(1, kPort)), 0);
  EXPECT_EQ(::poll(&state, 1, 0), 1);
  EXPECT_EQ(state.revents, POLLIN);
  EXPECT_EQ(events(one), std::vector{number(CmEventType::kAddrResolved)});
  EXPECT_EQ(rig.spaces[0]->channels.count(), 1u);
  one.channels.clear();
  rig.settle();
  EXPECT_EQ(rig.spaces[0]->channels.count(), 0u) << "the program closed its channel";
}

TEST_F(CmSessions, Nudge) {
  ipc::CmRequest request;
  request.call = CmCall::kNudge;
  request.channel = one.channel();
  ASSERT_EQ(one.call(request), 0);
  EXPECT_EQ(events(one), std::vector{ipc::kCmNudge});
  request.channel = ~0u;
  EXPECT_EQ(one.call(request), EINVAL);
}

TEST_F(CmSessions, TellWithAConnectionWhatItsQueuePairNeeds) {
  two.listener(1, kPort);
  const uint32_t id = one.caller(1, kPort, 3);
  events(two);
  const ipc::CmEventMessage request = last;
  EXPECT_EQ(two.with_qp(CmCall::kAccept, request.request, 2), 0);
  events(one);
  const ipc::CmEventMessage response = last;
  const auto same = [](CmClient& client, uint32_t asked, const ipc::CmAttributes& told) {
    const verbs::QpAttributes& all = told.attributes;
    for (uint32_t state = 1; state <= 3; ++state) {
      ASSERT_EQ(client.call(CmCall::kQpAttributes, asked, state), 0);
      EXPECT_EQ(client.reply.mask, told.masks[state - 1]) << state;
      const verbs::QpAttributes& one_state = client.reply.attributes;
      if (state == 1) {
        EXPECT_EQ(one_state.access_flags, all.access_flags);
      }
      if (state == 2) {
        EXPECT_EQ(std::memcmp(&one_state.av, &all.av, sizeof all.av), 0);
        EXPECT_EQ(one_state.dest_qpn, all.dest_qpn);
        EXPECT_EQ(one_state.rq_psn, all.rq_psn);
      }
      if (state == 3) {
        EXPECT_EQ(one_state.sq_psn, all.sq_psn);
      }
    }
  };
  same(two, request.request, request.attributes);
  same(one, id, response.attributes);
}

TEST_F(CmSessions, AnswerNobodyWhoWantsNoAnswer) {
  const uint32_t id = one.id(one.channel());
  ipc::CmRequest destroy;
  destroy.call = CmCall::kDestroyId;
  destroy.handle = id;
  destroy.quiet = 1;
  one.send(&destroy, sizeof destroy);
  EXPECT_EQ(one.call(CmCall::kResolveRoute, id), EINVAL) << "the id was destroyed";
  destroy.call = CmCall::kCreateChannel;
  one.send(&destroy, sizeof destroy);
  EXPECT_EQ(one.call(CmCall::kDevices), 0);
}

TEST_F(CmSessions, AreEndedByMessagesThatAreNone) {
  std::vector<char> bytes(4096);
  const ipc::CmRequest whole;
  std::memcpy(bytes.data(), &whole, sizeof whole);
  const base::Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const size_t size : {size_t{1}, size_t{4}, sizeof(ipc::CmRequest) - 1,
                            sizeof(ipc::CmRequest) + 1, bytes.size()}) {
    CmClient client(rig, 0);
    client.send(bytes.data(), size);
    EXPECT_TRUE(client.ended()) << size;
  }
  {
    CmClient client(rig, 0);
    ipc::CmRequest request;
    request.magic ^= 1;
    client.send(&request, sizeof request);
    EXPECT_TRUE(client.ended()) << "another magic";
  }
  {
    CmClient client(rig, 0);
    const ipc::CmRequest request;
    client.send(&request, sizeof request, {null.get()});
    EXPECT_TRUE(client.ended()) << "a file descriptor";
  }
  EXPECT_EQ(rig.cm.counters().malformed, 7u);
  EXPECT_EQ(one.call(CmCall::kDevices), 0) << "other clients continue";
}

TEST_F(CmSessions, RefuseAnotherVersion) {
  ipc::CmRequest request;
  request.version = ipc::kCmVersion + 1;
  EXPECT_EQ(one.call(request), EPROTONOSUPPORT);
  EXPECT_EQ(one.call(CmCall::kDevices), 0);
}

TEST_F(CmSessions, NameTheVdevicesOfTheirNamespace) {
  ipc::CmRequest request;
  request.call = CmCall::kDevice;
  request.value = CmRig::kFirstNumber;
  EXPECT_EQ(one.call(request), 0);
  EXPECT_EQ(one.reply.device.node_guid, 100u);
  EXPECT_STREQ(one.reply.device.name, "va");
  request.value = CmRig::kFirstNumber + 1;
  EXPECT_EQ(one.call(request), ENODEV) << "it is in another namespace";
  CmClient other(rig, 1);
  EXPECT_EQ(other.call(request), 0);
  EXPECT_STREQ(other.reply.device.name, "vb");
}

TEST_F(CmSessions, KnowOnlyTheirOwnIdsAndChannels) {
  const auto [id, request] = establish();
  CmClient stranger(rig, 0);
  const uint32_t own = stranger.channel();
  for (uint32_t call = 0; call < 40; ++call) {
    const auto which = static_cast<CmCall>(call);
    if (which == CmCall::kCreateChannel || which == CmCall::kCreateId || which == CmCall::kDevices)
      continue;
    if (which == CmCall::kDevice) continue;                                     // has no handle
    if (which == CmCall::kNudge || which == CmCall::kDestroyChannel) continue;  // takes a channel
    if (which == CmCall::kResume) continue;                                     // takes a session
    for (const uint32_t handle : {0u, own, id, id + 1, request, 1u << 31, ~0u})
      EXPECT_EQ(stranger.call(which, handle), EINVAL) << call << " " << handle;
  }
  for (const uint32_t channel : {0u, id, 1u << 31, ~0u}) {
    EXPECT_EQ(stranger.try_id(channel), EINVAL) << channel;
    EXPECT_EQ(stranger.call(CmCall::kDestroyChannel, channel), EINVAL) << channel;
    if (channel != 0) {
      EXPECT_EQ(stranger.call(CmCall::kCreateChannel, channel), EINVAL) << channel;
    }
  }
  EXPECT_EQ(CmClient(rig, 0).call(CmCall::kResume), ESTALE) << "without the secret";
  const uint32_t mine = stranger.id(own);
  ipc::CmRequest migrate;
  migrate.call = CmCall::kMigrateId;
  migrate.handle = mine;
  migrate.channel = ~0u;
  EXPECT_EQ(stranger.call(migrate), EINVAL);
  EXPECT_EQ(one.call(CmCall::kDisconnect, id), 0) << "its ids are unchanged";
}

// As a child does that inherits its parent's secret.
TEST_F(CmSessions, GiveAnIdToAnotherThatKnowsTheirSecret) {
  const auto secret_of = [](CmClient& client) {
    ipc::CmRequest take;
    take.call = CmCall::kTakeId;
    std::memcpy(take.param.data, client.reply.guids, ipc::kCmSecret);
    return take;
  };
  const uint32_t channel = two.channel();
  ipc::CmRequest take = secret_of(two);
  two.listener(1, kPort);
  const uint32_t id = one.caller(1, kPort, 3);
  events(two);
  take.handle = last.request;
  CmClient child(rig, 1), stranger(rig, 0);
  take.channel = child.channel();
  EXPECT_NE(std::memcmp(take.param.data, child.reply.guids, ipc::kCmSecret), 0);

  ipc::CmRequest wrong = take;
  wrong.param.data[3] ^= 1;
  EXPECT_EQ(child.call(wrong), EINVAL);
  wrong = take;
  wrong.handle = channel;
  EXPECT_EQ(child.call(wrong), EINVAL);
  wrong = take;
  wrong.channel = channel + 100;
  EXPECT_EQ(child.call(wrong), EINVAL);
  EXPECT_EQ(two.call(take), EINVAL) << "its own";
  wrong = take;
  wrong.channel = stranger.channel();
  EXPECT_EQ(stranger.call(wrong), EINVAL) << "the session of another namespace";

  ASSERT_EQ(child.call(take), 0);
  const uint32_t taken = child.reply.handle;
  EXPECT_EQ(child.call(take), EINVAL) << "the id was taken already";
  EXPECT_EQ(two.with_qp(CmCall::kAccept, take.handle, 2), EINVAL);
  EXPECT_EQ(two.call(CmCall::kDestroyId, take.handle), EINVAL);
  EXPECT_EQ(child.with_qp(CmCall::kAccept, taken, 2), 0);
  EXPECT_THAT(events(one), testing::Contains(number(CmEventType::kConnectResponse)));
  EXPECT_EQ(one.call(CmCall::kConfirm, id), 0);
  EXPECT_THAT(events(child), testing::ElementsAre(number(CmEventType::kEstablished)));
  EXPECT_THAT(events(two), IsEmpty());
  two.hang_up();
  rig.settle();
  EXPECT_EQ(one.call(CmCall::kDisconnect, id), 0);
  EXPECT_THAT(events(child), testing::ElementsAre(number(CmEventType::kDisconnected)));
  child.hang_up();
  one.hang_up();
  stranger.hang_up();
  expect_nothing();
}

TEST_F(CmSessions, RefuseWhatIsOutOfRange) {
  const uint32_t channel = one.channel();
  EXPECT_EQ(one.try_id(channel, 0), EINVAL);  // a listener's handle creates nothing
  for (const uint32_t space : {1u, 0x105u, 0x10106u, ~0u})
    EXPECT_EQ(one.try_id(channel, space), EOPNOTSUPP) << space;
  for (const uint32_t type : {0u, 1u, 7u, 100u, 0x102u, 0x204u, ~0u})
    EXPECT_EQ(one.try_id(channel, kTcpSpace, type), EOPNOTSUPP) << type;
  two.listener(1, kPort);
  const uint32_t id = one.id(channel);
  ASSERT_EQ(one.resolve(id, CmRig::address(1, kPort)), 0);
  ASSERT_EQ(one.call(CmCall::kResolveRoute, id), 0);
  ipc::CmRequest connect;
  connect.call = CmCall::kConnect;
  connect.handle = id;
  connect.param.qpn = 3;
  for (const uint8_t length : {uint8_t{57}, uint8_t{224}, uint8_t{225}, uint8_t{255}}) {
    connect.param.length = length;
    EXPECT_EQ(one.call(connect), EINVAL) << "private data of " << int{length};
  }
  connect.param.length = 56;
  for (const uint32_t qpn : {0u, 64u, 1u << 24, ~0u}) {
    connect.param.qpn = qpn;
    EXPECT_THAT(one.call(connect), testing::AnyOf(EINVAL, EPERM)) << "queue pair " << qpn;
  }
  ipc::CmRequest option;
  option.call = CmCall::kSetOption;
  option.handle = id;
  option.value = 99;
  EXPECT_EQ(one.call(option), ENOSYS);
  option.value = static_cast<uint32_t>(ipc::CmOption::kAckTimeout);
  option.setting = 32;
  EXPECT_EQ(one.call(option), EINVAL);
  for (const uint32_t state : {0u, 3u, 7u, 1000u, ~0u})
    EXPECT_EQ(one.call(CmCall::kQpAttributes, id, state), EINVAL) << state;
  EXPECT_EQ(one.with_qp(CmCall::kConnect, id, 3), 0) << "the refused requests changed nothing";
}

TEST_F(CmSessions, EveryCallInEveryStateIsAnswered) {
  for (uint32_t first = 0; first < 40; ++first) {
    CmClient client(rig, 0);
    const uint32_t channel = client.channel();
    for (const uint32_t space : {kTcpSpace, kUdpSpace}) {
      const uint32_t id = client.id(channel, space, space == kTcpSpace ? kRc : kUd);
      for (uint32_t second = 0; second < 40; ++second) {
        EXPECT_GE(client.call(static_cast<CmCall>(first), id), 0);
        EXPECT_GE(client.call(static_cast<CmCall>(second), id), 0);
      }
    }
  }
  one.hang_up();
  two.hang_up();
  expect_nothing();
}

TEST_F(CmSessions, WhoHangsUpInTheMiddleLeavesNothing) {
  for (int step = 0; step < 6; ++step) {
    CmClient caller(rig, 0), server(rig, 1);
    const auto qpn = static_cast<uint32_t>(10 + step);
    if (step > 0) server.listener(1, kPort);
    if (step > 1) caller.caller(1, kPort, qpn);
    std::optional<ipc::CmEventMessage> request;
    if (step > 2) request = server.event();
    if (step > 3) {
      EXPECT_EQ(server.with_qp(CmCall::kAccept, request->request, qpn), 0);
    }
    ipc::CmRequest half;
    if (step == 5) caller.send(&half, sizeof half / 2);
    if (step % 2 == 0) caller.hang_up();
    rig.settle();
  }
  one.hang_up();
  two.hang_up();
  expect_nothing();
}

TEST_F(CmSessions, ANamespaceHasSoManyIdsAndChannels) {
  const uint32_t channel = one.channel();
  auto& space = *rig.spaces[0];
  space.channels.add(CmNamespace::kChannels.most - space.channels.count());
  EXPECT_EQ(one.call(CmCall::kCreateChannel), EMFILE);
  space.channels.remove(CmNamespace::kChannels.most - 1);
  space.ids.add(CmNamespace::kIds.most);
  EXPECT_EQ(one.try_id(channel), ENOMEM);
  space.ids.remove(CmNamespace::kIds.most);
  EXPECT_EQ(rig.cm.counters().crowded, 2u);
  EXPECT_EQ(two.call(CmCall::kCreateChannel), 0) << "another namespace";
}

TEST_F(CmSessions, AVdeviceHasSoManyIds) {
  rig.attach({{"cm_ids", 2}});
  const uint32_t channel = one.channel();
  const uint32_t first = one.id(channel), second = one.id(channel), third = one.id(channel);
  EXPECT_EQ(one.bind(first, CmRig::address(0, 0)), 0);
  EXPECT_EQ(one.resolve(second, CmRig::address(1, kPort)), 0);
  EXPECT_EQ(one.bind(third, CmRig::address(0, 0)), ENOMEM);
  EXPECT_EQ(events(one), std::vector{number(CmEventType::kAddrResolved)});
  EXPECT_EQ(one.resolve(third, CmRig::address(1, kPort)), 0);
  EXPECT_EQ(events(one), std::vector{number(CmEventType::kAddrError)});
  EXPECT_EQ(last.status, -ENOMEM);
  EXPECT_EQ(refused(provisioning::Kind::kCmIds), 2u);
  EXPECT_EQ(one.call(CmCall::kDestroyId, first), 0);
  EXPECT_EQ(one.resolve(third, CmRig::address(1, kPort)), 0);
  EXPECT_EQ(events(one), std::vector{number(CmEventType::kAddrResolved)});

  two.listener(1, kPort);
  EXPECT_EQ(one.call(CmCall::kDestroyId, third), 0);
  (void)one.caller(1, kPort, 3);
  EXPECT_EQ(one.call(CmCall::kDestroyId, second), 0);
  (void)one.caller(1, kPort, 2);
  EXPECT_THAT(events(two), testing::SizeIs(2));
  const uint32_t request = last.request;
  EXPECT_EQ(used(provisioning::Kind::kCmIds, 1), 1u) << "a request is charged to its sender";
  EXPECT_EQ(two.with_qp(CmCall::kAccept, request, 3), 0);
  EXPECT_EQ(used(provisioning::Kind::kCmIds, 1), 2u) << "until they are accepted";
  EXPECT_EQ(two.with_qp(CmCall::kAccept, request - 1, 4), ENOMEM);
  EXPECT_EQ(refused(provisioning::Kind::kCmIds, 1), 1u);
}

TEST_F(CmSessions, AVdeviceHasSoManyConnections) {
  rig.attach({{"cm_conns", 1}});
  two.listener(1, kPort);
  const uint32_t channel = one.channel();
  (void)one.caller(1, kPort, 3);
  const uint32_t more = one.id(channel);
  ASSERT_EQ(one.resolve(more, CmRig::address(1, kPort)), 0);
  ASSERT_EQ(one.call(CmCall::kResolveRoute, more), 0);
  EXPECT_EQ(one.with_qp(CmCall::kConnect, more, 2), EAGAIN);
  EXPECT_EQ(refused(provisioning::Kind::kCmConns), 1u);
  EXPECT_EQ(rig.devices[0]->set_limits({{"cm_conns", 0}}).error().code(), EBUSY);
  EXPECT_EQ(rig.devices[0]->check_limits({{"cm_ids", 0}}).error().code(), EBUSY);
  ASSERT_TRUE(rig.devices[0]->set_limits({{"cm_conns", 2}}));
  EXPECT_EQ(one.with_qp(CmCall::kConnect, more, 2), 0);
}

TEST_F(CmSessions, AVdeviceAsksSoManyTimesASecond) {
  ASSERT_TRUE(rig.devices[0]->set_limits({{"cm_rate", 1}}));
  two.listener(1, kPort);
  const uint32_t channel = one.channel();
  (void)one.caller(1, kPort, 3);
  EXPECT_EQ(used(provisioning::Kind::kCmRate), 1u);
  const uint32_t more = one.id(channel);
  ASSERT_EQ(one.resolve(more, CmRig::address(1, kPort)), 0);
  ASSERT_EQ(one.call(CmCall::kResolveRoute, more), 0);
  EXPECT_EQ(one.with_qp(CmCall::kConnect, more, 2), EAGAIN);
  EXPECT_EQ(refused(provisioning::Kind::kCmRate), 1u);
  ASSERT_TRUE(rig.devices[0]->set_limits({{"cm_rate", 0}}));
  EXPECT_EQ(one.with_qp(CmCall::kConnect, more, 2), EAGAIN) << "the limit is 0";
  ASSERT_TRUE(rig.devices[0]->set_limits({{"cm_rate", 10}}));
  EXPECT_EQ(one.with_qp(CmCall::kConnect, more, 2), 0);
}

// A program that repeatedly sends and withdraws requests fills no other program's memory.
TEST_F(CmSessions, AListenerThatDoesNotReadHasItsBacklog) {
  two.listener(1, kPort, 4);
  for (int i = 0; i < 2000; ++i) {
    CmClient caller(rig, 0);
    (void)caller.caller(1, kPort, 2 + static_cast<uint32_t>(i) % 60);
    rig.settle(2);
    caller.hang_up();
    rig.settle(2);
  }
  // The channel's socket holds some hundred in addition.
  EXPECT_GT(rig.spaces[1]->ids.count(), 4u);
  EXPECT_LT(rig.spaces[1]->ids.count(), 1000u);
  EXPECT_GT(used(provisioning::Kind::kCmEvents, 1), 0u);
  EXPECT_LE(used(provisioning::Kind::kCmEvents, 1), 1000u)
      << "a request and its end for each place in the backlog";
  EXPECT_EQ(rig.spaces[1]->events, 0u);
}

TEST_F(CmSessions, WhoDoesNotReadItsEventsIsEnded) {
  two.channel();
  const uint32_t id = one.id(one.channel());
  ipc::CmRequest nowhere;
  nowhere.call = CmCall::kResolveAddr;
  nowhere.handle = id;
  nowhere.remote = CmRig::address(77, kPort);
  EXPECT_EQ(one.call(nowhere), 0);
  EXPECT_EQ(events(one), std::vector{number(CmEventType::kAddrError)});
  CmClient modest(rig, 0);
  for (uint32_t i = 0; i < CmNamespace::kMaxEvents + 1000 && rig.cm.counters().unread == 0; ++i)
    (void)one.call(nowhere);
  EXPECT_EQ(rig.cm.counters().unread, 1u);
  EXPECT_TRUE(one.ended());
  EXPECT_EQ(rig.spaces[0]->events, 0u);
  EXPECT_EQ(modest.call(CmCall::kDevices), 0);
}

// Another session of the vdevice is not affected.
TEST_F(CmSessions, WhoLeavesTheEventsOfAVdeviceUnreadIsEnded) {
  rig.attach({{"cm_events", 100}});
  CmClient modest(rig, 0);
  const auto datagram_id = [](CmClient& client) {
    const uint32_t id = client.id(client.channel(), kUdpSpace, kUd);
    EXPECT_EQ(client.resolve(id, CmRig::address(1, kPort)), 0);
    return id;
  };
  ipc::CmRequest join;
  join.call = CmCall::kJoin;
  join.remote = CmRig::address(0, 0);
  join.remote.gid[12] = 239;
  join.handle = datagram_id(modest);
  EXPECT_EQ(modest.call(join), 0);
  join.handle = datagram_id(one);
  // The channel's socket holds some hundred in addition.
  for (int i = 0; i < 2000 && rig.cm.counters().unread == 0; ++i) (void)one.call(join);
  EXPECT_EQ(rig.cm.counters().unread, 1u);
  EXPECT_GT(refused(provisioning::Kind::kCmEvents), 0u);
  EXPECT_TRUE(one.ended());
  EXPECT_EQ(used(provisioning::Kind::kCmEvents), 0u);
  EXPECT_EQ(modest.call(CmCall::kDevices), 0);
  EXPECT_EQ(events(modest).size(), 2u);
}

TEST_F(CmSessions, WhoDoesNotReadTheAnswersIsEnded) {
  ipc::CmRequest request;
  request.call = CmCall::kDevices;
  for (int i = 0; i < 5000; ++i) {
    one.send(&request, sizeof request);
    rig.settle(1);
  }
  EXPECT_TRUE(one.ended());
  EXPECT_EQ(two.call(CmCall::kDevices), 0);
}

TEST_F(CmSessions, LoseTheirIdsWithTheVdevice) {
  const auto [id, request] = establish();
  rig.devices[1].reset();
  EXPECT_THAT(events(two), Each(number(CmEventType::kDeviceRemoval)));
  EXPECT_EQ(two.with_qp(CmCall::kAccept, request, 3), ENODEV);
  EXPECT_EQ(two.call(CmCall::kDestroyId, request), 0);
  EXPECT_THAT(events(one), testing::ElementsAre(number(CmEventType::kDisconnected)));
}

// Another program's request is served between them.
TEST(CmSessionEnds, HappenInParts) {
  CmRig rig;
  constexpr uint32_t kIds = 640;
  std::optional<CmClient> many(std::in_place, rig, 0);
  CmClient other(rig, 0);
  const uint32_t channel = many->channel();
  for (uint32_t i = 0; i < kIds; ++i) (void)many->id(channel);
  const auto& ids = rig.spaces[0]->ids;
  ASSERT_EQ(ids.count(), kIds);
  many.reset();
  int turns = 0;
  for (; ids.count() > 0 && turns < 1000; ++turns) rig.settle(1);
  EXPECT_GE(turns, 10);
  EXPECT_LT(turns, 100);
  EXPECT_NE(other.id(other.channel()), 0u);
}

}  // namespace
}  // namespace vrdma::vrdmad
