// The wire protocol of datagram sockets over RDMA, by queue pair and by UDP, and their table of
// peers.
#include "client/rsocket/datagram_protocol.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <string>
#include <vector>

namespace vrdma::client {
namespace {

RsAddress address(const char* text, int number = 0, uint32_t scope = 0) {
  const auto port = static_cast<uint16_t>(number);
  if (std::string(text).find(':') == std::string::npos) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    EXPECT_EQ(inet_pton(AF_INET, text, &in.sin_addr), 1);
    return *RsAddress::from(reinterpret_cast<sockaddr*>(&in));
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port);
  in6.sin6_scope_id = scope;
  EXPECT_EQ(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
  return *RsAddress::from(reinterpret_cast<sockaddr*>(&in6));
}

const std::vector<uint8_t> kHeaderBytes4{4, 8, 0x1c, 0x06, 10, 0, 0, 1};
const std::vector<uint8_t> kHeaderBytes6{6, 24, 0x1c, 0x06, 0, 0, 0, 0, 0xfd, 0, 0, 0,
                                         0, 0,  0,    0,    0, 0, 0, 0, 0,    0, 0, 1};
const std::vector<uint8_t> kServiceBytes4{0x55, 0x55, 0x55, 0x55, 4,  0, 16, 0,
                                          0,    0x12, 0x34, 0x56, 10, 0, 0,  1};
const std::vector<uint8_t> kServiceBytes6{0x55, 0x55, 0x55, 0x55, 6, 7, 28, 0, 0, 0x12,
                                          0x34, 0x56, 0xfd, 0,    0, 0, 0,  0, 0, 0,
                                          0,    0,    0,    0,    0, 0, 0,  1};

TEST(RsAddress, OfBothFamilies) {
  const RsAddress four = address("10.0.0.1", 7174);
  EXPECT_TRUE(four.is_ipv4());
  EXPECT_EQ(four, address("::ffff:10.0.0.1", 7174));
  EXPECT_NE(four, address("10.0.0.1", 7175));
  const sockaddr_storage in = four.to(AF_INET), in6 = four.to(AF_INET6);
  EXPECT_EQ(in.ss_family, AF_INET);
  EXPECT_EQ(in6.ss_family, AF_INET6);
  EXPECT_EQ(*RsAddress::from(reinterpret_cast<const sockaddr*>(&in)), four);
  EXPECT_EQ(*RsAddress::from(reinterpret_cast<const sockaddr*>(&in6)), four);
  // The interface matters if addresses are not unique.
  EXPECT_NE(address("fe80::1", 1, 2), address("fe80::1", 1, 3));
  EXPECT_EQ(address("fd00::1", 1, 2), address("fd00::1", 1, 3));
  sockaddr other{};
  other.sa_family = AF_UNIX;
  EXPECT_FALSE(RsAddress::from(&other));
}

TEST(RsAddress, Kinds) {
  for (const char* any : {"0.0.0.0", "::", "::ffff:0.0.0.0"}) EXPECT_TRUE(address(any).is_any());
  for (const char* here : {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(address(here).is_loopback());
  for (const char* many : {"224.0.0.1", "239.255.255.255", "ff02::1"})
    EXPECT_TRUE(address(many).is_multicast());
  for (const char* one : {"10.0.0.1", "fd00::1", "223.255.255.255", "240.0.0.1", "128.0.0.1"}) {
    EXPECT_FALSE(address(one).is_any());
    EXPECT_FALSE(address(one).is_loopback());
    EXPECT_FALSE(address(one).is_multicast());
  }
}

TEST(RsHeader, GoldenBytes) {
  for (const auto& [text, golden] :
       {std::pair{"10.0.0.1", kHeaderBytes4}, std::pair{"fd00::1", kHeaderBytes6}}) {
    const RsAddress source = address(text, 7174);
    std::vector<uint8_t> bytes(RsHeader::kLongest);
    bytes.resize(RsHeader::encode(source, bytes.data()));
    EXPECT_EQ(bytes, golden);
    EXPECT_EQ(bytes.size(), RsHeader::size_for(source));
    bytes.push_back('x');  // a message
    const auto header = RsHeader::decode(bytes);
    ASSERT_TRUE(header);
    EXPECT_EQ(header->source, source);
    EXPECT_EQ(header->size, golden.size());
  }
}

TEST(RsHeader, RefusesWhatNoPeerSends) {
  for (const auto& golden : {kHeaderBytes4, kHeaderBytes6}) {
    EXPECT_TRUE(RsHeader::decode(golden));
    for (size_t length = 0; length < golden.size(); ++length)
      EXPECT_FALSE(RsHeader::decode(std::span(golden).first(length))) << length;
    for (const size_t at : {0, 1}) {  // the version, the length
      auto wrong = golden;
      for (int value = 0; value < 256; ++value) {
        wrong[at] = static_cast<uint8_t>(value);
        EXPECT_EQ(RsHeader::decode(wrong).has_value(), wrong == golden) << at << " " << value;
      }
    }
    auto nowhere = golden;
    nowhere[2] = nowhere[3] = 0;
    EXPECT_FALSE(RsHeader::decode(nowhere));
  }
}

TEST(RsService, GoldenBytes) {
  using Kind = RsService::Kind;
  for (const auto& [text, kind, golden] : {std::tuple{"10.0.0.1", Kind::kMessage, kServiceBytes4},
                                           std::tuple{"fd00::1", Kind::kAnswer, kServiceBytes6}}) {
    std::vector<uint8_t> bytes(RsService::kLongest);
    bytes.resize(RsService::encode(kind, 0x123456, address(text, 99), bytes.data()));
    EXPECT_EQ(bytes, golden);
    bytes.push_back('x');
    const auto service = RsService::decode(bytes);
    ASSERT_TRUE(service);
    EXPECT_EQ(service->kind, kind);
    EXPECT_EQ(service->qpn, 0x123456U);
    EXPECT_EQ(service->source, address(text));
    EXPECT_EQ(service->size, golden.size());
  }
}

TEST(RsService, RefusesWhatNoPeerSends) {
  for (const auto& golden : {kServiceBytes4, kServiceBytes6}) {
    EXPECT_TRUE(RsService::decode(golden));
    for (size_t length = 0; length < golden.size(); ++length)
      EXPECT_FALSE(RsService::decode(std::span(golden).first(length))) << length;
    for (const size_t at : {0, 3, 4, 6}) {  // the tag, the version, the length
      auto wrong = golden;
      for (int value = 0; value < 256; ++value) {
        wrong[at] = static_cast<uint8_t>(value);
        EXPECT_EQ(RsService::decode(wrong).has_value(), wrong == golden) << at << " " << value;
      }
    }
    auto kind = golden;
    for (int value = 0; value < 256; ++value) {
      kind[5] = static_cast<uint8_t>(value);
      EXPECT_EQ(RsService::decode(kind).has_value(), value == 0 || value == 7) << value;
    }
    for (const uint32_t special : {0U, 1U, 0xffffffU}) {
      auto qpn = golden;
      for (size_t i = 0; i < 3; ++i) qpn[9 + i] = static_cast<uint8_t>(special >> (16 - 8 * i));
      EXPECT_FALSE(RsService::decode(qpn)) << special;
    }
    auto reserved = golden;  // bits that peers may use in the future
    reserved[7] = reserved[8] = 0xff;
    ASSERT_TRUE(RsService::decode(reserved));
    EXPECT_EQ(RsService::decode(reserved)->qpn, 0x123456U);
  }
}

TEST(RsPeers, ForgetsWhoWasNotUsedForLongest) {
  RsPeers<int> peers(3);
  for (const int port : {1, 2, 3}) peers.add(address("10.0.0.1", port), port);
  ASSERT_NE(peers.use(address("10.0.0.1", 1)), nullptr);
  EXPECT_EQ(*peers.add(address("10.0.0.1", 4), 4), 4);
  EXPECT_EQ(peers.use(address("10.0.0.1", 2)), nullptr);
  EXPECT_EQ(*peers.use(address("10.0.0.1", 1)), 1);
  EXPECT_EQ(*peers.use(address("10.0.0.1", 3)), 3);
  EXPECT_EQ(peers.take(address("10.0.0.1", 3)), 3);
  EXPECT_EQ(peers.take(address("10.0.0.1", 3)), std::nullopt);
  peers.add(address("10.0.0.1", 5), 5);  // the table has room
  for (const int known : {1, 4, 5})
    EXPECT_NE(peers.use(address("10.0.0.1", known)), nullptr) << known;
  peers.clear();
  EXPECT_EQ(peers.use(address("10.0.0.1", 1)), nullptr);
  for (int i = 0; i < 100'000; ++i) peers.add(address("10.0.0.1", i), i);
  int left = 0;
  for (int i = 0; i < 100'000; ++i) left += peers.take(address("10.0.0.1", i)).has_value() ? 1 : 0;
  EXPECT_EQ(left, 3);
}

}  // namespace
}  // namespace vrdma::client
