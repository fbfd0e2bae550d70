#include "core/serve/peers.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>

namespace vrdma::serve {
namespace {

using std::chrono::seconds;

sockaddr_storage address(const std::string& text) {
  sockaddr_storage storage{};
  if (text.find(':') == std::string::npos) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    EXPECT_EQ(::inet_pton(AF_INET, text.c_str(), &four.sin_addr), 1);
    std::memcpy(&storage, &four, sizeof four);
  } else {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), &six.sin6_addr), 1);
    std::memcpy(&storage, &six, sizeof six);
  }
  return storage;
}
Peers::Peer peer(const std::string& text) { return Peers::of(address(text)); }

TEST(Peers, are_hosts) {
  EXPECT_NE(peer("10.0.0.1"), peer("10.0.0.2"));
  EXPECT_EQ(peer("10.0.0.1"), peer("::ffff:10.0.0.1")) << "a socket of both families";
  EXPECT_NE(peer("::ffff:10.0.0.1"), peer("::ffff:10.0.0.2"));
  EXPECT_EQ(peer("2001:db8::1"), peer("2001:db8::ffff:0:2"));
  EXPECT_NE(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
}

TEST(Peers, have_so_many_connections_at_a_time) {
  Peers peers({.open = 2, .begun = 100, .window = seconds(10)});
  const base::TimePoint now{};
  EXPECT_TRUE(peers.enter("a", now));
  EXPECT_TRUE(peers.enter("a", now));
  EXPECT_FALSE(peers.enter("a", now));
  EXPECT_TRUE(peers.enter("b", now)) << "another one is not in the way";
  EXPECT_EQ(peers.open("a"), 2u);
  peers.left("a");
  EXPECT_EQ(peers.open("a"), 1u);
  EXPECT_TRUE(peers.enter("a", now));
  EXPECT_FALSE(peers.enter("a", now + seconds(60))) << "time does not end a connection";
}

TEST(Peers, begin_so_many_in_some_seconds) {
  Peers peers({.open = 100, .begun = 3, .window = seconds(10)});
  const base::TimePoint start{};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(peers.enter("a", start + seconds(i)));
    peers.left("a");
  }
  EXPECT_FALSE(peers.enter("a", start + seconds(9)));
  EXPECT_TRUE(peers.enter("b", start + seconds(9)));
  EXPECT_TRUE(peers.enter("a", start + seconds(10)));
}

TEST(Peers, are_a_bounded_number) {
  Peers peers({.open = 1, .begun = 10, .window = seconds(10)});
  const base::TimePoint start{};
  for (size_t i = 0; i < Peers::kMost; ++i) {
    ASSERT_TRUE(peers.enter(std::to_string(i), start));
    if (i != 0) peers.left(std::to_string(i));
  }
  EXPECT_FALSE(peers.enter("one more", start));
  peers.left("one more");  // is none
  EXPECT_TRUE(peers.enter("1", start)) << "a peer in the table is served";
  EXPECT_TRUE(peers.enter("one more", start + seconds(10))) << "the quiet ones are forgotten";
  EXPECT_FALSE(peers.enter("0", start + seconds(10))) << "whose connection is open is not";
}

}  // namespace
}  // namespace vrdma::serve
