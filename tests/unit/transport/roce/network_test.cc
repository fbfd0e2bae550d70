// Two vdevices in one namespace, with sockets at two addresses, as on two hosts.
#include "transport/roce/network.h"

#include <cstdlib>
#include <map>
#include <set>

#include "core/wire/mad.h"
#include "tests/unit/transport/rig.h"
#include "tests/unit/transport/roce/sockets.h"
#include "transport/roce/invariant.h"
#include "transport/roce/numbering.h"

namespace vrdma::transport::roce {
namespace {

using test::rdma_wqe;
using test::wqe_of;
using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

struct Networked : Rig {
  std::shared_ptr<Incoming> incoming = std::make_shared<Incoming>();
  Counters a_counters, b_counters;
  std::vector<verbs::Gid> wanted, left;
  std::set<verbs::Gid> strangers;  // that are no peers
  std::vector<std::string> warnings;
  Network a_network{world.a_device, a_lane, incoming, a_counters, host()};
  Network b_network{world.b_device, b_lane, incoming, b_counters, host()};
  rdma::Qp* qp_a = nullptr;
  rdma::Qp* qp_b = nullptr;

  Network::Host host() {
    return {[this](const verbs::Gid& gid) { return !strangers.contains(gid); },
            [this](const verbs::Gid& gid) { wanted.push_back(gid); },
            [this](const verbs::Gid& gid) { left.push_back(gid); },
            [this](const std::string& sentence) { warnings.push_back(sentence); }};
  }
  void SetUp() override {
    if (!vrdmad::enter_own_netns()) GTEST_SKIP() << "no network namespace";
    world.make_sender = nullptr;
    world.fabric.set_gids(&world.a_device, {kA});
    world.fabric.set_gids(&world.b_device, {kB});
    connect({});
  }
  void connect(const test::Party::QpOptions& options) {
    qp_a = world.add_qp(a, options);
    qp_b = world.add_qp(b, options);
    world.name(*qp_a, *qp_b);
    world.name(*qp_b, *qp_a);
    for (rdma::Qp* qp : {qp_a, qp_b}) {
      rdma::Qp* const peer = qp == qp_a ? qp_b : qp_a;
      qp->sgid = qp->context->device->gids[0];
      qp->attributes.path_mtu = 3;
      qp->attributes.timeout = 10;
      qp->attributes.retry_cnt = 2;
      qp->set_state(QpState::kInit);
      qp->set_state(QpState::kRtr);
      qp->link.remote = rdma::RemoteEnd{peer->context->device->gids[0], peer->qpn,
                                        qp->attributes.sq_psn, qp->attributes.rq_psn};
      qp->sender = (qp == qp_a ? a_network : b_network).make_sender(*qp);
      qp->set_state(QpState::kRts);
      qp->sender->link_changed();
    }
  }
  void open_both() {
    a_network.open(kA, socket_at(kA));
    b_network.open(kB, socket_at(kB));
  }
  void write(uint64_t length) {
    ASSERT_TRUE(a.post_send(*qp_a, rdma_wqe(Opcode::kRdmaWrite, kBase, b_key),
                            {{kBase, static_cast<uint32_t>(length), a_key}}));
    ring(*qp_a);
  }
};

TEST_F(Networked, WaitForTheirSocketsAndCarryRequests) {
  EXPECT_THAT(wanted, SizeIs(2));
  const std::string text = "by the network";
  std::memcpy(a.memory(), text.data(), text.size());
  write(text.size());
  EXPECT_THAT(a.results(*qp_a), SizeIs(0));
  open_both();
  EXPECT_TRUE(wait_for([&] { return a.results(*qp_a).size() == 1; }));
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  EXPECT_EQ(std::memcmp(b.memory(), text.data(), text.size()), 0);
  EXPECT_GT(b_counters.endpoint.received_packets, 0u);
  EXPECT_EQ(b_counters.unknown_qp + b_counters.wrong_source, 0u);
}

// Of an unreliable queue pair, which sends nothing again.
TEST_F(Networked, KeepWhatASocketHasNoRoomFor) {
  if (std::system("ip link set lo up && tc qdisc add dev lo root tbf rate 80mbit burst 100k "
                  "latency 5s") != 0)
    GTEST_SKIP() << "no tbf(8)";
  test::Party::QpOptions uc;
  uc.type = verbs::QpType::kUc;
  connect(uc);
  base::Fd narrow = socket_at(kA);
  const int room = 32 << 10;
  ASSERT_EQ(::setsockopt(narrow.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
  a_network.open(kA, std::move(narrow));
  b_network.open(kB, socket_at(kB));
  constexpr size_t kLength = 200'000;
  for (size_t i = 0; i < kLength; ++i) a.memory()[i] = static_cast<uint8_t>(i * 7 + i / 251 + 1);
  write(kLength);
  EXPECT_TRUE(wait_for([&] { return std::memcmp(a.memory(), b.memory(), kLength) == 0; }));
  EXPECT_EQ(a_counters.endpoint.sent_packets, wire::packets_of(kLength, 1024));
  EXPECT_EQ(a_counters.endpoint.send_errors, 0u);
}

TEST_F(Networked, LoseEverythingWithoutASocket) {
  write(4);
  a_network.open(kA, base::fail(EADDRINUSE, "another has it"));
  EXPECT_TRUE(wait_for([&] { return a.results(*qp_a).size() == 1; }));
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kRetryExceeded));
  EXPECT_EQ(qp_a->state(), QpState::kErr);
}

// A program that is told before that its queue pair can receive has its peer send too early.
TEST_F(Networked, TellWhenNoSocketIsAwaited) {
  int told = 0;
  EXPECT_TRUE(a_network.when_open([&] { ++told; }));
  EXPECT_TRUE(b_network.when_open([&] { ++told; }));
  a_network.open(kA, socket_at(kA));
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(a_network.when_open([&] { ++told; }));
  b_network.open(kB, base::fail(EADDRINUSE, "another has it"));
  EXPECT_EQ(told, 2);
  EXPECT_FALSE(b_network.when_open([&] { ++told; }));
}

// The netdev may have got the address since, or the program that had the port may have ended.
TEST_F(Networked, AskAgainForASocketThatTheyDidNotGet) {
  b_network.open(kB, base::fail(EADDRNOTAVAIL, "no netdev has the address"));
  const size_t before = wanted.size();
  const auto sender = b_network.make_sender(*qp_b);
  EXPECT_THAT(wanted, SizeIs(before + 1));
  EXPECT_EQ(wanted.back(), kB);
  EXPECT_TRUE(b_network.when_open([] {}));
  const auto another = b_network.make_sender(*qp_b);
  EXPECT_THAT(wanted, SizeIs(before + 1)) << "it is awaited";
}

TEST_F(Networked, UseASocketThatComesAfterAll) {
  a_network.open(kA, base::fail(EADDRNOTAVAIL, "no netdev has the address"));
  open_both();
  write(4);
  EXPECT_TRUE(wait_for([&] { return a.results(*qp_a).size() == 1; }));
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
}

TEST_F(Networked, ReceiveDatagramsAtAddressesThatComeLater) {
  const verbs::Gid later = gid_of("::ffff:127.0.0.9");
  world.fabric.set_gids(&world.b_device, {kB, later});
  b_network.addresses_changed();
  EXPECT_EQ(std::count(wanted.begin(), wanted.end(), later), 0) << "there is no UD queue pair";
  b_network.receive_datagrams();
  EXPECT_EQ(std::count(wanted.begin(), wanted.end(), later), 1);
  const verbs::Gid last = gid_of("::ffff:127.0.0.10");
  world.fabric.set_gids(&world.b_device, {kB, later, last});
  b_network.addresses_changed();
  EXPECT_EQ(wanted.back(), last);
  EXPECT_EQ(std::count(wanted.begin(), wanted.end(), later), 1) << "it is awaited";
  b_network.release();
  world.fabric.set_gids(&world.b_device, {kB, kA});
  b_network.addresses_changed();
  EXPECT_EQ(std::count(wanted.begin(), wanted.end(), last), 1);
}

TEST_F(Networked, CloseSocketsOfAddressesThatGo) {
  open_both();
  a_network.receive_datagrams();
  world.fabric.set_gids(&world.a_device, {});
  a_network.addresses_changed();
  EXPECT_TRUE(socket_at(kA).valid()) << "no socket keeps the port";
  // Nor does one that comes after the address went.
  a_network.open(kA, socket_at(kA));
  EXPECT_TRUE(socket_at(kA).valid());
  wanted.clear();
  world.fabric.set_gids(&world.a_device, {kA});
  a_network.addresses_changed();
  EXPECT_THAT(wanted, ElementsAre(kA));
  a_network.open(kA, socket_at(kA));
  write(4);
  b_network.release();
  EXPECT_TRUE(socket_at(kB).valid());
}

// As does one whose queue pair went meanwhile.
TEST_F(Networked, TellWhenASocketIsNotNeededAnyMore) {
  int told = 0;
  EXPECT_TRUE(a_network.when_open([&] { ++told; }));
  qp_a->sender.reset();
  a_network.open(kA, socket_at(kA));
  EXPECT_EQ(told, 1);
}

TEST_F(Networked, HearOnlyTheirPeer) {
  open_both();
  const base::Fd stranger = socket_at(gid_of("::ffff:127.0.0.3"));
  net::Burst burst;
  wire::Packet& packet = burst.add();
  packet.operation = wire::Operation::kWriteOnly;
  packet.va = kBase;
  packet.rkey = b_key;
  packet.psn = qp_b->attributes.rq_psn;
  const auto out = std::make_unique<Outgoing>();
  for (const uint32_t qpn : {qp_b->qpn, qp_b->qpn ^ 1}) {
    packet.dest_qpn = qpn;
    out->clear();
    ASSERT_EQ(out->add(burst, 0, {gid_of("::ffff:127.0.0.3"), kB}, 0, true), 1u);
    ASSERT_EQ(::sendmmsg(stranger.get(), out->messages(), out->count(), 0), 1);
  }
  EXPECT_TRUE(wait_for([&] { return b_counters.wrong_source == 1 && b_counters.unknown_qp == 1; }));
  ASSERT_THAT(warnings, SizeIs(1));
  EXPECT_THAT(warnings[0], testing::HasSubstr("has the peer ::ffff:127.0.0.1, and packets for it "
                                              "come from ::ffff:127.0.0.3: is there address "
                                              "translation"));
  uint8_t answer[64];
  EXPECT_LT(::recv(stranger.get(), answer, sizeof answer, MSG_DONTWAIT), 0) << "it was answered";
  write(4);
  EXPECT_TRUE(wait_for([&] { return a.results(*qp_a).size() == 1; }));
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  // As in RESET: what was on its way to it says nothing about addresses.
  qp_b->link.remote.reset();
  qp_b->attributes.av = {};
  qp_b->sender->attributes_changed();
  packet.dest_qpn = qp_b->qpn;
  out->clear();
  ASSERT_EQ(out->add(burst, 0, {gid_of("::ffff:127.0.0.3"), kB}, 0, true), 1u);
  ASSERT_EQ(::sendmmsg(stranger.get(), out->messages(), out->count(), 0), 1);
  EXPECT_TRUE(wait_for([&] { return b_counters.unknown_qp == 2; }));
  EXPECT_THAT(warnings, SizeIs(1));
  EXPECT_EQ(b_counters.wrong_source, 1u);
}

// Between a's address and b the packet's source was replaced: its ICRC is that of a's address.
TEST_F(Networked, KnowAPacketWhoseSourceWasTranslated) {
  const verbs::Gid translator = gid_of("::ffff:127.0.0.3");
  open_both();
  const base::Fd socket = socket_at(translator);
  wire::Packet packet;
  packet.operation = wire::Operation::kWriteOnly;
  packet.va = kBase;
  packet.rkey = b_key;
  packet.psn = qp_b->attributes.rq_psn;
  packet.dest_qpn = qp_b->qpn;
  const auto out = std::make_unique<Outgoing>();
  for (const verbs::Gid& seen : {kA, gid_of("::ffff:127.0.0.9")}) {
    out->clear();
    const NetworkHeader way{translator, kB}, covered{seen, kB};
    ASSERT_TRUE(out->add(packet, {way, wire::kRocePort, covered}, 0, false));
    ASSERT_EQ(::sendmmsg(socket.get(), out->messages(), out->count(), 0), 1);
  }
  EXPECT_TRUE(wait_for([&] {
    return b_counters.wrong_source == 1 && b_counters.endpoint.incoming.icrc_error == 1;
  }));
  ASSERT_THAT(warnings, SizeIs(1));
  EXPECT_THAT(warnings[0], testing::HasSubstr("has the peer ::ffff:127.0.0.1, and packets for it "
                                              "come from ::ffff:127.0.0.3"));
  EXPECT_EQ(b_counters.endpoint.received_packets, 0u);
}

// Datagrams and those of a group alike; a connected queue pair was asked for its peer at RTR.
TEST_F(Networked, HearNoDatagramOfAStranger) {
  const verbs::Gid stranger = gid_of("::ffff:127.0.0.3");
  open_both();
  b_network.receive_datagrams();
  const base::Fd socket = socket_at(stranger);
  wire::Packet packet;
  packet.service = wire::Service::kUd;
  packet.operation = wire::Operation::kSendOnly;
  packet.pkey = wire::kDefaultPkey;
  packet.dest_qpn = qp_b->qpn;
  const auto out = std::make_unique<Outgoing>();
  const auto send = [&] {
    out->clear();
    const NetworkHeader way{stranger, kB};
    ASSERT_TRUE(out->add(packet, {way, wire::kRocePort, way}, 0, false));
    ASSERT_EQ(::sendmmsg(socket.get(), out->messages(), out->count(), 0), 1);
  };
  send();
  EXPECT_TRUE(wait_for([&] { return b_counters.endpoint.received_packets == 1; }));
  EXPECT_EQ(b_counters.no_peer, 0u) << "it was none of the strangers yet";
  strangers.insert(stranger);
  send();
  EXPECT_TRUE(wait_for([&] { return b_counters.no_peer == 1; }));
  EXPECT_EQ(b_counters.wrong_source, 0u);
}

// In state SQD a program may name other addresses.
TEST_F(Networked, FollowTheirAddressVector) {
  const verbs::Gid other = gid_of("::ffff:127.0.0.3");
  open_both();
  write(4);
  EXPECT_TRUE(wait_for([&] { return a.results(*qp_a).size() == 1; }));
  world.fabric.set_gids(&world.a_device, {kA, other});
  qp_a->sgid = other;
  std::memcpy(qp_b->attributes.av.dgid, other.bytes.data(), other.bytes.size());
  for (rdma::Qp* qp : {qp_a, qp_b}) qp->sender->attributes_changed();
  EXPECT_EQ(wanted.back(), other);
  a_network.open(other, socket_at(other));
  write(4);
  EXPECT_TRUE(wait_for([&] { return a.results(*qp_a).size() == 2; }));
  EXPECT_THAT(statuses(*qp_a, 2), Each(WcStatus::kSuccess));
  EXPECT_EQ(a_counters.wrong_source + b_counters.wrong_source, 0u);
}

// `a` is played by the test.
struct Numbered : Networked {
  base::Fd peer;
  uint32_t psn = 0;

  void SetUp() override {
    Networked::SetUp();
    if (IsSkipped()) return;
    peer = socket_at(kA);
    b_network.open(kB, socket_at(kB));
    psn = qp_b->attributes.rq_psn;
  }
  // A WRITE of one byte comes with the ICRC of that identification.
  void comes(uint8_t value, uint32_t at, uint32_t number) {
    const auto id = static_cast<uint16_t>(number);
    uint8_t bytes[128];
    wire::Packet packet;
    packet.operation = wire::Operation::kWriteOnly;
    packet.dest_qpn = qp_b->qpn;
    packet.psn = at;
    packet.va = kBase;
    packet.rkey = b_key;
    packet.payload = &value;
    packet.payload_length = packet.dma_length = 1;
    uint8_t* end = bytes + wire::encode(packet, bytes);
    *end++ = value;
    for (size_t i = wire::pad_bytes(1); i > 0; --i) *end++ = 0;
    const auto size = static_cast<size_t>(end - bytes) + wire::kIcrcBytes;
    wire::Icrc icrc = begin_icrc(kA, kB, wire::kRocePort, size, id, bytes);
    icrc.add(bytes + sizeof(wire::Bth), size - wire::kIcrcBytes - sizeof(wire::Bth));
    icrc.write(end);
    const uint64_t received = b_counters.endpoint.received_packets;
    const verbs::SocketAddress to(kB, wire::kRocePort, 0);
    EXPECT_EQ(::sendto(peer.get(), bytes, size, 0, to.get(), to.size), static_cast<ssize_t>(size));
    EXPECT_TRUE(wait_for([&] { return b_counters.endpoint.received_packets > received; }));
  }
  // Whether a WRITE of the peer is executed.
  bool writes(uint32_t number) {
    const auto value = static_cast<uint8_t>(b.memory()[0] + 1);
    comes(value, psn, number);
    if (b.memory()[0] != value) return false;
    psn = wire::psn_add(psn, 1);
    return true;
  }
  // In the name of the peer, from a host that does not know its sequence numbers.
  void is_forged(uint32_t number, uint32_t further = 1u << 22) {
    const uint8_t was = b.memory()[0];
    comes(static_cast<uint8_t>(was + 7), wire::psn_add(psn, further), number);
    EXPECT_EQ(b.memory()[0], was);
  }
};

// A damaged packet may have an ICRC that fits another identification than its sender's.
TEST_F(Numbered, HoldAPeerToItsNumbers) {
  for (const uint32_t id : {0x1234u, 0u, 0xffffu, 7u, 64u})
    EXPECT_TRUE(writes(id)) << "rxe has any";
  for (unsigned i = 0; i < Numbering::kSure; ++i) ASSERT_TRUE(writes(i % 64));
  EXPECT_EQ(b_counters.endpoint.incoming.icrc_error, 0u);
  for (const uint32_t id : {0x1234u, 64u, 0xffffu}) {
    EXPECT_FALSE(writes(id)) << id;
    EXPECT_TRUE(writes(63)) << "it is a peer on Linux";
  }
  EXPECT_EQ(b_counters.endpoint.incoming.icrc_error, 3u);
}

TEST_F(Numbered, GiveUpWhenAPeerChanges) {
  for (unsigned i = 0; i < Numbering::kSure; ++i) ASSERT_TRUE(writes(0));
  for (unsigned i = 1; i < Numbering::kGivesUp; ++i) EXPECT_FALSE(writes(0x100));
  EXPECT_TRUE(writes(0x100));
  EXPECT_TRUE(writes(0x200));
}

TEST_F(Numbered, LearnNothingFromAStranger) {
  for (unsigned i = 0; i < Numbering::kSure; ++i) is_forged(0, i % 2 == 0 ? 1u << 22 : 0xfff000);
  for (unsigned i = 0; i < 2 * Numbering::kGivesUp; ++i) {
    is_forged(0);
    EXPECT_TRUE(writes(0x1234 + i)) << "rxe has any";
  }
  for (unsigned i = 0; i < Numbering::kSure; ++i) ASSERT_TRUE(writes(0));
  for (unsigned i = 0; i < 2 * Numbering::kGivesUp; ++i) is_forged(0x100);
  EXPECT_FALSE(writes(0x100)) << "a stranger has numbered so, not the peer";
  EXPECT_TRUE(writes(0));
}

// A second QP of each side, and a socket that only listens, as a peer that tells the ports.
struct Spread : Networked {
  static constexpr unsigned kPorts = 4;
  static std::vector<SourceSocket> sources_at(const verbs::Gid& gid) {
    std::vector<SourceSocket> all;
    for (unsigned i = 0; i < kPorts; ++i)
      all.push_back({verbs::few_source_port(i), socket_at(gid, verbs::few_source_port(i))});
    return all;
  }
  // The source ports of what has come, by destination queue pair.
  std::map<uint32_t, std::set<uint16_t>> ports_at(const base::Fd& socket) {
    std::map<uint32_t, std::set<uint16_t>> all;
    uint8_t bytes[65536];
    sockaddr_in from{};
    for (socklen_t size = sizeof from; ::recvfrom(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT,
                                                  reinterpret_cast<sockaddr*>(&from), &size) > 0;)
      if (const auto packet = wire::decode({bytes, 12 + 16 + 4}))
        all[packet->dest_qpn].insert(ntohs(from.sin_port));
    return all;
  }
};

TEST_F(Spread, QueuePairsOverPorts) {
  a_network.open(kA, socket_at(kA), sources_at(kA));
  b_network.open(kB, socket_at(kB), sources_at(kB));
  for (int i = 0; i < 30; ++i) {
    connect({});
    write(3000);
    ASSERT_TRUE(wait_for([&] { return a.results(*qp_a).size() == 1; }));
    EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  }
  EXPECT_EQ(a_counters.endpoint.incoming.icrc_error + b_counters.endpoint.incoming.icrc_error, 0u);
}

// Requests, what is sent again, and what the sender of a successor sends.
TEST_F(Spread, GiveEachQueuePairOnePort) {
  const base::Fd listener = socket_at(kB);
  a_network.open(kA, socket_at(kA), sources_at(kA));
  std::map<uint32_t, uint16_t> due;
  for (int i = 0; i < 30; ++i) {
    connect({});
    due[qp_b->qpn] = verbs::few_source_port(wire::source_port(0, qp_a->qpn, qp_b->qpn) % kPorts);
    write(8);
    EXPECT_TRUE(wait_for([&] { return a.results(*qp_a).size() == 1; })) << "nobody answers";
  }
  std::set<uint16_t> all;
  for (const auto& [qpn, ports] : ports_at(listener)) {
    EXPECT_THAT(ports, testing::ElementsAre(due[qpn])) << qpn;
    all.insert(ports.begin(), ports.end());
  }
  EXPECT_THAT(all, SizeIs(kPorts));
}

TEST_F(Spread, FollowTheFlowLabel) {
  const base::Fd listener = socket_at(kB);
  a_network.open(kA, socket_at(kA), sources_at(kA));
  for (uint32_t label = 1; label <= kPorts; ++label) {
    connect({});
    qp_a->attributes.av.flow_label = label;
    qp_a->sender->attributes_changed();
    write(8);
    std::set<uint16_t> ports;
    EXPECT_TRUE(wait_for([&] {
      ports.merge(ports_at(listener)[qp_b->qpn]);
      return !ports.empty();
    }));
    EXPECT_THAT(ports, testing::ElementsAre(verbs::few_source_port(label % kPorts)));
  }
}

TEST_F(Spread, TakePort4791InsteadOfOneThatIsTaken) {
  const base::Fd listener = socket_at(kB);
  auto sources = sources_at(kA);
  for (SourceSocket& one : sources) one.socket.reset();
  a_network.open(kA, socket_at(kA), std::move(sources));
  write(8);
  EXPECT_TRUE(wait_for([&] { return a.results(*qp_a).size() == 1; }));
  EXPECT_THAT(ports_at(listener)[qp_b->qpn], testing::ElementsAre(wire::kRocePort));
}

struct Grouped : Networked {
  const verbs::Gid group = gid_of("::ffff:239.1.2.3"), far = gid_of("::ffff:127.0.0.3");
  rdma::Qp* member = nullptr;
  base::Fd stranger;

  void SetUp() override {
    Networked::SetUp();
    if (IsSkipped()) return;
    world.a_device.on_group = [this](const verbs::Gid& gid, bool in) {
      in ? a_network.join(gid) : a_network.leave(gid);
    };
    wanted.clear();
    stranger = socket_at(far);
    member = join();
  }
  void TearDown() override { world.a_device.on_group = nullptr; }
  rdma::Qp* join() {
    rdma::Qp* const qp = add_datagrams(a);
    EXPECT_TRUE(world.fabric.attach(*qp, group));
    EXPECT_TRUE(a.post_receive(*qp, 0, {{kBase, 4096, a_key}}));
    return qp;
  }
  // lo has no groups, so the packet goes to the address of the group's socket.
  void send(uint32_t qpn = verbs::kMulticastQpn, uint32_t qkey = kQkey) {
    static const uint8_t kBytes[] = {'m', 'a', 'n', 'y'};
    wire::Packet packet;
    packet.service = wire::Service::kUd;
    packet.operation = wire::Operation::kSendOnly;
    packet.dest_qpn = qpn;
    packet.source_qpn = 0x77;
    packet.qkey = qkey;
    packet.payload = kBytes;
    packet.payload_length = sizeof kBytes;
    const auto out = std::make_unique<Outgoing>();
    ASSERT_TRUE(out->add(packet, {source, group}, 0, false));
    const verbs::SocketAddress to(gid_of("::ffff:127.0.0.9"), wire::kRocePort, 0);
    mmsghdr* const messages = out->messages();
    messages->msg_hdr.msg_name = const_cast<sockaddr*>(to.get());
    ASSERT_EQ(::sendmmsg(stranger.get(), messages, 1, 0), 1);
  }
  size_t received(const rdma::Qp* qp) { return a.received(*qp).size(); }
  verbs::Gid source = far;
};

TEST_F(Grouped, ReceiveForAllWhoAreAttached) {
  EXPECT_EQ(wanted, std::vector{group});
  EXPECT_TRUE(a_network.when_open([] {})) << "a program must not be told that it is in the group";
  rdma::Qp* const second = join();
  rdma::Qp* const other_vdevice = add_datagrams(b);
  ASSERT_TRUE(world.fabric.attach(*other_vdevice, group));
  ASSERT_TRUE(b.post_receive(*other_vdevice, 0, {{kBase, 4096, b_key}}));
  EXPECT_EQ(wanted.size(), 1u);
  a_network.open(group, socket_at(gid_of("::ffff:127.0.0.9")));
  send();
  EXPECT_TRUE(wait_for([&] { return received(member) == 1 && received(second) == 1; }));
  const auto entries = a.received(*member);
  ASSERT_THAT(entries, SizeIs(1));
  EXPECT_EQ(entries[0].src_qpn, 0x77u);
  EXPECT_EQ(entries[0].byte_len, verbs::kGrhBytes + 4);
  const uint8_t addresses[] = {127, 0, 0, 3, 239, 1, 2, 3};
  EXPECT_EQ(std::memcmp(a.memory() + 20 + 12, addresses, sizeof addresses), 0);
  EXPECT_EQ(std::memcmp(a.memory() + verbs::kGrhBytes, "many", 4), 0);
  EXPECT_THAT(b.received(*other_vdevice), SizeIs(0)) << "it has a socket of its own";
}

TEST_F(Grouped, DropWhatIsNotForThem) {
  a_network.open(group, socket_at(gid_of("::ffff:127.0.0.9")));
  send(member->qpn);
  send(verbs::kMulticastQpn, kQkey ^ 1);
  EXPECT_TRUE(
      wait_for([&] { return a_counters.unknown_qp == 1 && a_counters.protocol.bad_qkey == 1; }));
  const base::Fd of_b = std::exchange(stranger, socket_at(kB));
  source = kB;  // its datagram has come by memory
  send();
  EXPECT_TRUE(wait_for([&] { return a_counters.endpoint.received_packets == 3; }));
  EXPECT_EQ(received(member), 0u);
  EXPECT_EQ(a_counters.unknown_qp, 1u);
}

TEST_F(Grouped, LeaveWithTheLast) {
  rdma::Qp* const second = join();
  a_network.open(group, socket_at(gid_of("::ffff:127.0.0.9")));
  ASSERT_TRUE(world.fabric.detach(*member, group));
  EXPECT_THAT(left, SizeIs(0));
  a.context.destroy_qp(*second);
  EXPECT_EQ(left, std::vector{group});
  EXPECT_NO_FATAL_FAILURE((void)socket_at(gid_of("::ffff:127.0.0.9"))) << "it is still open";
}

TEST_F(Grouped, AreFew) {
  verbs::Gid next = gid_of("ff0e::");
  for (size_t i = 1; i < Network::kMostGroups; ++i) {
    next.bytes[15] = static_cast<uint8_t>(i);
    EXPECT_TRUE(a_network.may_join(next));
    a_network.join(next);
  }
  EXPECT_EQ(wanted.size(), Network::kMostGroups);
  next.bytes[0xe] = 1;
  EXPECT_FALSE(a_network.may_join(next));
  a_network.join(next);
  EXPECT_EQ(wanted.size(), Network::kMostGroups);
  EXPECT_TRUE(a_network.may_join(group)) << "it is in that one";
  a_network.leave_groups();
  EXPECT_EQ(left.size(), Network::kMostGroups);
  EXPECT_TRUE(a_network.may_join(next));
}

// The socket of an address that no queue pair has any more is closed.
TEST_F(Networked, CloseWhatNobodyNeeds) {
  open_both();
  qp_b->sender.reset();
  EXPECT_NO_FATAL_FAILURE((void)socket_at(kB));
}

}  // namespace
}  // namespace vrdma::transport::roce
