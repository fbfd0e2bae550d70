#include "core/verbs/gid.h"

#include <gtest/gtest.h>

#include <unordered_set>

namespace vrdma::verbs {
namespace {

Gid gid(const char* text) {
  Gid made;
  EXPECT_EQ(::inet_pton(AF_INET6, text, made.bytes.data()), 1);
  return made;
}

TEST(Gid, TellsItsKind) {
  EXPECT_TRUE(gid("::ffff:10.0.0.1").is_ipv4_mapped());
  EXPECT_FALSE(gid("::10.0.0.1").is_ipv4_mapped());
  EXPECT_FALSE(gid("fe80::ffff:1").is_ipv4_mapped());
  EXPECT_TRUE(gid("ff0e::1").is_multicast());
  EXPECT_FALSE(gid("fe80::1").is_multicast());
}

TEST(Gid, KnowsTheWildcards) {
  EXPECT_TRUE(gid("::").is_unspecified());
  EXPECT_TRUE(gid("::ffff:0.0.0.0").is_unspecified());
  EXPECT_FALSE(gid("::1").is_unspecified());
  EXPECT_FALSE(gid("::ffff:0.0.0.1").is_unspecified());
}

TEST(Gid, IsWrittenAsIpv6) {
  for (const char* text : {"::ffff:10.0.0.1", "fe80::42:acff:fe11:2", "2001:db8::1", "::"})
    EXPECT_EQ(gid(text).text(), text);
  EXPECT_EQ(gid("1111:2222:3333:4444:5555:6666:7777:8888").text(),
            "1111:2222:3333:4444:5555:6666:7777:8888");
}

TEST(Gid, ComparesAndHashesAllBytes) {
  EXPECT_EQ(Gid{}, gid("::"));
  EXPECT_LT(gid("::1"), gid("::2"));
  EXPECT_LT(gid("::ffff"), gid("1::"));
  std::unordered_set<Gid> set{gid("::1"), gid("1::"), gid("::1")};
  EXPECT_EQ(set.size(), 2u);
  EXPECT_NE(std::hash<Gid>()(gid("::1")), std::hash<Gid>()(gid("1::")));
}

}  // namespace
}  // namespace vrdma::verbs
