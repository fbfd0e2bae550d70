// Packets through sockets: grouping, addresses, the ICRC.
#include <vector>

#include "tests/unit/transport/roce/sockets.h"
#include "transport/roce/incoming.h"
#include "transport/roce/invariant.h"

namespace vrdma::transport::roce {
namespace {

using Bytes = std::vector<uint8_t>;
using wire::Operation;

constexpr uint32_t kMtu = 1024;

// A WRITE of that length.
net::Burst write_of(const Bytes& bytes) {
  net::Burst burst;
  const uint32_t count = wire::packets_of(bytes.size(), kMtu);
  for (uint32_t i = 0; i < count; ++i) {
    wire::Packet& packet = burst.add();
    packet.operation = i == 0           ? Operation::kWriteFirst
                       : i + 1 == count ? Operation::kWriteLast
                                        : Operation::kWriteMiddle;
    packet.dest_qpn = 0x1234;
    packet.psn = i;
    packet.payload = bytes.data() + size_t{i} * kMtu;
    packet.payload_length = std::min(kMtu, static_cast<uint32_t>(bytes.size() - size_t{i} * kMtu));
  }
  return burst;
}
Bytes pattern(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return bytes;
}
Bytes flat(const msghdr& message) {
  Bytes bytes;
  for (size_t i = 0; i < message.msg_iovlen; ++i) {
    const auto* from = static_cast<const uint8_t*>(message.msg_iov[i].iov_base);
    bytes.insert(bytes.end(), from, from + message.msg_iov[i].iov_len);
  }
  return bytes;
}

TEST(Outgoing, GroupsEquallyLongPacketsAndNumbersThem) {
  const Bytes bytes = pattern(10 * kMtu + 5);
  const net::Burst burst = write_of(bytes);
  const auto out = std::make_unique<Outgoing>();
  EXPECT_EQ(out->add(burst, 0, {kA, kB}, 0, true), burst.count);
  ASSERT_EQ(out->count(), 2u) << "the first is longer than those behind it";
  EXPECT_EQ(out->packets_of(0), 2u);
  EXPECT_EQ(out->packets_of(1), 9u);
  uint32_t index = 0;
  for (uint32_t m = 0; m < out->count(); ++m) {
    const Bytes sent = flat(out->messages(m)->msg_hdr);
    size_t at = 0;
    for (uint16_t id = 0; id < out->packets_of(m); ++id, ++index) {
      const size_t size = wire::packet_bytes(burst.packets[index]);
      wire::Icrc icrc = begin_icrc(kA, kB, wire::kRocePort, size, id, &sent[at]);
      icrc.add(&sent[at + sizeof(wire::Bth)], size - sizeof(wire::Bth) - wire::kIcrcBytes);
      EXPECT_EQ(icrc.value(), wire::Icrc::read(&sent[at + size - wire::kIcrcBytes])) << index;
      at += size;
    }
    EXPECT_EQ(at, sent.size());
  }
  out->clear();
  EXPECT_EQ(out->add(burst, 0, {kA, kB}, 0, false), burst.count);
  EXPECT_EQ(out->count(), burst.count);
}

TEST(Outgoing, MakesNoMessageLongerThanADatagram) {
  const Bytes bytes(4096);
  net::Burst burst;
  for (uint32_t i = 0; i < net::Burst::kMost; ++i) {
    wire::Packet& packet = burst.add();
    packet.operation = Operation::kWriteMiddle;
    packet.payload = bytes.data();
    packet.payload_length = 4096;
  }
  const auto out = std::make_unique<Outgoing>();
  EXPECT_EQ(out->add(burst, 0, {kA, kB}, 0, true), burst.count);
  uint32_t packets = 0;
  for (uint32_t m = 0; m < out->count(); ++m) {
    EXPECT_LE(flat(out->messages(m)->msg_hdr).size(), Outgoing::kMostBytes);
    packets += out->packets_of(m);
  }
  EXPECT_EQ(packets, net::Burst::kMost);
}

// Of several queue pairs, if they go the same way.
TEST(Outgoing, JoinsShortPacketsOfSeveralBurstsWhilePiecesAreFew) {
  const Bytes bytes = pattern(8);
  const auto out = std::make_unique<Outgoing>();
  for (uint32_t i = 0; i < Outgoing::kMost; ++i) {
    net::Burst burst = write_of(bytes);
    burst.packets[0].operation = Operation::kWriteOnly;
    burst.packets[0].dest_qpn = i;
    const uint8_t traffic_class = i < 3 ? 0x40 : 0;
    EXPECT_EQ(out->add(burst, 0, {kA, kB, traffic_class}, 0, true), 1u);
  }
  EXPECT_EQ(out->add(write_of(bytes), 0, {kA, kB}, 0, true), 0u) << "there is no room";
  ASSERT_EQ(out->count(), 3u);
  EXPECT_EQ(out->packets_of(0), 3u) << "another traffic class is another message";
  EXPECT_EQ(out->packets_of(1), Outgoing::kMostSegments);
  EXPECT_EQ(out->messages(1)->msg_hdr.msg_iovlen, 1u);
  const Bytes sent = flat(out->messages(1)->msg_hdr);
  const size_t size = sent.size() / Outgoing::kMostSegments;
  for (uint32_t i = 0; i < Outgoing::kMostSegments; ++i) {
    const auto packet = wire::decode({&sent[i * size], size});
    ASSERT_TRUE(packet);
    EXPECT_EQ(packet->dest_qpn, 3 + i);
    EXPECT_EQ(Bytes(packet->payload, packet->payload + packet->payload_length), bytes);
  }
}

struct Sockets : OwnNetns {
  struct Got {
    wire::Packet packet;
    NetworkHeader header;
    Bytes payload;
  };
  std::vector<Got> receive(const base::Fd& socket, const verbs::Gid& at) {
    std::vector<Got> all;
    while (incoming.receive(socket) > 0)
      incoming.each(
          at, counters,
          [&](const wire::Packet& packet, const NetworkHeader& header) {
            all.push_back(
                {packet, header, Bytes(packet.payload, packet.payload + packet.payload_length)});
          },
          [](const Misfit&) { return false; });
    return all;
  }
  void send(const base::Fd& socket, const net::Burst& burst, const NetworkHeader& way,
            uint16_t port = wire::kRocePort) {
    const auto out = std::make_unique<Outgoing>();
    out->clear();
    out->leave_by(port);
    EXPECT_EQ(out->add(burst, 0, way, 0, true), burst.count);
    EXPECT_EQ(::sendmmsg(socket.get(), out->messages(), out->count(), 0),
              static_cast<int>(out->count()));
  }
  Incoming incoming;
  IncomingCounters counters;
};

TEST_F(Sockets, CarryABurst) {
  for (const auto& [from, to] : {std::pair{kA, kB}, std::pair{kV6, kV6}}) {
    const base::Fd sender = socket_at(from);
    const base::Fd other = from == to ? base::Fd() : socket_at(to);
    const base::Fd& receiver = from == to ? sender : other;
    const Bytes bytes = pattern(20 * kMtu + 7);
    NetworkHeader way{from, to};
    way.traffic_class = 0x62;
    way.hop_limit = 9;
    send(sender, write_of(bytes), way);
    const auto got = receive(receiver, to);
    ASSERT_EQ(got.size(), 21u);
    Bytes all;
    for (uint32_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].packet.psn, i);
      EXPECT_EQ(got[i].header.source, from);
      EXPECT_EQ(got[i].header.destination, to);
      EXPECT_EQ(got[i].header.traffic_class, 0x62);
      EXPECT_EQ(got[i].header.hop_limit, 9);
      all.insert(all.end(), got[i].payload.begin(), got[i].payload.end());
    }
    EXPECT_EQ(all, bytes);
    EXPECT_EQ(counters.icrc_error + counters.malformed, 0u);
  }
}

// The ICRC covers the source port.
TEST_F(Sockets, SendFromAnyPort) {
  for (const auto& [from, to] : {std::pair{kA, kB}, std::pair{kV6, kV6}}) {
    const base::Fd sender = socket_at(from, 0xf003), receiver = socket_at(to);
    const Bytes bytes = pattern(5 * kMtu + 7);
    send(sender, write_of(bytes), {from, to}, 0xf003);
    EXPECT_EQ(receive(receiver, to).size(), 6u);
    EXPECT_EQ(counters.icrc_error, 0u);
  }
}

TEST_F(Sockets, DropWhatIsDamagedOrNoPacket) {
  const base::Fd sender = socket_at(kA), receiver = socket_at(kB);
  const Bytes bytes = pattern(8);
  const auto out = std::make_unique<Outgoing>();
  const net::Burst burst = write_of(bytes);
  EXPECT_EQ(out->add(burst, 0, {kA, kB}, 0, false), burst.count);
  const Bytes good = flat(out->messages()->msg_hdr);
  const verbs::SocketAddress to(kB, wire::kRocePort, 0);
  const auto send_bytes = [&](const Bytes& datagram) {
    EXPECT_EQ(::sendto(sender.get(), datagram.data(), datagram.size(), 0, to.get(), to.size),
              static_cast<ssize_t>(datagram.size()));
    return receive(receiver, kB).size();
  };
  EXPECT_EQ(send_bytes(good), 1u);
  for (size_t i = sizeof(wire::Bth); i < good.size(); ++i) {
    Bytes bad = good;
    bad[i] ^= 0x10;
    EXPECT_EQ(send_bytes(bad), 0u) << i;
  }
  EXPECT_EQ(counters.icrc_error, good.size() - sizeof(wire::Bth));
  for (size_t size = 0; size < 16; ++size) EXPECT_EQ(send_bytes(Bytes(size)), 0u);
  EXPECT_EQ(counters.malformed, 15u) << "an empty datagram has no packet";
}

}  // namespace
}  // namespace vrdma::transport::roce
