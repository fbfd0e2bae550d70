#include "cli/criu/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrdma::cli::criu {
namespace {

using testing::HasSubstr;

Image sample() {
  Image image;
  image.token = "0123456789abcdef0123456789abcdef";
  image.sessions = {{3, "/run/vrdma/netns/7/0.sock", 5, 6, 7}};
  image.connections = {"/run/vrdma/netns/7/rdma_cm"};
  image.carried = {"{\"image\":\"00\"}"};
  image.memory = {8, 9};
  image.ends = {{3, 0, {10}, {11}, 0, 04002, 32'768, {std::string("\0\xff", 2), "unread"}},
                {3, 2, {12, 13}, {14}, 04002, 04002, 4096, {}}};
  image.channels = {{{16}, 02, {"an event"}}, {{17, 18}, 04002, {}}};
  image.epolls = {{15, 12, 0x2001, UINT64_MAX}};
  image.had_peers = true;
  image.peers = {{4,
                  UINT64_MAX,
                  {{OfPeer::View::What::kBells, 0x7000'0000'0000, 0x20'0000, 0, 3},
                   {OfPeer::View::What::kMemory, 0x6000'0000'0000, 0x4000'0000, 0x8000'0000, 3}},
                  {19},
                  {{2, {20, 21}}, {3, {22}}}}};
  return image;
}

// The sample with one text replaced by another.
std::string changed(const std::string& from, const std::string& to) {
  std::string bytes = sample().encode();
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return bytes.replace(at, from.size(), to);
}

TEST(CriuImage, IsDecodedAsItWasEncoded) {
  const auto again = Image::decode(sample().encode());
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(*again, sample());
}

TEST(CriuImage, RefusesWhatNoPluginWrites) {
  const std::pair<std::string, std::string> changes[] = {
      {"\"version\": 3", "\"version\": 1"},
      {"\"what\": 1", "\"what\": 3"},
      {"\"length\": 2097152", "\"length\": 2097153"},
      {"\"length\": 2097152", "\"length\": 0"},
      {"\"protection\": 3", "\"protection\": 4"},
      {"\"offset\": 0", "\"offset\": -4096"},
      {"\"channel\": 3", "\"channel\": 2"},
      {"\"had_peers\": true", "\"had_peers\": 1"},
      {"0123456789abcdef0", "x"},
      {"0123456789abcdef0", "XYZ3456789abcdef0"},
      {"\"queues\": 5", "\"queues\": -1"},
      {"\"queues\": 5", "\"queues\": 4294967301"},
      {"\"queues\": 5", "\"queues\": \"5\""},
      {"\"number\": 3", "\"number\": 4294967296"},
      {"00ff", "00f"},
      {"00ff", "00fg"},
      {"\"token\"", "\"taken\""},
      {"\"ends\": [", "\"ends\": 7, \"was\": ["},
      {"\"channels\"", "\"canals\""},
      {"\"connections\"", "\"relations\""},
      {"\"carried\": [", "\"carried\": [\"\", "},
      {"\"carried\": [", "\"carried\": 7, \"was\": ["},
      {"\"flags\": 2", "\"flags\": -2"},
      {"\"numbers\": [", "\"numbers\": [], \"was\": ["},
      {"/run/vrdma/netns/7/rdma_cm\"", "\", 7"},
  };
  for (const auto& [from, to] : changes)
    EXPECT_FALSE(Image::decode(changed(from, to))) << from << " -> " << to;
  EXPECT_FALSE(Image::decode(""));
  EXPECT_FALSE(Image::decode("[]"));
  EXPECT_FALSE(Image::decode(std::string(100'000, '[')));
  const std::string whole = sample().encode();
  for (size_t size = 0; size < whole.size(); size += 7)
    EXPECT_FALSE(Image::decode(whole.substr(0, size))) << size;
}

// A listener at all addresses has no vdevice open.
TEST(CriuImage, IsOfAProgramThatUsesRdmaCmAlone) {
  Image image;
  image.token = sample().token;
  image.connections = sample().connections;
  image.channels = sample().channels;
  const auto again = Image::decode(image.encode());
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(*again, image);
  image.connections = {};
  EXPECT_THAT(Image::decode(image.encode()).error().message(),
              HasSubstr("neither sessions nor connections"));
}

// As earlier versions wrote them: they have nothing of rdma_cm that goes elsewhere.
TEST(CriuImage, MayLackTheStateOfConnections) {
  const auto old = Image::decode(changed("\"carried\"", "\"unknown\""));
  ASSERT_TRUE(old) << old.error().message();
  EXPECT_TRUE(old->carried.empty());
  EXPECT_EQ(old->connections, sample().connections);
}

TEST(CriuImage, SaysWhatIsWrong) {
  EXPECT_THAT(Image::decode(changed("\"version\": 3", "\"version\": 9")).error().message(),
              HasSubstr("another version"));
  EXPECT_THAT(Image::decode(std::string(Image::kMostBytes + 1, ' ')).error().message(),
              HasSubstr("too large"));
}

}  // namespace
}  // namespace vrdma::cli::criu
