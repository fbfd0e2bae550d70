// Looks for the netdevs of pending vdevices, on a thread of its own: a tenant decides how long the
// kernel needs to list the routes of his namespace.
//
// A namespace may change all the time, so that each look that was in vain doubles the delay before
// the next one of that vdevice, from kSettled to kLongest. The delay is the first one again when
// nothing was wanted for twice as long.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/base/event_loop.h"

namespace vrdma::vrdmad {

class NetdevSearch {
 public:
  // A runtime gives a netdev several addresses and a route, one after the other.
  static constexpr base::Duration kSettled = std::chrono::milliseconds(50);
  static constexpr base::Duration kLongest = std::chrono::milliseconds(3200);

  // The netdev for a vdevice in the namespace of a process; on the search's thread.
  using Look = std::function<base::Result<std::string>(pid_t pid, const std::string& wanted)>;
  // What was found; on the loop.
  using Found = std::function<void(uint64_t vdevice, base::Result<std::string> netdev)>;

  NetdevSearch(base::EventLoop& loop, Look look, Found found);
  ~NetdevSearch();  // on the loop's thread; `found` is not called any more
  NetdevSearch(const NetdevSearch&) = delete;
  NetdevSearch& operator=(const NetdevSearch&) = delete;

  // Looks after a delay; once for several calls in that time. Any thread.
  void want(uint64_t vdevice, pid_t pid, const std::string& wanted);

 private:
  struct Entry {
    pid_t pid = 0;
    std::string wanted;
    std::optional<base::TimePoint> due;  // empty: nothing is wanted
    base::TimePoint last{};              // the end of the last look
    base::Duration delay = kSettled;     // after `last`
  };

  void run();
  // The entry that is due first; forgets those that have no meaning any more.
  [[nodiscard]] std::map<uint64_t, Entry>::iterator first(base::TimePoint now);

  base::EventLoop& loop_;
  const Look look_;
  const std::shared_ptr<const Found> found_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<uint64_t, Entry> entries_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace vrdma::vrdmad
