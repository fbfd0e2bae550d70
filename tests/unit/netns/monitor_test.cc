// A namespace whose addresses change all the time.
#include "netns/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>  // before <linux/if.h>, which is made for this order

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/unit/vrdmad/enter_own_netns.h"

namespace vrdma::netns {
namespace {

constexpr auto kRead = std::chrono::milliseconds(4);  // what reading a link takes

Address address(uint8_t last) { return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, last}; }

// Adds and deletes 10.9.0.1 a thousand times, and adds 10.9.0.2.
void churn() {
  const std::unique_ptr<FILE, int (*)(FILE*)> ip(::popen("ip -batch -", "w"), ::pclose);
  ASSERT_NE(ip, nullptr);
  for (int i = 0; i < 1000; ++i)
    std::fputs("address add 10.9.0.1/32 dev lo\naddress del 10.9.0.1/32 dev lo\n", ip.get());
  std::fputs("address add 10.9.0.2/32 dev lo\n", ip.get());
}

TEST(Monitor, GivesANamespaceATenthOfTheTimeAtMost) {
  if (!vrdmad::enter_own_netns()) GTEST_SKIP() << "no network namespace";
  if (std::system("ip link set lo up") != 0) GTEST_SKIP() << "no ip(8)";
  const auto loop = base::EventLoop::create().value();
  auto queries = RouteQueries::open().value();
  int reads = 0;
  const auto monitor =
      Monitor::create(loop.get(), [&](int nsid, const std::string& name, uint32_t ifindex) {
        ++reads;
        for (const auto until = base::Clock::steady().now() + kRead;
             base::Clock::steady().now() < until;) {
        }
        return queries.link(nsid, name, ifindex);
      }).value();
  std::vector<Address> told;
  const auto here = current().value();
  auto watch =
      monitor->watch_link(here, "lo",
                          {[&](const Link& link) {
                             told = link.addresses;
                             if (std::find(told.begin(), told.end(), address(2)) != told.end())
                               loop->stop();
                           },
                           [](Gone) { FAIL(); }});
  ASSERT_TRUE(watch) << watch.error().message();
  int all_changes = 0;  // of the namespace, which is told of them also while its link changes
  const auto watch_netns = monitor->watch_netns(here, [&all_changes] { ++all_changes; });
  ASSERT_TRUE(watch_netns) << watch_netns.error().message();
  reads = 0;
  const auto begun = base::Clock::steady().now();
  std::thread changes(churn);
  const auto late = loop->after(std::chrono::seconds(30), [&] { loop->stop(); });
  loop->run();
  const auto took = base::Clock::steady().now() - begun;
  changes.join();
  EXPECT_THAT(told, testing::Contains(address(2)));
  EXPECT_GE(reads, 1);
  EXPECT_GE(all_changes, reads - 1);
  EXPECT_LE((reads - 1) * 10 * kRead, took);
}

}  // namespace
}  // namespace vrdma::netns
