// The monitor with real namespaces (netns_monitor_fixture.h). Needs root.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "core/base/netns_cookie.h"
#include "netns/monitor.h"
#include "tests/integration/netns_monitor_fixture.h"

namespace vrdma::netns {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST_F(NetnsMonitor, BeginsWithTheLinkAsItIs) {
  add_pair();
  must(in("a") + "addr add 10.0.0.1/24 dev eth0");
  must(in("a") + "addr add fd00::1/64 dev eth0");
  must(in("a") + "link add other type veth peer name other1");
  must(in("a") + "addr add 10.9.9.9/24 dev other");
  Log log;
  const auto eth0 = watch(ns("a"), "eth0", &log);
  ASSERT_TRUE(eth0);
  const auto link = eth0->link();
  EXPECT_EQ(link.name, "eth0");
  EXPECT_EQ(link.netns_cookie, resolve(ns("a"))->cookie);
  EXPECT_NE(link.netns_cookie, current()->cookie);
  EXPECT_EQ(link.mac, (Mac{2, 0, 0, 0, 0, 0x0a}));
  EXPECT_EQ(link.mtu, 1400u);
  EXPECT_FALSE(link.loopback);
  EXPECT_EQ(link.addresses.front(), v4(10, 0, 0, 1));
  const Address fd00_1{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  EXPECT_THAT(link.addresses, Contains(fd00_1));
  EXPECT_THAT(link.addresses, Not(Contains(v4(10, 9, 9, 9))));

  const auto missing = try_watch(ns("a"), "eth7", &log);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ENODEV);
  EXPECT_THAT(missing.error().message(), HasSubstr("'eth7'"));

  const auto same = on_loop([&] {
    return monitor->watch_link(*resolve(ns("a")), link.ifindex, log.observer()).value().link();
  });
  EXPECT_EQ(same, link);
  const auto none =
      on_loop([&] { return monitor->watch_link(*resolve(ns("a")), 4242, log.observer()).error(); });
  EXPECT_EQ(none.code(), ENODEV);
  EXPECT_THAT(none.message(), HasSubstr("4242"));
}

TEST_F(NetnsMonitor, FollowsAddressesMacMtuNameAndState) {
  add_pair();
  Log log;
  const auto eth0 = watch(ns("a"), "eth0", &log);
  ASSERT_TRUE(eth0);

  must(in("a") + "addr add 10.0.0.1/24 dev eth0");
  EXPECT_TRUE(log.sees([](const Link& l) {
    return std::count(l.addresses.begin(), l.addresses.end(), v4(10, 0, 0, 1)) == 1;
  }));
  must(in("a") + "addr add fd00::7/64 dev eth0");
  const Address fd00_7{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7};
  EXPECT_TRUE(log.sees([&](const Link& l) {
    return std::count(l.addresses.begin(), l.addresses.end(), fd00_7) == 1;
  }));
  must(in("a") + "addr del 10.0.0.1/24 dev eth0");
  EXPECT_TRUE(log.sees([](const Link& l) {
    return std::count(l.addresses.begin(), l.addresses.end(), v4(10, 0, 0, 1)) == 0;
  }));
  must(in("a") + "link set eth0 address 02:00:00:00:00:0c");
  EXPECT_TRUE(log.sees([](const Link& l) { return l.mac == Mac{2, 0, 0, 0, 0, 0x0c}; }));
  must(in("a") + "link set eth0 mtu 4200");
  EXPECT_TRUE(log.sees([](const Link& l) { return l.mtu == 4200; }));

  EXPECT_TRUE(log.sees([](const Link& l) { return l.up; }));
  must(in("b") + "link set eth0 down");  // no carrier
  EXPECT_TRUE(log.sees([](const Link& l) { return !l.up; }));
  must(in("b") + "link set eth0 up");
  EXPECT_TRUE(log.sees([](const Link& l) { return l.up; }));
  must(in("a") + "link set eth0 down");
  EXPECT_TRUE(log.sees([](const Link& l) { return !l.up; }));

  must(in("a") + "link set eth0 name rdma0");
  EXPECT_TRUE(log.sees([](const Link& l) { return l.name == "rdma0"; }));
  must(in("a") + "link set rdma0 up");
  EXPECT_TRUE(log.sees([](const Link& l) { return l.up && l.name == "rdma0"; }));
  EXPECT_EQ(eth0->link().name, "rdma0");
  EXPECT_EQ(log.ends(), 0u);
}

TEST_F(NetnsMonitor, SeesAnAddressBeforeItsDuplicateDetectionEnds) {
  add_pair();
  Log log;
  const auto eth0 = watch(ns("a"), "eth0", &log);
  must(inside("a") + "sh -c 'echo 200 > /proc/sys/net/ipv6/conf/eth0/dad_transmits'");
  must(in("a") + "addr add fd00::9/64 dev eth0");
  const Address fd00_9{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9};
  EXPECT_TRUE(log.sees([&](const Link& l) {
    return std::count(l.addresses.begin(), l.addresses.end(), fd00_9) == 1;
  }));
  EXPECT_EQ(run(in("a") + "-6 addr show dev eth0 tentative | grep -q fd00::9"), 0);
  EXPECT_THAT(eth0->link().tentative, Contains(fd00_9));
  must(inside("a") + "sh -c 'echo 1 > /proc/sys/net/ipv6/conf/eth0/dad_transmits'");
  must(inside("a") + "sh -c 'echo 100 > /proc/sys/net/ipv6/neigh/eth0/retrans_time_ms'");
  must(in("a") + "addr add fd00::a/64 dev eth0");
  Address fd00_a = fd00_9;
  fd00_a.back() = 0xa;
  EXPECT_TRUE(log.sees([&](const Link& l) {
    return std::count(l.addresses.begin(), l.addresses.end(), fd00_a) == 1 &&
           std::count(l.tentative.begin(), l.tentative.end(), fd00_a) == 0;
  })) << "the detection has ended";
  EXPECT_THAT(eth0->link().tentative, Contains(fd00_9));
}

TEST_F(NetnsMonitor, KeepsNamespacesApart) {
  add_pair();  // eth0 has about the same index in both
  add("c");
  for (const auto* name : {"a", "b", "c"})
    must(in(name) + "link add dev same index 77 type veth peer name same1");
  Log of_a, of_b;
  const auto in_a = watch(ns("a"), "same", &of_a);
  const auto in_b = watch(ns("b"), "same", &of_b);
  must(in("c") + "addr add 10.0.0.3/24 dev same");
  must(in("b") + "addr add 10.0.0.2/24 dev same");
  must(in("c") + "link del same");
  EXPECT_TRUE(of_b.sees([](const Link& l) { return l.addresses.size() == 1; }));
  must(in("b") + "link del same");
  EXPECT_EQ(of_b.end(), Gone::kDeleted);
  EXPECT_EQ(of_a.changes(), 0u);
  EXPECT_EQ(of_a.ends(), 0u);
}

TEST_F(NetnsMonitor, TellsThatANetdevIsDeleted) {
  add_pair();
  Log log;
  const auto eth0 = watch(ns("a"), "eth0", &log);
  must(in("b") + "link del eth0");  // which also deletes its peer
  EXPECT_EQ(log.end(), Gone::kDeleted);
  must(in("a") + "link add eth0 type veth peer name eth1");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(log.ends(), 1u);
  EXPECT_EQ(eth0->link().mac, (Mac{2, 0, 0, 0, 0, 0x0a})) << "the last that was known";
}

TEST_F(NetnsMonitor, TellsThatANetdevMovedAway) {
  add_pair();
  Log log;
  const auto eth0 = watch(ns("a"), "eth0", &log);
  must(in("a") + "link set eth0 name moved0");
  must(in("a") + "link set moved0 netns " + ns("b"));
  EXPECT_EQ(log.end(), Gone::kMoved);
}

TEST_F(NetnsMonitor, HoldsNoNamespaceAndTellsItsEnd) {
  add_pair();
  Log log;
  const auto eth0 = watch(ns("a"), "eth0", &log);
  // The loop does not run, so the monitor can do nothing to free the namespace.
  std::promise<void> go;
  loop->post([wait = go.get_future().share()] { wait.wait(); });
  must("ip netns del " + ns("a"));
  EXPECT_TRUE(wait_until([&] { return run(in("b") + "link show eth0 >/dev/null 2>&1") != 0; }))
      << "the peer of the veth is still there, so the namespace lives";
  EXPECT_EQ(log.ends(), 0u);
  go.set_value();
  EXPECT_EQ(log.end(), Gone::kNetns);
  EXPECT_EQ(log.ends(), 1u);
}

TEST_F(NetnsMonitor, IsNotConfusedByAnNsidThatIsUsedAgain) {
  for (int i = 0; i < 5; ++i) {
    const std::string name = "r" + std::to_string(i), next = name + "n";
    add(name);
    must(in(name) + "link add dev same index 77 type veth peer name same1");
    Log old_log, new_log;
    const auto old_watch = watch(ns(name), "same", &old_log);
    std::promise<void> go;
    loop->post([wait = go.get_future().share()] { wait.wait(); });
    const std::string nsid = nsid_of(name);
    remove(name);
    add(next);
    must(in(next) + "link add dev same index 77 type veth peer name same1");
    go.set_value();
    const auto new_watch = watch(ns(next), "same", &new_log);
    EXPECT_EQ(nsid_of(next), nsid);
    EXPECT_EQ(old_log.end(), Gone::kNetns);
    must(in(next) + "addr add 10.0.0.2/24 dev same");
    EXPECT_TRUE(new_log.sees([](const Link& l) { return l.addresses.size() == 1; }));
    EXPECT_EQ(new_log.ends(), 0u);
    EXPECT_EQ(old_log.changes(), 0u);
  }
}

TEST_F(NetnsMonitor, TellsThatSomethingChangedInANamespaceWithoutWatchedLinks) {
  add("b");
  std::atomic<unsigned> changes{0};
  auto token =
      on_loop([&] { return monitor->watch_netns(*resolve(ns("b")), [&] { ++changes; }).value(); });
  must(in("b") + "address add 10.9.9.9/24 dev lo");
  EXPECT_TRUE(wait_until([&] { return changes.exchange(0) > 0; }));
  EXPECT_FALSE(on_loop([&] {  // reads the event, but begins no watch
    must(in("b") + "address add 10.9.9.7/24 dev lo");
    return monitor->watch_link(*resolve(ns("b")), "none", {}).has_value();
  }));
  EXPECT_TRUE(wait_until([&] { return changes > 0; }));
  on_loop([&] { return token.reset(), true; });
  const unsigned before = changes;
  must(in("b") + "address delete 10.9.9.9/24 dev lo");
  Log log;
  auto watch =
      on_loop([&] { return monitor->watch_link(*resolve(ns("b")), "lo", log.observer()); });
  ASSERT_TRUE(watch);
  must(in("b") + "address add 10.9.9.8/24 dev lo");
  EXPECT_TRUE(log.sees([](const Link& link) {
    return std::find(link.addresses.begin(), link.addresses.end(), v4(10, 9, 9, 8)) !=
           link.addresses.end();
  }));
  EXPECT_EQ(changes, before) << "its token is gone";
  on_loop([&] {
    watch->reset();
    return true;
  });
}

TEST_F(NetnsMonitor, WatchesItsOwnNamespaceToo) {
  must("ip link add own0 type veth peer name own1");
  Log of_lo, of_own;
  const auto lo = watch("own", "lo", &of_lo);
  const auto own0 = watch("own", "own0", &of_own);
  ASSERT_TRUE(lo && own0);
  EXPECT_TRUE(lo->link().up);
  EXPECT_TRUE(lo->link().loopback);
  EXPECT_THAT(lo->link().addresses, Contains(v4(127, 0, 0, 1)));
  must("ip addr add 10.0.0.1/24 dev own0");
  must("ip link set own1 up");
  must("ip link set own0 up");
  EXPECT_TRUE(of_own.sees([](const Link& l) { return l.up && l.addresses.size() >= 1; }));

  // An nsid for the own namespace, so that its events carry it.
  made.push_back(ns("own"));
  must("ip netns attach " + ns("own") + " " + std::to_string(::getpid()));
  must("ip netns set " + ns("own") + " 1234");
  must("ip addr add 10.0.0.2/24 dev own0");
  EXPECT_TRUE(of_own.sees([](const Link& l) {
    return std::count(l.addresses.begin(), l.addresses.end(), v4(10, 0, 0, 2)) == 1;
  }));
  must("ip link del own0");
  EXPECT_EQ(of_own.end(), Gone::kDeleted);
  EXPECT_EQ(of_lo.ends(), 0u);
}

TEST_F(NetnsMonitor, RecoversWhenEventsAreLost) {
  stop();
  start(4096);
  add_pair();
  add("c");
  must(in("c") + "link add gone0 type veth peer name gone1");
  Log log, of_gone;
  const auto eth0 = watch(ns("a"), "eth0", &log);
  const auto gone0 = watch(ns("c"), "gone0", &of_gone);
  std::promise<void> go;
  loop->post([wait = go.get_future().share()] { wait.wait(); });
  const std::string batch = testing::TempDir() + ns("batch");
  std::ofstream lines(batch);
  for (int i = 1; i <= 200; ++i) lines << "addr add 10.1.0." << i << "/16 dev eth0\n";
  lines.close();
  must(in("a") + "-batch " + batch);
  ::unlink(batch.c_str());
  must(in("c") + "link del gone0");
  go.set_value();
  EXPECT_TRUE(log.sees([](const Link& l) {
    return std::count_if(l.addresses.begin(), l.addresses.end(),
                         [](const Address& a) { return a[12] == 10; }) == 200;
  }));
  EXPECT_EQ(of_gone.end(), Gone::kVanished);
  EXPECT_GE(on_loop([&] { return monitor->overflows(); }), 1u);
  must(in("a") + "link set eth0 mtu 1300");
  EXPECT_TRUE(log.sees([](const Link& l) { return l.mtu == 1300; })) << "it goes on";
}

// Both the event of the end and the nsid that it named are lost.
TEST_F(NetnsMonitor, NoticesANamespaceThatEndedUnheard) {
  stop();
  start(4096);
  add("a");
  add("b");
  for (const auto* name : {"a", "b"})
    must(in(name) + "link add dev same index 77 type veth peer name same1");
  Log of_a, of_b;
  const auto in_a = watch(ns("a"), "same", &of_a);
  const auto in_b = watch(ns("b"), "same", &of_b);
  std::promise<void> go;
  loop->post([wait = go.get_future().share()] { wait.wait(); });
  for (int i = 0; i < 16; ++i) {
    const auto name = "f" + std::to_string(i);
    add(name);
    must("ip netns set " + ns(name) + " auto");
  }
  const std::string nsid = nsid_of("a");
  remove("a");
  add("z");
  must("ip netns set " + ns("z") + " auto");  // the lowest free one: that of a
  EXPECT_EQ(nsid_of("z"), nsid);
  must(in("z") + "link add dev same index 77 type veth peer name same1");
  go.set_value();
  EXPECT_EQ(of_a.end(), Gone::kVanished);
  EXPECT_GE(on_loop([&] { return monitor->overflows(); }), 1u);
  must(in("b") + "addr add 10.0.0.2/24 dev same");
  EXPECT_TRUE(of_b.sees([](const Link& l) { return l.addresses.size() == 1; }));
  EXPECT_EQ(of_b.ends(), 0u);
}

TEST_F(NetnsMonitor, LetsObserversEndAndBeginWatches) {
  add_pair();
  std::atomic<int> calls{0};
  Log log;
  Monitor::LinkWatch first, second;
  on_loop([&] {
    const auto netns = resolve(ns("a"));
    const LinkObserver observer{[&](const Link&) {
                                  first.reset();
                                  const auto again = resolve(ns("a"));
                                  second = *monitor->watch_link(*again, "eth0", log.observer());
                                  ++calls;  // later changes are seen
                                },
                                {}};
    first = *monitor->watch_link(*netns, "eth0", observer);
  });
  must(in("a") + "link set eth0 mtu 1300");
  EXPECT_TRUE(wait_until([&] { return calls > 0; }));
  must(in("a") + "link set eth0 mtu 1200");
  EXPECT_TRUE(log.sees([](const Link& l) { return l.mtu == 1200; }));
  EXPECT_EQ(calls, 1);
  on_loop([&] { second.reset(); });
}

TEST_F(NetnsMonitor, SleepsWhileNothingHappens) {
  add("a");
  std::vector<std::unique_ptr<Watching>> watches;
  Log log;
  for (int i = 0; i < 20; ++i) {
    const auto name = "d" + std::to_string(i);
    must(in("a") + "link add " + name + " up type veth peer name p" + name);
    watches.push_back(watch(ns("a"), name, &log));
  }
  const auto switches = [&] {
    std::ifstream status("/proc/self/task/" + std::to_string(thread_id.load()) + "/status");
    uint64_t count = 0;
    for (std::string word; status >> word;)
      if (word == "voluntary_ctxt_switches:") status >> count;
    return count;
  };
  std::this_thread::sleep_for(3s);  // duplicate address detection of the link-locals
  const auto before = switches();
  std::this_thread::sleep_for(2s);
  EXPECT_GT(before, 0u);
  EXPECT_EQ(switches(), before);
}

// The cookie that `accepted` reports for a peer whose socket was made in `name`, and which has
// changed its namespace since.
TEST_F(NetnsMonitor, KnowsWhereThePeerOfASocketIsAtHome) {
  add("a");
  add("b");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = testing::TempDir() + ns("socket");
  std::copy(path.begin(), path.end(), address.sun_path);
  const base::Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  std::thread peer([&] {
    EXPECT_TRUE(enter(*resolve(ns("a"))));
    const base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_TRUE(enter(*resolve(ns("b"))));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const base::Fd accepted(::accept(listener.get(), nullptr, nullptr));
    const auto cookie = base::netns_cookie(accepted.get());
    ASSERT_TRUE(cookie) << cookie.error().message();
    EXPECT_EQ(*cookie, resolve(ns("a"))->cookie);
  });
  peer.join();
  ::unlink(path.c_str());
}

TEST_F(NetnsMonitor, RefusesAnEmptyFileInRunNetns) {
  const std::string path = "/run/netns/" + ns("empty");
  add("a");  // /run/netns exists now
  { std::ofstream file(path); }
  const auto netns = resolve(ns("empty"));
  ::unlink(path.c_str());
  ASSERT_FALSE(netns);
  EXPECT_EQ(netns.error().code(), EINVAL);
  EXPECT_THAT(netns.error().message(), HasSubstr("is not a network namespace"));
}

}  // namespace
}  // namespace vrdma::netns
