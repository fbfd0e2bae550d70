// The simulated host: its time, its network namespaces with their links, its processes, and what is
// to happen.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "netns/link.h"
#include "netns/routed_netdevs.h"

namespace vrdma::sim {

// A property does not hold.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Time final : public base::Clock {
 public:
  [[nodiscard]] base::TimePoint now() const override { return now_; }
  void move_to(base::TimePoint to) { now_ = std::max(now_, to); }

 private:
  base::TimePoint now_{std::chrono::hours(1)};
};

// Numbers of a seed.
class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}
  [[nodiscard]] uint64_t below(uint64_t end) { return engine_() % end; }
  [[nodiscard]] bool one_in(uint64_t n) { return below(n) == 0; }
  [[nodiscard]] base::Duration up_to(base::Duration most) {
    return base::Duration(below(static_cast<uint64_t>(most.count()) + 1));
  }
  template <class T>
  [[nodiscard]] const T& of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 private:
  std::mt19937_64 engine_;
};

struct Namespace {
  uint64_t cookie = 0;
  std::map<uint32_t, netns::Link> links;  // by index
  bool hidden = false;                    // its name is not there
  bool of_processes = false;              // it has no name, and ends with the last of them
};

// One that a vdevice depends on: an owner, or the first of a container.
struct Process {
  uint64_t start_time = 0;
  uint64_t netns = 0;  // the cookie; 0: that of the host
};

class Host {
 public:
  explicit Host(uint64_t seed) : chance(seed) {}

  Time time;
  Chance chance;  // of accidents between actions: delays
  // By name. A name may go, and come again for another namespace.
  std::map<std::string, Namespace> namespaces;
  std::map<uint32_t, Process> processes;  // that live, by pid
  std::string boot_id = "boot 1";
  std::function<void(const std::string&)> say = [](const std::string&) {};

  // Calls `what` later, on the simulation's thread, outside of the daemon's loop.
  void after(base::Duration delay, std::function<void()> what) {
    agenda_.emplace(time.now() + delay, std::move(what));
  }
  // Moves the time to what comes first, the agenda or the loop's timers, and does it; at most to
  // `end`. A pass of the loop without events counts as nothing. Whether there was anything.
  bool step(base::EventLoop* loop, base::TimePoint end);
  void run(base::EventLoop* loop, base::TimePoint end) {
    while (step(loop, end)) {
    }
  }

  [[nodiscard]] uint64_t new_cookie() { return ++last_cookie_; }
  [[nodiscard]] uint32_t new_ifindex() { return ++last_ifindex_; }
  // nullptr: there is none.
  [[nodiscard]] Namespace* of_cookie(uint64_t cookie);
  [[nodiscard]] netns::Link* find_link(uint64_t cookie, uint32_t ifindex);
  // The netdevs of a namespace that have addresses.
  [[nodiscard]] netns::RoutedNetdevs routed(uint64_t cookie);

  // While no vrdmad runs: nothing remains but the disk, and numbers come again, except pids.
  void reboot();
  // Returns its pid.
  [[nodiscard]] uint32_t start_process(uint64_t netns);
  // A namespace of processes ends with the last of them.
  void end_process(uint32_t pid);

  // Called when a link has changed, has come or has ended.
  std::function<void()> links_changed = [] {};
  // Called when a process has ended.
  std::function<void(uint32_t pid)> process_ended = [](uint32_t) {};

 private:
  std::multimap<base::TimePoint, std::function<void()>> agenda_;
  static constexpr uint64_t kFirstCookie = 1000;
  uint64_t last_cookie_ = kFirstCookie, boots_ = 1;
  uint32_t last_ifindex_ = 1, last_pid_ = 100;
};

}  // namespace vrdma::sim
