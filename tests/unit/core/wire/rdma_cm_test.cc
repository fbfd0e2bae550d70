#include "core/wire/rdma_cm.h"

#include <gtest/gtest.h>

#include <string>

namespace vrdma::wire {
namespace {

verbs::Gid gid(const char* text) {
  verbs::Gid value;
  EXPECT_EQ(::inet_pton(AF_INET6, text, value.bytes.data()), 1);
  return value;
}

std::string hex(const IpHeader& header) {
  std::string text;
  for (size_t i = 0; i < sizeof header; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", reinterpret_cast<const uint8_t*>(&header)[i]);
    text += digits;
  }
  return text;
}

TEST(RdmaCm, Ipv4StandsInTheLastFourBytes) {
  const IpEnds ends{gid("::ffff:10.0.0.1"), gid("::ffff:10.0.0.2"), 0x1234};
  const IpHeader header = encode(ends);
  EXPECT_EQ(hex(header),
            "00401234"
            "0000000000000000000000000a000001"
            "0000000000000000000000000a000002");
  EXPECT_EQ(decode(header), ends);
}

TEST(RdmaCm, Ipv6) {
  const IpEnds ends{gid("fd00::1"), gid("fe80::2"), 0xffff};
  const IpHeader header = encode(ends);
  EXPECT_EQ(hex(header),
            "0060ffff"
            "fd000000000000000000000000000001"
            "fe800000000000000000000000000002");
  EXPECT_EQ(decode(header), ends);
}

TEST(RdmaCm, OtherVersionsAreRefused) {
  IpHeader header = encode({gid("fd00::1"), gid("fe80::2"), 1});
  header.version = 1;
  EXPECT_FALSE(decode(header));
  header.version = 0;
  for (const uint8_t ip : std::initializer_list<uint8_t>{0x00, 0x50, 0x70, 0x06, 0xf0}) {
    header.ip_version = ip;
    EXPECT_FALSE(decode(header)) << int{ip};
  }
}

TEST(RdmaCm, ServiceIdsAreAPortSpaceAndAPort) {
  EXPECT_EQ(service_id(PortSpace::kTcp, 0x1234), 0x01061234u);
  EXPECT_EQ(service_id(PortSpace::kUdp, 1), 0x01110001u);
  EXPECT_EQ(port_space(0x01061234), PortSpace::kTcp);
  EXPECT_EQ(port(0x01061234), 0x1234);
  EXPECT_EQ(port_space(0x01061234ull | 1ull << 40), std::nullopt);
  EXPECT_EQ(port_space(0x01071234), std::nullopt);
}

}  // namespace
}  // namespace vrdma::wire
