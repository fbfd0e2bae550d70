// Every CM message against bytes laid out by hand from the tables of the specification.
#include "core/wire/cm.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vrdma::wire {
namespace {

struct Bytes {
  size_t offset;
  const char* hex;
};

// A MAD with `parts` at their offsets after the header, and zeros elsewhere.
std::string golden(uint16_t attribute, const std::vector<Bytes>& parts) {
  static const char* const kDigits = "0123456789abcdef";
  std::string text =
      "01070203"
      "00000000"
      "1122334455667788"
      "0000"
      "0000"
      "00000000";
  text[34] = kDigits[attribute >> 4 & 15];
  text[35] = kDigits[attribute & 15];
  text.resize(512, '0');
  for (const auto& part : parts)
    text.replace(48 + 2 * part.offset, std::strlen(part.hex), part.hex);
  return text;
}

std::string hex(const Mad& mad) {
  std::string text;
  for (size_t i = 0; i < sizeof mad; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", reinterpret_cast<const uint8_t*>(&mad)[i]);
    text += digits;
  }
  return text;
}

constexpr uint64_t kTid = 0x1122334455667788;

verbs::Gid gid(uint8_t last) {
  verbs::Gid value;
  value.bytes[10] = value.bytes[11] = 0xff;
  value.bytes[12] = 10;
  value.bytes[15] = last;
  return value;
}

template <size_t N>
void fill_ends(uint8_t (&data)[N]) {
  data[0] = 0xa1;
  data[N - 1] = 0xb2;
}

TEST(Cm, Req) {
  Mad mad;
  auto& req = begin<CmReq>(mad, kTid);
  req.local_id = 0x01020304;
  req.service_id = 0x01061234;
  req.ca_guid = 0x0a0b0c0d0e0f1011;
  req.qpn = 0x123456;
  req.responder_resources = 0x10;
  req.initiator_depth = 0x0f;
  req.set_remote_cm_timeout(20);
  req.set_transport(CmTransport::kUc);
  req.set_flow_control(true);
  req.starting_psn = 0x654321;
  req.set_local_cm_timeout(21);
  req.set_retry_count(7);
  req.pkey = kDefaultPkey;
  req.set_mtu(5);
  req.set_rnr_retry_count(6);
  req.set_max_cm_retries(15);
  req.set_srq(true);
  req.set_extended_transport(1);
  req.primary.local_lid = req.primary.remote_lid = 0xffff;
  req.primary.local_gid = gid(1);
  req.primary.remote_gid = gid(2);
  req.primary.set_flow_label(0xabcde);
  req.primary.set_packet_rate(3);
  req.primary.traffic_class = 0x20;
  req.primary.hop_limit = 64;
  req.primary.set_sl(9);
  req.primary.set_subnet_local(true);
  req.primary.set_ack_timeout(17);
  fill_ends(req.private_data);
  EXPECT_EQ(hex(mad), golden(0x10, {{0, "01020304"},
                                    {8, "0000000001061234"},
                                    {16, "0a0b0c0d0e0f1011"},
                                    {32,
                                     "123456"
                                     "10"},
                                    {39, "0f"},
                                    {43, "a3"},  // 20 << 3 | 1 << 1 | 1
                                    {44,
                                     "654321"
                                     "af"},  // 21 << 3 | 7
                                    {48,
                                     "ffff"
                                     "56"
                                     "f9"},
                                    {52, "ffffffff"},
                                    {56, "00000000000000000000ffff0a000001"},
                                    {72, "00000000000000000000ffff0a000002"},
                                    {88,
                                     "abcde003"
                                     "20"
                                     "40"
                                     "98"
                                     "88"},
                                    {140, "a1"},
                                    {231, "b2"}}));
  const auto& read = static_cast<const Mad&>(mad).as<CmReq>();
  EXPECT_EQ(read.remote_cm_timeout(), 20);
  EXPECT_EQ(read.transport(), CmTransport::kUc);
  EXPECT_TRUE(read.flow_control());
  EXPECT_EQ(read.local_cm_timeout(), 21);
  EXPECT_EQ(read.retry_count(), 7);
  EXPECT_EQ(read.mtu(), 5);
  EXPECT_EQ(read.rnr_retry_count(), 6);
  EXPECT_EQ(read.max_cm_retries(), 15);
  EXPECT_TRUE(read.srq());
  EXPECT_EQ(read.extended_transport(), 1);
  EXPECT_EQ(read.primary.flow_label(), 0xabcdeu);
  EXPECT_EQ(read.primary.packet_rate(), 3);
  EXPECT_EQ(read.primary.sl(), 9);
  EXPECT_TRUE(read.primary.subnet_local());
  EXPECT_EQ(read.primary.ack_timeout(), 17);
}

TEST(Cm, ReqWithAnAlternatePath) {
  Mad mad;
  auto& req = begin<CmReq>(mad, kTid);
  req.alternate.local_lid = 0x0102;
  req.alternate.remote_lid = 0x0304;
  req.alternate.local_gid = gid(3);
  req.alternate.remote_gid = gid(4);
  req.alternate.set_flow_label(0x12345);
  req.alternate.set_packet_rate(0x3f);
  req.alternate.traffic_class = 7;
  req.alternate.hop_limit = 1;
  req.alternate.set_sl(15);
  req.alternate.set_ack_timeout(31);
  EXPECT_EQ(hex(mad), golden(0x10, {{96, "01020304"},
                                    {100, "00000000000000000000ffff0a000003"},
                                    {116, "00000000000000000000ffff0a000004"},
                                    {132,
                                     "1234503f"
                                     "07"
                                     "01"
                                     "f0"
                                     "f8"}}));
}

TEST(Cm, Mra) {
  Mad mad;
  auto& mra = begin<CmMra>(mad, kTid);
  mra.local_id = 0x01020304;
  mra.remote_id = 0x05060708;
  mra.set_answered(Answered::kRep);
  mra.set_service_timeout(24);
  fill_ends(mra.private_data);
  EXPECT_EQ(hex(mad), golden(0x11, {{0,
                                     "0102030405060708"
                                     "40"
                                     "c0"
                                     "a1"},
                                    {231, "b2"}}));
  EXPECT_EQ(mra.answered(), 1);
  EXPECT_EQ(mra.service_timeout(), 24);
}

TEST(Cm, Rej) {
  Mad mad;
  auto& rej = begin<CmRej>(mad, kTid);
  rej.local_id = 0x01020304;
  rej.remote_id = 0x05060708;
  rej.set_answered(Answered::kOther);
  rej.set_ari_length(72);
  rej.reason = static_cast<uint16_t>(RejectReason::kConsumer);
  fill_ends(rej.ari);
  fill_ends(rej.private_data);
  EXPECT_EQ(hex(mad), golden(0x12, {{0,
                                     "0102030405060708"
                                     "80"
                                     "90"
                                     "001c"
                                     "a1"},
                                    {83,
                                     "b2"
                                     "a1"},
                                    {231, "b2"}}));
  EXPECT_EQ(rej.answered(), 2);
  EXPECT_EQ(rej.ari_length(), 72);
}

TEST(Cm, Rep) {
  Mad mad;
  auto& rep = begin<CmRep>(mad, kTid);
  rep.local_id = 0x01020304;
  rep.remote_id = 0x05060708;
  rep.qkey = 0x11111111;
  rep.qpn = 0x222222;
  rep.eecn = 0x333333;
  rep.starting_psn = 0x444444;
  rep.responder_resources = 0x55;
  rep.initiator_depth = 0x66;
  rep.set_target_ack_delay(15);
  rep.set_failover(1);
  rep.set_flow_control(true);
  rep.set_rnr_retry_count(7);
  rep.set_srq(true);
  rep.ca_guid = 0x0a0b0c0d0e0f1011;
  fill_ends(rep.private_data);
  EXPECT_EQ(hex(mad), golden(0x13, {{0,
                                     "0102030405060708"
                                     "11111111"
                                     "22222200"
                                     "33333300"
                                     "44444400"
                                     "55"
                                     "66"
                                     "7b"
                                     "f0"
                                     "0a0b0c0d0e0f1011"
                                     "a1"},
                                    {231, "b2"}}));
  EXPECT_EQ(rep.target_ack_delay(), 15);
  EXPECT_EQ(rep.failover(), 1);
  EXPECT_TRUE(rep.flow_control());
  EXPECT_EQ(rep.rnr_retry_count(), 7);
  EXPECT_TRUE(rep.srq());
}

TEST(Cm, RtuAndDrep) {
  for (const uint16_t attribute : std::initializer_list<uint16_t>{0x14, 0x16}) {
    Mad mad;
    if (attribute == 0x14) {
      auto& rtu = begin<CmRtu>(mad, kTid);
      rtu.local_id = 0x01020304;
      rtu.remote_id = 0x05060708;
      fill_ends(rtu.private_data);
    } else {
      auto& drep = begin<CmDrep>(mad, kTid);
      drep.local_id = 0x01020304;
      drep.remote_id = 0x05060708;
      fill_ends(drep.private_data);
    }
    EXPECT_EQ(hex(mad), golden(attribute, {{0,
                                            "0102030405060708"
                                            "a1"},
                                           {231, "b2"}}));
  }
}

TEST(Cm, Dreq) {
  Mad mad;
  auto& dreq = begin<CmDreq>(mad, kTid);
  dreq.local_id = 0x01020304;
  dreq.remote_id = 0x05060708;
  dreq.remote_qpn = 0xabcdef;
  fill_ends(dreq.private_data);
  EXPECT_EQ(hex(mad), golden(0x15, {{0,
                                     "0102030405060708"
                                     "abcdef00"
                                     "a1"},
                                    {231, "b2"}}));
}

TEST(Cm, SidrReq) {
  Mad mad;
  auto& req = begin<CmSidrReq>(mad, kTid);
  req.request_id = 0x01020304;
  req.pkey = kDefaultPkey;
  req.service_id = 0x01114321;
  fill_ends(req.private_data);
  EXPECT_EQ(hex(mad), golden(0x17, {{0,
                                     "01020304"
                                     "ffff0000"
                                     "0000000001114321"
                                     "a1"},
                                    {231, "b2"}}));
}

TEST(Cm, SidrRep) {
  Mad mad;
  auto& rep = begin<CmSidrRep>(mad, kTid);
  rep.request_id = 0x01020304;
  rep.status = static_cast<uint8_t>(SidrStatus::kUnsupported);
  rep.info_length = 72;
  rep.qpn = 0x123456;
  rep.service_id = 0x01114321;
  rep.qkey = 0x01234567;
  fill_ends(rep.info);
  fill_ends(rep.private_data);
  EXPECT_EQ(hex(mad), golden(0x18, {{0,
                                     "01020304"
                                     "01"
                                     "48"
                                     "0000"
                                     "12345600"
                                     "0000000001114321"
                                     "01234567"
                                     "a1"},
                                    {95,
                                     "b2"
                                     "a1"},
                                    {231, "b2"}}));
}

TEST(Cm, LapAndApr) {
  Mad mad;
  auto& lap = begin<CmLap>(mad, kTid);
  lap.local_id = 0x01020304;
  lap.remote_id = 0x05060708;
  lap.remote_qpn = 0xabcdef;
  lap.timeout = 0xa0;
  lap.alternate.local_gid = gid(1);
  lap.alternate.set_ack_timeout(1);
  fill_ends(lap.private_data);
  EXPECT_EQ(hex(mad), golden(0x19, {{0, "0102030405060708"},
                                    {12,
                                     "abcdef"
                                     "a0"},
                                    {24, "00000000000000000000ffff0a000001"},
                                    {63,
                                     "08"
                                     "a1"},
                                    {231, "b2"}}));
  auto& apr = begin<CmApr>(mad, kTid);
  apr.local_id = 0x01020304;
  apr.remote_id = 0x05060708;
  apr.info_length = 1;
  apr.status = static_cast<uint8_t>(AprStatus::kUnsupported);
  fill_ends(apr.info);
  fill_ends(apr.private_data);
  EXPECT_EQ(hex(mad), golden(0x1a, {{0,
                                     "0102030405060708"
                                     "01"
                                     "02"
                                     "0000"
                                     "a1"},
                                    {83,
                                     "b2"
                                     "a1"},
                                    {231, "b2"}}));
}

TEST(Cm, AttributeIsToldOnlyOfItsOwnMads) {
  Mad mad;
  begin<CmApr>(mad, kTid);
  EXPECT_EQ(cm_attribute(mad.header), CmAttribute::kApr);
  for (const uint16_t other :
       std::initializer_list<uint16_t>{0x0000, 0x0001, 0x000f, 0x001b, 0x0110, 0xffff}) {
    mad.header.attribute_id = other;
    EXPECT_FALSE(cm_attribute(mad.header)) << other;
  }
  for (uint8_t MadHeader::*field : {&MadHeader::base_version, &MadHeader::management_class,
                                    &MadHeader::class_version, &MadHeader::method}) {
    begin<CmReq>(mad, kTid);
    mad.header.*field = static_cast<uint8_t>(mad.header.*field ^ 0x80);
    EXPECT_FALSE(cm_attribute(mad.header));
  }
}

TEST(Cm, SettersKeepTheirNeighbours) {
  CmReq req{};
  req.set_max_cm_retries(0xff);
  EXPECT_EQ(req.retries_srq_extended, 0xf0);
  req.set_srq(true);
  req.set_max_cm_retries(0);
  EXPECT_EQ(req.retries_srq_extended, 0x08);
  req.primary.set_packet_rate(0xff);
  req.primary.set_flow_label(0xfffff);
  EXPECT_EQ(req.primary.flow_and_rate, 0xfffff03fu);
  req.primary.set_packet_rate(0);
  EXPECT_EQ(req.primary.flow_label(), 0xfffffu);
}

}  // namespace
}  // namespace vrdma::wire
