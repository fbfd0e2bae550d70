#include "gid/prefix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrdma::gid {
namespace {

bool is_in(const char* address, const char* prefix) {
  const auto parsed = Prefix::parse(prefix);
  EXPECT_TRUE(parsed) << prefix;
  const auto alone = Prefix::parse(address);
  EXPECT_TRUE(alone && alone->bits == 128) << address;
  return parsed->contains(alone->address);
}

TEST(Prefix, holds_its_addresses_and_no_others) {
  EXPECT_TRUE(is_in("10.0.0.0", "10.0.0.0/24"));
  EXPECT_TRUE(is_in("10.0.0.255", "10.0.0.0/24"));
  EXPECT_FALSE(is_in("10.0.1.0", "10.0.0.0/24"));
  EXPECT_TRUE(is_in("10.0.0.6", "10.0.0.4/30"));
  EXPECT_FALSE(is_in("10.0.0.8", "10.0.0.4/30"));
  EXPECT_TRUE(is_in("10.0.0.1", "10.0.0.1"));
  EXPECT_FALSE(is_in("10.0.0.2", "10.0.0.1/32"));
  EXPECT_TRUE(is_in("fd00::ffff:ffff:ffff:ffff", "fd00::/64"));
  EXPECT_FALSE(is_in("fd00:0:0:1::", "fd00::/64"));
  EXPECT_TRUE(is_in("fd00:8000::", "fd00:8000::/17"));
  EXPECT_FALSE(is_in("fd00:4000::", "fd00:8000::/17"));
}

TEST(Prefix, keeps_the_families_apart) {
  EXPECT_TRUE(is_in("192.0.2.1", "0.0.0.0/0"));
  EXPECT_FALSE(is_in("fd00::1", "0.0.0.0/0"));
  EXPECT_TRUE(is_in("fd00::1", "::/0"));
  EXPECT_FALSE(is_in("192.0.2.1", "::/0"));
}

TEST(Prefix, has_one_text) {
  for (const auto& [given, wanted] : {std::pair{"10.0.0.7/24", "10.0.0.0/24"},
                                      {"10.0.0.7", "10.0.0.7/32"},
                                      {"FD00:0::1/64", "fd00::/64"},
                                      {"::/0", "::/0"},
                                      {"0.0.0.0/0", "0.0.0.0/0"}})
    EXPECT_EQ(Prefix::parse(given)->text(), wanted);
}

TEST(Prefix, says_what_is_none) {
  for (const char* text : {"", "/", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "10.0.0.0/", "x/8",
                           "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/8 ", "10.0.0.0/8/8", " ::/0"}) {
    const auto parsed = Prefix::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), EINVAL);
    EXPECT_THAT(parsed.error().message(), testing::HasSubstr("is not an address prefix"));
  }
}

TEST(Prefixes, are_many) {
  const auto some = parse_prefixes({"10.0.0.0/8", "fd00::1"});
  ASSERT_TRUE(some);
  const auto has = [&](const char* text) { return contains(*some, Prefix::parse(text)->address); };
  EXPECT_TRUE(has("10.200.0.1") && has("fd00::1"));
  EXPECT_FALSE(has("11.0.0.1") || has("fd00::2") || has("::a00:1"));
  EXPECT_FALSE(contains({}, Prefix::parse("10.0.0.1")->address));
  EXPECT_EQ(parse_prefixes({"10.0.0.0/8", "x"}).error().code(), EINVAL);
}

TEST(Limited, leaves_what_is_in_a_prefix_and_the_link_local_of_the_first_mac) {
  const std::array<uint8_t, 6> mac{2, 0, 0, 0, 0, 1}, another{2, 0, 0, 0, 0, 2};
  const auto of = [](const char* text) { return Prefix::parse(text)->address; };
  Interface interface;
  interface.mac = mac;
  interface.addresses = {of("10.0.0.1").bytes, of("10.0.1.1").bytes, of("fd00::1").bytes,
                         link_local(mac).bytes, link_local(another).bytes};
  const std::vector<Prefix> prefixes{*Prefix::parse("10.0.0.0/24")};
  EXPECT_EQ(derive_gids(limited(interface, prefixes, link_local(mac))).gids,
            (std::vector{link_local(mac), of("10.0.0.1")}));
  interface.mac = another;  // perhaps that of another vdevice
  EXPECT_EQ(derive_gids(limited(interface, prefixes, link_local(mac))).gids,
            (std::vector{of("10.0.0.1"), link_local(mac)}))
      << "as an address it is still permitted";
  interface.addresses.clear();
  EXPECT_TRUE(derive_gids(limited(interface, prefixes, link_local(mac))).gids.empty());
}

}  // namespace
}  // namespace vrdma::gid
