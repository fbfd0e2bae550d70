// Looks for the netdevs of pending vdevices, apart from the control thread: a tenant decides how
// long the kernel needs to list the routes of his namespace.
//
// A namespace may change all the time, so that each look that was in vain doubles the delay before
// the next one of that vdevice, from kSettled to kLongest. The delay is the first one again when
// nothing was wanted for twice as long.
//
// Belongs to the control thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "vrdmad/control/aside.h"

namespace vrdma::vrdmad {

class NetdevSearch {
 public:
  // A runtime gives a netdev several addresses and a route, one after the other.
  static constexpr base::Duration kSettled = std::chrono::milliseconds(50);
  static constexpr base::Duration kLongest = std::chrono::milliseconds(3200);

  // The netdev for a vdevice in the namespace of a process; called aside, also after the end of
  // the search.
  using Look = std::function<base::Result<std::string>(pid_t pid, const std::string& wanted)>;
  // What was found; not after the destructor.
  using Found = std::function<void(uint64_t vdevice, const base::Result<std::string>& netdev)>;

  // `aside` is for this alone, and must outlive it.
  NetdevSearch(base::EventLoop& loop, Aside& aside, Look look, Found found)
      : loop_(loop), aside_(aside), look_(std::move(look)), found_(std::move(found)) {}
  NetdevSearch(const NetdevSearch&) = delete;
  NetdevSearch& operator=(const NetdevSearch&) = delete;
  ~NetdevSearch() = default;

  // Looks after a delay; once for several calls in that time.
  void want(uint64_t vdevice, pid_t pid, const std::string& wanted);

 private:
  struct Entry {
    pid_t pid = 0;
    std::string wanted;
    std::optional<base::TimePoint> due;  // empty: nothing is wanted
    base::TimePoint last{};              // the end of the last look
    base::Duration delay = kSettled;     // after `last`
  };

  // Begins the look that is due, or waits for it.
  void next();
  void looked(uint64_t vdevice, const base::Result<std::string>& netdev);

  base::EventLoop& loop_;
  Aside& aside_;
  const Look look_;
  const Found found_;
  std::map<uint64_t, Entry> entries_;
  bool looks_ = false;
  base::EventLoop::Timer timer_;
  // What a look that has no end yet is told to.
  const std::shared_ptr<NetdevSearch*> self_ = std::make_shared<NetdevSearch*>(this);
};

}  // namespace vrdma::vrdmad
