#include "netns/routed_netdevs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace vrdma::netns {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kTitles =
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
constexpr const char* kOwnPrefix = "eth0\t0000580A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
constexpr const char* kLinkLocal =
    "fe800000000000000000000000000000 40 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 00000100 00000002 00000000 00000001     eth1\n"
    "ff000000000000000000000000000000 08 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 00000100 00000002 00000000 00000001     eth1\n";
constexpr const char* kLoopback =
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";

std::string default_v6(const std::string& netdev, const std::string& metric) {
  return "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
         "fd000000000000000000000000000001 " +
         metric + " 00000001 00000000 00000003     " + netdev + "\n";
}

TEST(RoutedNetdevs, a_namespace_without_addresses_has_none) {
  const RoutedNetdevs none = parse_routes(kTitles, std::string(kLinkLocal) + kLoopback);
  EXPECT_THAT(none.all, IsEmpty());
  EXPECT_EQ(none.choose("").error().message(), "its namespace has no netdev with an address yet");
  EXPECT_EQ(none.choose("").error().code(), ENODEV);
  EXPECT_EQ(none.choose("eth1").error().message(),
            "its netdev 'eth1' does not exist or has no address yet");
  EXPECT_EQ(none.choose("lo").value_or(""), "lo") << "it has addresses without such routes";
}

TEST(RoutedNetdevs, the_default_route_decides) {
  const RoutedNetdevs both = parse_routes(
      std::string(kTitles) + "slow\t00000000\t0100580A\t0003\t0\t0\t200\t00000000\t0\t0\t0\n" +
          "fast\t00000000\t0100580A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n" + kOwnPrefix,
      default_v6("sixth", "00000001"));
  EXPECT_EQ(both.of_default, "fast") << "the lowest metric, IPv4 first";
  EXPECT_EQ(both.choose("").value_or(""), "fast");
  EXPECT_EQ(both.choose("eth0").value_or(""), "eth0");
  const RoutedNetdevs sixth =
      parse_routes(std::string(kTitles) + kOwnPrefix,
                   default_v6("other", "00000400") + default_v6("sixth", "00000010"));
  EXPECT_EQ(sixth.choose("").value_or(""), "sixth");
}

TEST(RoutedNetdevs, without_a_default_route_only_one_will_do) {
  const RoutedNetdevs one = parse_routes(std::string(kTitles) + kOwnPrefix, kLinkLocal);
  EXPECT_EQ(one.choose("").value_or(""), "eth0");
  const RoutedNetdevs two = parse_routes(
      std::string(kTitles) + kOwnPrefix + "eth7\t0000590A\t00000000\t0001\t0\t0\t0\t0000FFFF\n",
      "");
  EXPECT_THAT(two.all, ElementsAre("eth0", "eth7"));
  EXPECT_EQ(two.choose("").error().message(),
            "its namespace has several netdevs (eth0, eth7) and no default route: name one in its "
            "class or annotation");
  EXPECT_EQ(two.choose("").error().code(), ENOTUNIQ);
}

TEST(RoutedNetdevs, routes_that_were_not_read_are_missed_only_where_they_matter) {
  RoutedNetdevs one = parse_routes(std::string(kTitles) + kOwnPrefix, "");
  one.cut = true;
  EXPECT_EQ(one.choose("eth0").value_or(""), "eth0");
  EXPECT_EQ(
      one.choose("").error().message(),
      "its namespace has too many routes: vrdmad reads 256 KiB of them, about 2,000, and finds "
      "no default route there: remove routes");
  EXPECT_EQ(one.choose("").error().code(), E2BIG);
  EXPECT_THAT(one.choose("eth1").error().message(),
              testing::HasSubstr("finds no route of netdev 'eth1' there"));
  one.of_default = "eth0";
  EXPECT_EQ(one.choose("").value_or(""), "eth0");
}

TEST(RoutedNetdevs, a_sentence_names_some_of_many) {
  RoutedNetdevs many;
  for (char c = 'a'; c <= 'z'; ++c) many.all.insert(std::string(1, c));
  EXPECT_THAT(many.choose("").error().message(),
              testing::HasSubstr("(a, b, c, d, e, f, g, h, ...)"));
}

TEST(RoutedNetdevs, text_that_is_none_is_ignored) {
  EXPECT_THAT(parse_routes("", "").all, IsEmpty());
  EXPECT_THAT(parse_routes("titles\neth0\t00000000\n\n", "fd\n").all, IsEmpty());
}

TEST(RoutedNetdevs, reads_the_namespace_of_a_process) {
  EXPECT_TRUE(routed_netdevs(::getpid()));
  const auto none = routed_netdevs((1 << 22) + 1);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), ESRCH);
}

}  // namespace
}  // namespace vrdma::netns
