// Queue pair 1 on the wire, at addresses of lo: a host that floods it, and another host.
#include "vrdmad/cm/gsi_network.h"

#include <gtest/gtest.h>
#include <net/if.h>

#include <algorithm>
#include <map>

#include "core/verbs/socket_address.h"
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
  void send() {
    const wire::Mad mad{};
    wire::Packet packet;
    packet.service = wire::Service::kUd;
    packet.operation = wire::Operation::kSendOnly;
    packet.pkey = wire::kDefaultPkey;
    packet.dest_qpn = packet.source_qpn = wire::kGsiQpn;
    packet.qkey = wire::kGsiQkey;
    packet.payload = reinterpret_cast<const uint8_t*>(&mad);
    packet.payload_length = sizeof mad;
    outgoing.clear();
    ASSERT_TRUE(outgoing.add(packet, {gid, kHere, 0, 64, 0}, 1, false));
    ASSERT_EQ(::sendmmsg(sockets.gsi.get(), outgoing.messages(), outgoing.count(), 0), 1);
  }
};

struct Receiver {
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  std::map<Gid, uint64_t> received;
  std::function<void()> then;
  GsiNetwork network{*loop,
                     {[](const std::string&) { return true; },
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
    const auto begun = base::EventLoop::now();
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
    const std::chrono::duration<double> took = base::EventLoop::now() - begun;
    EXPECT_EQ(receiver.received[kOther], kRounds / kOften);
    EXPECT_LT(longest, 200);  // mostly 1
    const double most = GsiNetwork::kMadsPerSecond * (1 + took.count());
    EXPECT_LE(static_cast<double>(receiver.received[kFlooder]), most);
    EXPECT_GE(receiver.received[kFlooder], GsiNetwork::kMadsPerSecond);
    const GsiNetworkCounters& counters = receiver.network.counters();
    EXPECT_EQ(counters.over_rate + counters.received, kRounds * kBurst + kRounds / kOften);
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
    const auto begun = base::EventLoop::now();
    for (int i = 0; i < 1000 && receiver.received[kOther] < 40; ++i) receiver.run(milliseconds(1));
    EXPECT_GE(receiver.received[kOther], 40u);
    EXPECT_GE(base::EventLoop::now() - begun, milliseconds(4 * (40 - 5 - 8)));
    EXPECT_GT(receiver.network.counters().delayed, 0u);
  });
}

}  // namespace
}  // namespace vrdma::vrdmad
