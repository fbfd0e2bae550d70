// Queue pair 1 on the wire, at addresses of lo: a host that floods it, and another host.
#include "vrdmad/cm/gsi_network.h"

#include <gtest/gtest.h>
#include <net/if.h>

#include <algorithm>
#include <map>

#include "core/verbs/socket_address.h"
#include "core/wire/rdma_cm.h"
#include "tests/unit/vrdmad/enter_own_netns.h"
#include "vrdmad/broker/roce_sockets.h"

namespace vrdma::vrdmad {
namespace {

using std::chrono::milliseconds;
using verbs::Gid;

Gid at(uint8_t number) {
  Gid gid = Gid::unspecified(true);
  gid.bytes[12] = 127;
  gid.bytes[15] = number;
  return gid;
}
const Gid kHere = at(1), kFlooder = at(2), kOther = at(3);

// An address that sends MADs to kHere.
struct Sender {
  Gid gid;
  RoceSockets sockets;
  transport::roce::Outgoing outgoing;

  explicit Sender(const Gid& its) : gid(its), sockets(make_roce_sockets(its, 1).value()) {}
  void send() { send({}, gid, kHere); }
  // Which has the ICRC of a packet from `source` to `destination`.
  void send(const wire::Mad& mad, const Gid& source, const Gid& destination) {
    wire::Packet packet;
    packet.service = wire::Service::kUd;
    packet.operation = wire::Operation::kSendOnly;
    packet.pkey = wire::kDefaultPkey;
    packet.dest_qpn = packet.source_qpn = wire::kGsiQpn;
    packet.qkey = wire::kGsiQkey;
    packet.payload = reinterpret_cast<const uint8_t*>(&mad);
    packet.payload_length = sizeof mad;
    outgoing.clear();
    const transport::NetworkHeader way{gid, kHere, 0, 64, 0}, covered{source, destination};
    ASSERT_TRUE(outgoing.add(packet, {way, wire::kRocePort, covered}, 1, false));
    ASSERT_EQ(::sendmmsg(sockets.gsi.get(), outgoing.messages(), outgoing.count(), 0), 1);
  }
};

struct Receiver {
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  std::map<Gid, uint64_t> received;
  std::set<Gid> strangers;  // that are no peers
  std::function<void()> then;
  GsiNetwork network{
      *loop,
      {[this](const std::string&, const Gid& gid) { return !strangers.contains(gid); },
       [this](const qp1mux::Packet& packet) {
         EXPECT_TRUE(packet.from_network);
         ++received[packet.source];
         if (then) then();
       },
       [](uint64_t, const Caller&, bool) { return true; }, [](uint64_t) {}}};
  std::shared_ptr<void> address;

  Receiver() {
    RoceSockets sockets = make_roce_sockets(kHere, 1).value();
    address =
        network.add("fabric", kHere, std::move(sockets.gsi), std::move(sockets.routes), 1).value();
  }
  void run(base::Duration span) {
    const auto end = loop->after(span, [this] { loop->stop(); });
    loop->run();
  }
};

// One host sends sixty MADs each millisecond, another a few in between.
TEST(GsiNetworkTest, AFloodOfOneHostDoesNotConcernAnother) {
  in_own_netns([] {
    Receiver receiver;
    Sender flooder(kFlooder), other(kOther);
    // What comes until the other's is received fits into the buffer of the socket.
    constexpr uint64_t kRounds = 400, kBurst = 60, kOften = 4;
    int longest = 0;  // in turns of the event loop, because other programs run too
    const auto begun = base::Clock::steady().now();
    for (uint64_t round = 1; round <= kRounds; ++round) {
      for (uint64_t i = 0; i < kBurst; ++i) flooder.send();
      const uint64_t before = receiver.received[kOther];
      if (round % kOften == 0) other.send();
      receiver.run(milliseconds(1));
      if (round % kOften != 0) continue;
      int turns = 1;
      for (; turns < 300 && receiver.received[kOther] == before; ++turns)
        receiver.run(milliseconds(1));
      longest = std::max(longest, turns);
    }
    const std::chrono::duration<double> took = base::Clock::steady().now() - begun;
    EXPECT_EQ(receiver.received[kOther], kRounds / kOften);
    EXPECT_LT(longest, 200);  // mostly 1
    const double most = GsiNetwork::kMadsPerSecond * (1 + took.count());
    EXPECT_LE(static_cast<double>(receiver.received[kFlooder]), most);
    EXPECT_GE(receiver.received[kFlooder], GsiNetwork::kMadsPerSecond);
    const GsiNetworkCounters& counters = receiver.network.counters();
    EXPECT_EQ(counters.over_rate + counters.received, kRounds * kBurst + kRounds / kOften);
  });
}

TEST(GsiNetworkTest, WhatNoPeerSendsIsDroppedAndNothingGoesToIt) {
  in_own_netns([] {
    Receiver receiver;
    receiver.strangers.insert(kFlooder);
    Sender stranger(kFlooder), peer(kOther);
    stranger.send();
    peer.send();
    for (int i = 0; i < 1000 && receiver.received[kOther] == 0; ++i) receiver.run(milliseconds(1));
    EXPECT_EQ(receiver.received[kOther], 1u);
    EXPECT_EQ(receiver.received[kFlooder], 0u);
    const GsiNetworkCounters& counters = receiver.network.counters();
    EXPECT_EQ(counters.no_peer, 1u);
    const wire::Mad mad{};
    const auto send_to = [&](const Gid& destination) {
      receiver.network.send(
          {"fabric", kHere, destination, qp1mux::RoceVersion::kV2, 0, 64, 0, mad, false});
    };
    send_to(kFlooder);
    EXPECT_EQ(counters.no_peer, 2u);
    send_to(kOther);
    EXPECT_EQ(counters.no_peer, 2u);
    EXPECT_EQ(counters.sent, 1u);
  });
}

// Whatever comes, and whoever sends it, takes a quarter of the time at most.
TEST(GsiNetworkTest, WhatArrivesDoesNotTakeAllTime) {
  in_own_netns([] {
    Receiver receiver;
    Sender sender(kOther);
    receiver.then = [] {
      const auto until = base::thread_cpu_time() + milliseconds(1);
      while (base::thread_cpu_time() < until) {
      }
    };
    for (int i = 0; i < 200; ++i) sender.send();
    const auto begun = base::Clock::steady().now();
    for (int i = 0; i < 1000 && receiver.received[kOther] < 40; ++i) receiver.run(milliseconds(1));
    EXPECT_GE(receiver.received[kOther], 40u);
    EXPECT_GE(base::Clock::steady().now() - begun, milliseconds(4 * (40 - 5 - 8)));
    EXPECT_GT(receiver.network.counters().delayed, 0u);
  });
}

// The asker knows itself as kAsker and its peer as kNamed; in between, both are translated.
TEST(GsiNetworkTest, ARequestThatWasTranslatedIsRefused) {
  const Gid kAsker = at(8), kNamed = at(9);
  wire::Mad req{};
  auto& its = wire::begin<wire::CmReq>(req, 77);
  its.local_id = 5;
  its.primary.local_gid = kAsker;
  its.primary.remote_gid = kNamed;
  wire::Mad sidr{};
  auto& asks = wire::begin<wire::CmSidrReq>(sidr, 78);
  asks.request_id = 6;
  asks.service_id = wire::service_id(wire::PortSpace::kUdp, 9);
  const wire::IpHeader ends = wire::encode({kAsker, kNamed, 1});
  std::memcpy(asks.private_data, &ends, sizeof ends);
  wire::Mad other{};
  (void)wire::begin<wire::CmRtu>(other, 79);

  in_own_netns([&] {
    Receiver receiver;
    Sender translator(kOther);
    translator.send(other, kAsker, kNamed);
    translator.send(req, kAsker, at(10));  // not between those that it names
    translator.send(req, kAsker, kNamed);
    translator.send(sidr, kAsker, kNamed);
    translator.send();
    for (int i = 0; i < 1000 && receiver.received[kOther] == 0; ++i) receiver.run(milliseconds(1));
    const GsiNetworkCounters& counters = receiver.network.counters();
    EXPECT_EQ(receiver.received[kOther], 1u);
    EXPECT_EQ(counters.translated, 2u);
    EXPECT_EQ(counters.incoming.icrc_error, 2u);

    transport::roce::Incoming answers;
    transport::roce::IncomingCounters answered;
    ASSERT_EQ(answers.receive(translator.sockets.gsi), 2);
    std::vector<wire::Mad> mads;
    answers.each(
        kOther, answered, [](const wire::Packet&, const transport::NetworkHeader&) { FAIL(); },
        [&](const transport::roce::Misfit& misfit) {
          EXPECT_EQ(misfit.header.source, kHere);
          EXPECT_TRUE(misfit.fits(kNamed, kAsker));  // as it will come to the asker
          std::memcpy(&mads.emplace_back(), misfit.packet.payload, sizeof(wire::Mad));
          return true;
        });
    ASSERT_EQ(mads.size(), 2u);
    EXPECT_EQ(wire::cm_attribute(mads[0].header), wire::CmAttribute::kRej);
    EXPECT_EQ(mads[0].header.transaction_id, 77u);
    const auto& rej = mads[0].as<wire::CmRej>();
    EXPECT_EQ(rej.remote_id, 5u);
    EXPECT_EQ(rej.reason, static_cast<uint16_t>(wire::RejectReason::kInvalidGid));
    EXPECT_EQ(wire::cm_attribute(mads[1].header), wire::CmAttribute::kSidrRep);
    EXPECT_EQ(mads[1].as<wire::CmSidrRep>().request_id, 6u);
  });
}

}  // namespace
}  // namespace vrdma::vrdmad
