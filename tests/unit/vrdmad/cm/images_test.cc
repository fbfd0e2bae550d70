// Sessions of rdma_cm that go on elsewhere: at another daemon, while their peer at a third one
// stays.
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <optional>

#include "qp1mux/packet.h"
#include "tests/unit/vrdmad/admin/fixture.h"
#include "tests/unit/vrdmad/cm/rig.h"

namespace vrdma::vrdmad {
namespace {

using ipc::CmCall;
using qp1mux::CmEventType;
using testing::HasSubstr;

constexpr uint64_t kPeer = 8;  // the address of the peer's vdevice

// Leads packets to the host that has the address.
struct Line {
  struct Host final : CmNetwork {
    Line* line = nullptr;
    void send(const qp1mux::Packet& packet) override { line->kept.emplace_back().keep(packet); }
    [[nodiscard]] bool leads_to(const CmDevice&, const verbs::Gid&) const override { return true; }
    std::shared_ptr<void> look_up(const CmDevice&, const qp1mux::Route& route, const verbs::Gid&,
                                  qp1mux::Routes::Answer answer) override {
      answer(route);
      return nullptr;
    }
    std::optional<verbs::Gid> source_to(const CmDevice&, const verbs::Gid&,
                                        const verbs::Gid&) override {
      return std::nullopt;
    }
    bool arrived(uint64_t, const Caller&, bool) override {
      ++arrivals;
      return false;
    }
    int arrivals = 0;
  };
  std::vector<qp1mux::KeptPacket> kept;
};

struct CmMoved : testing::Test {
  TempDir temp_here, temp_there, temp_far;
  Line line;
  Line::Host lines[3];
  CmRig here{join(0)}, there{join(1)}, far{join(2)};
  CmRig* at = &here;  // where the address of the second vdevice leads to
  CmClient two{here, 1}, peer{far, 0};
  const std::string token = "token";

  CmMoved() {
    here.cm.keep_sessions(temp_here.path());
    there.cm.keep_sessions(temp_there.path());
    far.cm.keep_sessions(temp_far.path());
    far.devices[1].reset();
    far.devices[0]->update({CmRig::gid(kPeer)}, 4096);
  }
  Line::Host* join(size_t i) {
    lines[i].line = &line;
    return &lines[i];
  }
  // All that is on the way arrives, and all hosts rest.
  void run() {
    for (int i = 0; i < 8; ++i) {
      for (auto& packet : std::exchange(line.kept, {})) {
        packet.from_network = true;
        CmRig& to = packet.destination == CmRig::gid(kPeer) ? far : *at;
        to.cm.receive(packet.packet());
      }
      for (CmRig* const rig : {&here, &there, &far}) rig->settle();
    }
  }
  [[nodiscard]] std::optional<CmEventType> next(CmClient& client) {
    run();
    last = client.event();
    if (!last) return std::nullopt;
    return static_cast<CmEventType>(last->type);
  }
  // The rest is as it would be on the network.
  // `meanwhile`: what happens between.
  std::vector<CmSessionImage> dump(const std::function<void()>& meanwhile = [] {}) {
    if (!here.cm.park(::getpid(), token)) std::abort();
    meanwhile();
    here.cm.detach(token);
    auto images = here.cm.images(token);
    if (!images) std::abort();
    std::vector<CmSessionImage> carried;
    for (const auto& image : *images)
      carried.push_back(CmSessionImage::decode(image.encode()).value());
    two.hang_up();
    for (auto& [handle, socket] : two.channels) socket.reset();
    run();
    return carried;
  }
  std::vector<Cm::Coming> placed(const std::vector<CmSessionImage>& images) {
    std::vector<Cm::Coming> all;
    for (const auto& image : images) {
      all.push_back({image, {}});
      for (const auto& one : image.vdevices)
        all.back().vdevices[one.is.node_guid] = there.devices[1].get();
    }
    return all;
  }
  base::Result<void> bring(const std::vector<CmSessionImage>& images) {
    const CmClient connected(there, 1);
    auto caller = there.cm.newcomer(2, ::getpid());
    if (caller == nullptr) return base::fail(ENOTCONN, "not connected");
    return there.cm.import(2, caller, placed(images));
  }
  // The program reconnects there, and opens its channels again.
  CmClient& moved() {
    gone_on.emplace(there, 1);
    gone_on->secret = two.secret;
    EXPECT_EQ(gone_on->resume(), 0);
    for (const auto& [handle, socket] : two.channels) {
      EXPECT_EQ(gone_on->call(CmCall::kCreateChannel, handle), 0);
      gone_on->channels.emplace_back(handle, std::move(gone_on->beside));
    }
    return *gone_on;
  }
  // A request of the peer, which the program has got. The number of the peer's id.
  uint32_t ask(bool listens = false) {
    if (!listens) two.listener(1, kPort);
    const uint32_t made = peer.id(peer.channel());
    if (peer.resolve(made, CmRig::address(1, kPort)) != 0) std::abort();
    EXPECT_EQ(next(peer), CmEventType::kAddrResolved);
    if (peer.call(CmCall::kResolveRoute, made) != 0) std::abort();
    if (peer.with_qp(CmCall::kConnect, made, 3) != 0) std::abort();
    EXPECT_EQ(next(peer), CmEventType::kRouteResolved);
    return made;
  }
  // A request to the peer, where nobody listens.
  void request() {
    const uint32_t made = two.id(two.channel());
    if (two.resolve(made, CmRig::address(kPeer, kPort)) != 0) std::abort();
    EXPECT_EQ(next(two), CmEventType::kAddrResolved);
    if (two.call(CmCall::kResolveRoute, made) != 0) std::abort();
    if (two.with_qp(CmCall::kConnect, made, 5) != 0) std::abort();
  }
  uint32_t connect() {
    const uint32_t made = ask();
    EXPECT_EQ(next(two), CmEventType::kConnectRequest);
    mine = last->request;
    if (two.with_qp(CmCall::kAccept, mine, 2) != 0) std::abort();
    EXPECT_EQ(next(peer), CmEventType::kConnectResponse);
    if (peer.call(CmCall::kConfirm, made) != 0) std::abort();
    EXPECT_EQ(next(two), CmEventType::kEstablished);
    return made;
  }
  uint32_t mine = 0;
  std::optional<ipc::CmEventMessage> last;
  std::optional<CmClient> gone_on;
};

TEST_F(CmMoved, AreDisconnectedByTheirPeerThere) {
  const uint32_t id = connect();
  const auto images = dump();
  at = &there;
  ASSERT_TRUE(bring(images));
  EXPECT_EQ(lines[1].arrivals, 1) << "its addresses are asked for at once";
  CmClient& client = moved();
  here.cm.end_parked(token);  // as at the end of the grace
  EXPECT_FALSE(next(peer)) << "the source has told the peer";
  ASSERT_EQ(peer.call(CmCall::kDisconnect, id), 0);
  EXPECT_EQ(next(client), CmEventType::kDisconnected);
  EXPECT_EQ(last->handle, mine);
  ASSERT_EQ(client.call(CmCall::kDisconnect, mine), 0);
  EXPECT_EQ(next(peer), CmEventType::kDisconnected);
}

TEST_F(CmMoved, DisconnectFromThere) {
  connect();
  const auto images = dump();
  at = &there;
  ASSERT_TRUE(bring(images));
  ASSERT_EQ(moved().call(CmCall::kDisconnect, mine), 0);
  EXPECT_EQ(next(peer), CmEventType::kDisconnected);
}

TEST_F(CmMoved, ListenThere) {
  ASSERT_EQ(two.call(CmCall::kDevices), 0);  // before it has a channel
  two.listener(1, kPort);
  const auto images = dump();
  at = &there;
  ASSERT_TRUE(bring(images));
  CmClient& client = moved();
  const uint32_t made = peer.id(peer.channel());
  ASSERT_EQ(peer.resolve(made, CmRig::address(1, kPort)), 0);
  EXPECT_EQ(next(peer), CmEventType::kAddrResolved);
  ASSERT_EQ(peer.call(CmCall::kResolveRoute, made), 0);
  ASSERT_EQ(peer.with_qp(CmCall::kConnect, made, 3), 0);
  EXPECT_EQ(next(client), CmEventType::kConnectRequest);
  EXPECT_EQ(last->where.node_guid, here.devices[1]->node_guid())
      << "the program knows the vdevice by the GUID that it had";
}

// What the program had not read goes with it, and the peer's repetitions find it.
TEST_F(CmMoved, AcceptThereWhatTheyWereAskedBefore) {
  uint32_t id = 0;
  two.listener(1, kPort);
  const auto images = dump([&] { id = ask(true); });
  ASSERT_EQ(images[0].events.size(), 1u);
  at = &there;
  ASSERT_TRUE(bring(images));
  CmClient& client = moved();
  here.cm.end_parked(token);
  ASSERT_EQ(next(client), CmEventType::kConnectRequest);
  ASSERT_EQ(client.with_qp(CmCall::kAccept, last->request, 2), 0);
  ASSERT_EQ(next(peer), CmEventType::kConnectResponse) << "the source has refused it";
  ASSERT_EQ(peer.call(CmCall::kConfirm, id), 0);
  EXPECT_EQ(next(client), CmEventType::kEstablished);
}

// The peer's confirmation came when it was away.
TEST_F(CmMoved, ConfirmHalfMadeConnectionsAgain) {
  const uint32_t id = ask();
  ASSERT_EQ(next(two), CmEventType::kConnectRequest);
  ASSERT_EQ(two.with_qp(CmCall::kAccept, last->request, 2), 0);
  ASSERT_EQ(next(peer), CmEventType::kConnectResponse);
  const auto images = dump();
  ASSERT_EQ(peer.call(CmCall::kConfirm, id), 0);
  run();
  at = &there;
  ASSERT_TRUE(bring(images));
  EXPECT_EQ(next(moved()), CmEventType::kEstablished) << "its REP is sent again";
}

TEST_F(CmMoved, AreSilentWhileTheyAreAway) {
  request();
  EXPECT_FALSE(line.kept.empty());
  (void)dump();
  line.kept.clear();
  // Longer than until the first repetition.
  const auto until = base::Clock::steady().now() + std::chrono::milliseconds(150);
  while (base::Clock::steady().now() < until) here.settle();
  EXPECT_TRUE(line.kept.empty()) << "it repeats its request, which may go on elsewhere";
  here.devices[1].reset();
  EXPECT_TRUE(line.kept.empty()) << "it tells the peer that its vdevice has gone";
  EXPECT_TRUE(here.cm.is_away(token));
  here.cm.end_parked(token);
  here.settle();
  EXPECT_TRUE(line.kept.empty());
  EXPECT_FALSE(here.cm.has_parked(token));
}

// As after a dump that leaves it running.
TEST_F(CmMoved, GoOnWhereTheyWere) {
  request();
  (void)dump();
  line.kept.clear();
  const CmClient connected(here, 1);
  ASSERT_TRUE(here.cm.attach(token, ::getpid()));
  EXPECT_FALSE(line.kept.empty()) << "its request is not sent again";
}

TEST_F(CmMoved, AreRefusedWhereTheyCannotBe) {
  connect();
  const auto images = dump();
  CmClient other(there, 1);
  const uint32_t taken = other.listener(1, kPort);
  EXPECT_THAT(bring(images).error().message(), HasSubstr("cannot have its port: port 7471 at "));
  ASSERT_EQ(other.call(CmCall::kDestroyId, taken), 0);
  there.devices[1]->update({CmRig::gid(5)}, 4096);
  EXPECT_THAT(Cm::obstacle(images[0], here.devices[1]->node_guid(), *there.devices[1]),
              HasSubstr("names GID ::ffff:10.0.0.2 by index 0, where the vdevice has"));
  there.devices[1]->update({CmRig::gid(1)}, 4096);
  ASSERT_TRUE(there.devices[1]->set_limits({{"cm_conns", 0}}));
  EXPECT_THAT(bring(images).error().message(), HasSubstr("exceed the limit cm_conns"));
  ASSERT_TRUE(there.devices[1]->set_limits({{"cm_conns", 16}}));
  ASSERT_TRUE(bring(images)) << "the image is still good";
  EXPECT_THAT(bring(images).error().message(), HasSubstr("is here already"));
  auto twice = images;
  twice[0].secret = {1, 2};
  for (auto& [handle, id] : twice[0].ids) id.record.id.is_bound = false;
  EXPECT_THAT(bring(twice).error().message(), HasSubstr("which another connection has here"));
}

// Which a changed image could name.
TEST_F(CmMoved, DoNotNameQueuePairsOfOthers) {
  request();
  const auto images = dump();
  line.kept.clear();
  there.qp_numbers->slot(5 - 2) = 0;
  EXPECT_THAT(bring(images).error().message(), HasSubstr("queue pair 5 does not belong"));
  EXPECT_TRUE(line.kept.empty());
}

// What comes before it is there must not be refused.
TEST_F(CmMoved, AreExpected) {
  const uint32_t id = connect();
  const auto images = dump();
  at = &there;
  {
    const auto expected = there.cm.expect(2);
    ASSERT_EQ(peer.call(CmCall::kDisconnect, id), 0);
    EXPECT_FALSE(next(peer)) << "it was told that there is no such connection";
    ASSERT_TRUE(bring(images));
  }
  CmClient& client = moved();
  std::optional<CmEventType> event;
  EXPECT_TRUE(eventually([&] { return (event = next(client)).has_value(); }));
  EXPECT_EQ(event, CmEventType::kDisconnected) << "by a repetition";
}

// Of a peer that was on the host which it left.
TEST_F(CmMoved, LoseLocalPeers) {
  CmClient local(here, 0);
  two.listener(1, kPort);
  const uint32_t id = local.caller(1, kPort, 3);
  ASSERT_EQ(next(two), CmEventType::kConnectRequest);
  mine = last->request;
  ASSERT_EQ(two.with_qp(CmCall::kAccept, mine, 2), 0);
  while (const auto event = next(local))
    if (*event == CmEventType::kConnectResponse) {
      ASSERT_EQ(local.call(CmCall::kConfirm, id), 0);
    }
  ASSERT_EQ(next(two), CmEventType::kEstablished);
  const auto images = dump();  // of both: they are this process
  ASSERT_EQ(images.size(), 2u);
  at = &there;
  ASSERT_TRUE(bring({images[0]}));
  EXPECT_EQ(next(moved()), CmEventType::kDisconnected);
}

// The end of a daemon is not that of its programs.
TEST_F(CmMoved, AreNotEndedByTheEndOfADaemon) {
  connect();
  here.cm.leave_sessions();
  run();
  EXPECT_FALSE(next(peer));
}

}  // namespace
}  // namespace vrdma::vrdmad
