// A worker's list of send queues that have something to do.
//
// Runs on one event loop as its poller. Each pass gives every active queue one turn of bounded
// length, so that a queue with much to do delays the others by no more than that. With nothing
// active the loop sleeps.
#pragma once

#include <vector>

#include "core/base/event_loop.h"

namespace vrdma::transport {

class Runnable {
 public:
  virtual ~Runnable() = default;
  // One turn. False: nothing to do until it is activated again.
  virtual bool run() = 0;

 private:
  friend class Runner;
  bool active_ = false;
  bool again_ = false;  // activated while it ran
};

class Runner {
 public:
  explicit Runner(base::EventLoop& loop);
  ~Runner() { loop_.set_poller(nullptr); }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  void activate(Runnable* runnable);
  void remove(Runnable* runnable);  // also while it runs
  [[nodiscard]] base::EventLoop& loop() const { return loop_; }
  // How long an empty queue is looked at again before its worker lets go. A worker that spins
  // beside two spinning programs on two cores would take turns of milliseconds with them.
  [[nodiscard]] base::Duration spin() const { return spin_; }

 private:
  bool pass();

  base::EventLoop& loop_;
  base::Duration spin_;
  std::vector<Runnable*> active_;
};

}  // namespace vrdma::transport
