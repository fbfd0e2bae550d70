#include "core/wire/icrc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace vrdma::wire {
namespace {

using Blob = std::vector<uint8_t>;

Blob bytes_of(const std::string& hex) {
  Blob bytes;
  std::string digits;
  for (const char c : hex)
    if (c != ' ') digits += c;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

template <class Ip>
Blob icrc_of(const Blob& packet, size_t piece = SIZE_MAX) {
  Ip ip;
  UdpHeader udp;
  Bth bth;
  std::memcpy(&ip, packet.data(), sizeof ip);
  std::memcpy(&udp, packet.data() + sizeof ip, sizeof udp);
  std::memcpy(&bth, packet.data() + sizeof ip + sizeof udp, sizeof bth);
  Icrc icrc(ip, udp, bth);
  for (size_t at = sizeof ip + sizeof udp + sizeof bth; at < packet.size();) {
    const size_t size = std::min(piece, packet.size() - at);
    icrc.add(packet.data() + at, size);
    at += size;
  }
  Blob out(kIcrcBytes);
  icrc.write(out.data());
  EXPECT_EQ(Icrc::read(out.data()), icrc.value());
  return out;
}

// Of a ConnectX-4 Lx.
const char kCnp[] =
    "45c2003c718c4000401191610a0011010a001201 000012b700280000 8100ffff4000011800000000"
    "00000000000000000000000000000000";
// UC SEND only, 18 bytes and 2 of padding.
const char kUcSend[] =
    "4501004004784000401100fd c0a80007c0a80007 c00012b7002caca2 2460ffff000000d300cf1710"
    "4630818be28935d90e9a95505401be885e500000";
// RC WRITE only, 4 bytes.
const char kWrite[] =
    "4500004000004000401126ab0a0000010a000002c00012b7002c0000"
    "0a00ffff000000118000010000007f0000001000000012340000000461626364";
const char kWriteIpv6[] =
    "60000000002c1140fd000000000000000000000000000001fd000000000000000000000000000002"
    "c00012b7002c00000a00ffff000000118000010000007f0000001000000012340000000461626364";

TEST(Icrc, IsThatOfAdapters) {
  EXPECT_EQ(icrc_of<Ipv4Header>(bytes_of(kCnp)), bytes_of("82fd002a"));
  EXPECT_EQ(icrc_of<Ipv4Header>(bytes_of(kUcSend)), bytes_of("78f353f3"));
  EXPECT_EQ(icrc_of<Ipv4Header>(bytes_of(kWrite)), bytes_of("623bb6fd"));
  EXPECT_EQ(icrc_of<Ipv6Header>(bytes_of(kWriteIpv6)), bytes_of("6b590511"));
}

TEST(Icrc, DoesNotDependOnThePiecesThatAreAdded) {
  for (const size_t piece : {1u, 3u, 7u, 64u})
    EXPECT_EQ(icrc_of<Ipv4Header>(bytes_of(kWrite), piece), bytes_of("623bb6fd"));
}

TEST(Icrc, LeavesOutWhatRoutersChange) {
  Blob packet = bytes_of(kWrite);
  packet[1] ^= 0x3;  // ECN
  packet[8] -= 1;    // time to live
  packet[10] ^= 0xff;
  packet[20 + 6] ^= 0xff;      // UDP checksum
  packet[20 + 8 + 4] ^= 0xc0;  // FECN, BECN
  EXPECT_EQ(icrc_of<Ipv4Header>(packet), bytes_of("623bb6fd"));
  Blob ipv6 = bytes_of(kWriteIpv6);
  ipv6[0] ^= 0x0f;
  ipv6[2] ^= 0xff;
  ipv6[7] -= 1;
  EXPECT_EQ(icrc_of<Ipv6Header>(ipv6), bytes_of("6b590511"));
  for (const size_t covered : {size_t{2}, size_t{4}, size_t{6}, size_t{9}, size_t{15}, size_t{20},
                               size_t{28}, size_t{36}, packet.size() - 1}) {
    Blob other = bytes_of(kWrite);
    other[covered] ^= 1;
    EXPECT_NE(icrc_of<Ipv4Header>(other), bytes_of("623bb6fd")) << covered;
  }
}

TEST(Ipv4Id, IsFoundFromTheIcrc) {
  std::mt19937 random(7);
  for (const size_t payload : {0u, 1u, 4u, 100u, 1024u, 4096u}) {
    Blob packet = bytes_of(kWrite);
    packet.resize(packet.size() + payload / 4 * 4);
    for (size_t i = 60; i < packet.size(); ++i) packet[i] = static_cast<uint8_t>(random());
    const size_t covered = packet.size() - sizeof(Ipv4Header) - sizeof(UdpHeader);
    const uint32_t computed = Icrc::read(icrc_of<Ipv4Header>(packet).data());
    for (const uint32_t id : {0u, 1u, 0x100u, 0x718cu, 0xffffu}) {
      packet[4] = static_cast<uint8_t>(id >> 8);
      packet[5] = static_cast<uint8_t>(id);
      const uint32_t received = Icrc::read(icrc_of<Ipv4Header>(packet).data());
      EXPECT_EQ(find_ipv4_id(computed, received, covered), id);
    }
    packet[4] = packet[5] = 0;
  }
}

TEST(Ipv4Id, OfDamagedPacketsIsMostlyNone) {
  std::mt19937 random(8);
  int found = 0;
  for (int i = 0; i < 20000; ++i)
    found += find_ipv4_id(0x12345678, static_cast<uint32_t>(random()), 1040) ? 1 : 0;
  EXPECT_LT(found, 10) << "one of 65536 is expected";
  EXPECT_EQ(find_ipv4_id(0, 1, 1u << 20), std::nullopt);
}

}  // namespace
}  // namespace vrdma::wire
