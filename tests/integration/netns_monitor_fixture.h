// Real namespaces for tests of the monitor, and what an observer hears.
//
// The test process moves into a new namespace, which represents the daemon's own, so that the host
// is not affected. Named namespaces (vrdma-PID-a, -b) are made for each test and removed after it,
// also after a failure:
//
//     own                   a                            b
//   +--------------+      +----------------+           +-------+
//   | monitor      |      | eth0 (watched) ==== veth ====  eth0 |
//   | lo, veth     |      +----------------+           +-------+
//   +--------------+
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "netns/monitor.h"

namespace vrdma::netns {

using namespace std::chrono_literals;

constexpr auto kLongEnough = 10s;

inline Address v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}

inline int run(const std::string& command) { return std::system(command.c_str()); }
inline void must(const std::string& command) { ASSERT_EQ(run(command), 0) << command; }

inline std::string output_of(const std::string& command) {
  std::string output;
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  for (int c = ::getc(pipe); c != EOF; c = ::getc(pipe)) output += static_cast<char>(c);
  ::pclose(pipe);
  return output;
}

inline bool wait_until(const std::function<bool()>& condition,
                       std::chrono::seconds limit = kLongEnough) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

// The events of one observer; written by the loop's thread, read by the test's.
class Log {
 public:
  LinkObserver observer() {
    return {[this](const Link& link) {
              const std::lock_guard lock(mutex_);
              links_.push_back(link);
              changed_.notify_all();
            },
            [this](Gone why) {
              const std::lock_guard lock(mutex_);
              ends_.push_back(why);
              changed_.notify_all();
            }};
  }
  // Waits until the last event of the link fits.
  bool sees(const std::function<bool(const Link&)>& fits) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLongEnough,
                             [&] { return !links_.empty() && fits(links_.back()); });
  }
  std::optional<Gone> end() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kLongEnough, [&] { return !ends_.empty(); })) return std::nullopt;
    return ends_.back();
  }
  size_t changes() {
    const std::lock_guard lock(mutex_);
    return links_.size();
  }
  size_t ends() {
    const std::lock_guard lock(mutex_);
    return ends_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Link> links_;
  std::vector<Gone> ends_;
};

struct NetnsMonitor : testing::Test {
  const std::string prefix = "vrdma-" + std::to_string(::getpid()) + "-";
  std::vector<std::string> made;
  std::unique_ptr<base::EventLoop> loop;
  std::unique_ptr<Monitor> monitor;
  std::thread thread;
  std::atomic<pid_t> thread_id{0};
  bool stopped = false;

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "makes network namespaces and so needs root";
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    must("ip link set lo up");
    start(4 << 20);
  }

  void TearDown() override {
    stop();
    for (const auto& name : made) run("ip netns del " + name + " 2>/dev/null");
  }

  void start(int receive_buffer) {
    stopped = false;
    loop = std::move(*base::EventLoop::create());
    auto created = Monitor::create(loop.get(), {}, receive_buffer);
    ASSERT_TRUE(created) << created.error().message();
    monitor = std::move(*created);
    thread = std::thread([this] {
      thread_id = ::gettid();
      loop->run();
    });
  }

  // All watches must have ended before.
  void stop() {
    if (thread.joinable()) {
      loop->stop();
      thread.join();
    }
    monitor.reset();
    loop.reset();
  }

  // Runs `f` on the loop's thread and waits for it.
  template <class F>
  auto on_loop(F f) -> decltype(f()) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    loop->post([&task] { task(); });
    return result.get();
  }

  std::string ns(const std::string& name) const { return prefix + name; }
  std::string inside(const std::string& name) const {
    return "nsenter --net=/run/netns/" + ns(name) + " -- ";
  }
  std::string in(const std::string& name) const { return inside(name) + "ip "; }

  void add(const std::string& name) {
    made.push_back(ns(name));
    must("ip netns add " + ns(name));
  }
  // The nsid by which the test's own namespace knows it, and a newline.
  std::string nsid_of(const std::string& name) const {
    return output_of("ip netns list-id | sed -nE 's/^nsid ([0-9]+) .*name: " + ns(name) +
                     "\\).*/\\1/p'");
  }
  // Deletes it and waits until the kernel, which does so later, has freed its nsid.
  void remove(const std::string& name) {
    const std::string nsid = nsid_of(name);
    ASSERT_NE(nsid, "") << "the monitor has not given it one";
    must("ip netns del " + ns(name));
    ASSERT_TRUE(wait_until(
        [&] {
          const std::string known =
              output_of("ip netns list-id | sed -E 's/^nsid ([0-9]+).*/\\1/'");
          return ("\n" + known).find("\n" + nsid) == std::string::npos;
        },
        60s));
  }
  // Two namespaces joined by veth.
  void add_pair() {
    add("a");
    add("b");
    must(in("a") + "link add eth0" + " address 02:00:00:00:00:0a mtu 1400 type veth peer " +
         "name eth0 netns " + ns("b"));
    must(in("a") + "link set eth0 up");
    must(in("b") + "link set eth0 up");
  }

  // When it returns, no descriptor of the namespace is left.
  base::Result<Monitor::LinkWatch> try_watch(const std::string& spec, const std::string& netdev,
                                             Log* log) {
    return on_loop([&]() -> base::Result<Monitor::LinkWatch> {
      const auto netns = spec == "own" ? current() : resolve(spec);
      if (!netns) return base::pass(netns.error());
      return monitor->watch_link(*netns, netdev, log->observer());
    });
  }

  // A watch whose destructor runs on the loop's thread.
  class Watching {
   public:
    Watching(NetnsMonitor* test, Monitor::LinkWatch watch)
        : test_(test), watch_(std::move(watch)) {}
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;
    ~Watching() { end(); }
    void end() {
      if (test_->thread.joinable()) test_->on_loop([this] { watch_.reset(); });
    }
    Link link() {
      return test_->on_loop([this] { return watch_.link(); });
    }

   private:
    NetnsMonitor* test_;
    Monitor::LinkWatch watch_;
  };

  std::unique_ptr<Watching> watch(const std::string& spec, const std::string& netdev, Log* log) {
    auto watch = try_watch(spec, netdev, log);
    if (!watch) {
      ADD_FAILURE() << watch.error().message();
      return nullptr;
    }
    return std::make_unique<Watching>(this, std::move(*watch));
  }
};

}  // namespace vrdma::netns
