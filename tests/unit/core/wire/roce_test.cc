#include "core/wire/roce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace vrdma::wire {
namespace {

using Blob = std::vector<uint8_t>;

Blob frame_of(const Packet& packet) {
  Blob bytes(packet_bytes(packet));
  const size_t headers = encode(packet, bytes.data());
  EXPECT_EQ(headers, header_bytes(packet));
  if (packet.payload_length > 0)
    std::memcpy(&bytes[headers], packet.payload, packet.payload_length);
  return bytes;
}

// All that a service has, with headers and payload that fit.
std::vector<Packet> all_packets() {
  static const Blob payload(4096, 0xab);
  std::vector<Packet> all;
  for (const auto service : {Service::kRc, Service::kUc, Service::kUd})
    for (uint8_t operation = 0; operation < 32; ++operation) {
      Packet packet;
      packet.service = service;
      packet.operation = static_cast<Operation>(operation);
      const OperationInfo& about = info(packet.operation);
      if (about.family == OperationInfo::Family::kNone) continue;
      const bool datagram = operation == 4 || operation == 5;
      if (service == Service::kUd && !datagram) continue;
      if (service == Service::kUc && operation > 0x0b) continue;
      packet.dest_qpn = 0x123456;
      packet.psn = 0xabcdef;
      packet.pkey = 0x8001;
      packet.solicited = packet.ack_request = true;
      if (service == Service::kUd) packet.qkey = 0x80010000, packet.source_qpn = 0x7890;
      if (about.has(OperationInfo::kReth) || about.has(OperationInfo::kAtomicEth))
        packet.va = 0x1122334455667788, packet.rkey = 0x99aabbcc;
      if (about.has(OperationInfo::kReth)) packet.dma_length = 1u << 31;
      if (about.has(OperationInfo::kAtomicEth)) packet.swap_add = 5, packet.compare = 6;
      if (about.has(OperationInfo::kAeth)) packet.syndrome = 0x61, packet.msn = 0x1000;
      if (about.has(OperationInfo::kAtomicAckEth)) packet.original = 77;
      if (about.has(OperationInfo::kImmDt) || about.has(OperationInfo::kIeth))
        packet.imm = 0x01020304;
      switch (about.payload) {
        case OperationInfo::Payload::kNone:
          break;
        case OperationInfo::Payload::kMtu:
          packet.payload_length = 4096;
          break;
        case OperationInfo::Payload::kEight:
          packet.payload_length = 8;
          break;
        default:
          packet.payload_length = 5;
      }
      if (packet.payload_length > 0) packet.payload = payload.data();
      all.push_back(packet);
    }
  return all;
}

void expect_equal(const Packet& a, const Packet& b) {
  EXPECT_EQ(a.service, b.service);
  EXPECT_EQ(a.operation, b.operation);
  EXPECT_EQ(a.solicited, b.solicited);
  EXPECT_EQ(a.ack_request, b.ack_request);
  EXPECT_EQ(a.becn, b.becn);
  EXPECT_EQ(a.pkey, b.pkey);
  EXPECT_EQ(a.dest_qpn, b.dest_qpn);
  EXPECT_EQ(a.psn, b.psn);
  EXPECT_EQ(a.va, b.va);
  EXPECT_EQ(a.rkey, b.rkey);
  EXPECT_EQ(a.dma_length, b.dma_length);
  EXPECT_EQ(a.swap_add, b.swap_add);
  EXPECT_EQ(a.compare, b.compare);
  EXPECT_EQ(a.syndrome, b.syndrome);
  EXPECT_EQ(a.msn, b.msn);
  EXPECT_EQ(a.imm, b.imm);
  EXPECT_EQ(a.qkey, b.qkey);
  EXPECT_EQ(a.source_qpn, b.source_qpn);
  ASSERT_EQ(a.payload_length, b.payload_length);
  if (a.payload_length > 0) {
    EXPECT_EQ(std::memcmp(a.payload, b.payload, a.payload_length), 0);
  }
}

TEST(RocePackets, AreReadAsTheyWereWritten) {
  const std::vector<Packet> all = all_packets();
  EXPECT_EQ(all.size(), 24u + 12 + 2);
  for (const Packet& packet : all) {
    const Blob bytes = frame_of(packet);
    EXPECT_EQ(bytes.size() % 4, 0u);
    const auto read = decode(bytes);
    ASSERT_TRUE(read) << static_cast<int>(packet.operation);
    expect_equal(*read, packet);
  }
}

TEST(RocePackets, HaveTheLayoutOfTheSpecification) {
  Packet packet;
  packet.operation = Operation::kWriteOnlyImm;
  packet.dest_qpn = 0x11;
  packet.psn = 0x100;
  packet.ack_request = true;
  packet.va = 0x7f0000001000;
  packet.rkey = 0x1234;
  packet.dma_length = 3;
  const uint8_t imm[] = {1, 2, 3, 4};
  std::memcpy(&packet.imm, imm, sizeof imm);
  packet.payload_length = 3;
  packet.payload = imm;
  const Blob bytes = frame_of(packet);
  const uint8_t expected[] = {0x0b, 0x10, 0xff, 0xff, 0, 0, 0,    0x11, 0x80, 0, 1,    0,
                              0,    0,    0x7f, 0,    0, 0, 0x10, 0,    0,    0, 0x12, 0x34,
                              0,    0,    0,    3,    1, 2, 3,    4,    1,    2, 3,    0};
  ASSERT_GE(bytes.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
  packet.operation = Operation::kSendOnlyInvalidate;
  packet.imm = 0x01020304;
  const Blob invalidates = frame_of(packet);
  EXPECT_EQ(invalidates[0], 0x17);
  EXPECT_EQ(std::memcmp(&invalidates[12], imm, 4), 0)
      << "a key has a byte order, an immediate none";
}

TEST(RocePackets, ThatEndTooSoonAreRefused) {
  for (const Packet& packet : all_packets()) {
    Blob bytes = frame_of(packet);
    const size_t least = header_bytes(packet) + kIcrcBytes;
    for (size_t size = 0; size < least; ++size)
      EXPECT_FALSE(decode(std::span(bytes).first(size))) << size;
  }
}

TEST(RocePackets, WithWhatNoSenderWritesAreRefused) {
  Packet packet;
  packet.payload_length = 0;
  const Blob good = frame_of(packet);
  ASSERT_TRUE(decode(good));
  for (const int opcode : {0x15, 0x18, 0x1f, 0x36, 0x2c, 0x40, 0x60, 0x66, 0xa0, 0x80, 0xe4}) {
    Blob bytes = good;
    bytes[0] = static_cast<uint8_t>(opcode);
    EXPECT_FALSE(decode(bytes)) << opcode;
  }
  Blob version = good;
  version[1] |= 1;
  EXPECT_FALSE(decode(version));
  Blob padded = good;
  padded[1] |= 0x30;
  EXPECT_FALSE(decode(padded)) << "more padding than bytes";
  Packet ack;
  ack.operation = Operation::kAcknowledge;
  Blob longer = frame_of(ack);
  longer.resize(longer.size() + 4);
  EXPECT_FALSE(decode(longer)) << "an ACK has no payload";
  Blob odd = good;
  odd.push_back(0);
  EXPECT_FALSE(decode(odd));
}

TEST(RocePackets, KnowCongestionNotifications) {
  const Packet packet = make_cnp(0x118);
  const Blob bytes = frame_of(packet);
  EXPECT_EQ(bytes.size(), 12u + 16 + 4);
  EXPECT_EQ(bytes[0], 0x81);
  EXPECT_EQ(bytes[4], 0x40);
  const auto read = decode(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->service, Service::kCnp);
  EXPECT_TRUE(read->becn);
}

TEST(RoceLengths, FollowTheMtu) {
  EXPECT_TRUE(length_fits(Operation::kSendFirst, 1024, 1024));
  EXPECT_FALSE(length_fits(Operation::kSendFirst, 1023, 1024));
  EXPECT_FALSE(length_fits(Operation::kWriteMiddle, 2048, 1024));
  EXPECT_FALSE(length_fits(Operation::kWriteLast, 0, 1024));
  EXPECT_TRUE(length_fits(Operation::kWriteLast, 1024, 1024));
  EXPECT_TRUE(length_fits(Operation::kSendOnly, 0, 1024));
  EXPECT_FALSE(length_fits(Operation::kSendOnlyImm, 1025, 1024));
  EXPECT_FALSE(length_fits(Operation::kReadRequest, 4, 1024));
  EXPECT_TRUE(length_fits(Operation::kAtomicWrite, 8, 1024));
  EXPECT_FALSE(length_fits(Operation::kAtomicWrite, 4, 1024));
  EXPECT_EQ(packets_of(0, 1024), 1u);
  EXPECT_EQ(packets_of(1024, 1024), 1u);
  EXPECT_EQ(packets_of(1025, 1024), 2u);
  EXPECT_EQ(packets_of(1ull << 31, 256), 1u << 23);
}

TEST(Psns, Wrap) {
  EXPECT_EQ(psn_add(0xffffff, 1), 0u);
  EXPECT_EQ(psn_distance(0xffffff, 1), 2);
  EXPECT_EQ(psn_distance(1, 0xffffff), -2);
  EXPECT_EQ(psn_distance(0, 0x7fffff), 0x7fffff);
  EXPECT_EQ(psn_distance(0, 0x800000), -0x800000);
}

TEST(Pkeys, MatchWithinAPartition) {
  EXPECT_TRUE(pkeys_match(0xffff, 0xffff));
  EXPECT_TRUE(pkeys_match(0x7fff, 0xffff));
  EXPECT_FALSE(pkeys_match(0x7fff, 0x7fff)) << "two limited members";
  EXPECT_FALSE(pkeys_match(0x8001, 0x8002));
  EXPECT_FALSE(pkeys_match(0x8000, 0x8000)) << "no partition";
}

TEST(Timers, AreThoseOfTheTables) {
  EXPECT_EQ(rnr_timer_us(0), 655360u);
  EXPECT_EQ(rnr_timer_us(1), 10u);
  EXPECT_EQ(rnr_timer_us(12), 640u);
  EXPECT_EQ(rnr_timer_us(31), 491520u);
  EXPECT_EQ(ack_timeout_ns(0), 0u);
  EXPECT_EQ(ack_timeout_ns(14), 4096ull << 14);
  EXPECT_EQ(ack_kind(0x1f), AckKind::kAck);
  EXPECT_EQ(ack_kind(0x2c), AckKind::kRnrNak);
  EXPECT_EQ(ack_kind(kNakSequence), AckKind::kNak);
  EXPECT_EQ(ack_kind(0x9f), AckKind::kReserved);
  EXPECT_EQ(ack_kind(0x45), AckKind::kReserved);
}

TEST(SourcePorts, AreThoseOfTheKernel) {
  EXPECT_EQ(source_port(0, 0x11, 0x12), 0xc132);
  EXPECT_EQ(source_port(0, 1, 1), 0xc001);
  EXPECT_EQ(source_port(0, 0xfffffe, 0xabcdef), 0xfa41);
  EXPECT_EQ(source_port(0x12345, 1, 1), source_port(0x12345, 2, 3));
}

}  // namespace
}  // namespace vrdma::wire
