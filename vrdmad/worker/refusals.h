// What programs were refused, for control: some messages each second, however many there are. The
// first after a pause comes at once, so that control finds the name of a program that ends of it.
#pragma once

#include <functional>
#include <vector>

#include "core/base/event_loop.h"
#include "vrdmad/worker/messages.h"

namespace vrdma::vrdmad {

// Belongs to the worker's thread.
class Refusals {
 public:
  static constexpr auto kDelay = std::chrono::milliseconds(500);
  static constexpr size_t kMost = 64;  // at once; further ones are in the vdevices' counters alone

  // Both must outlive it.
  Refusals(base::EventLoop& loop, const std::function<void(ToControl)>& tell)
      : loop_(loop), tell_(tell) {}

  void note(Refused one);  // it has happened `count` times

 private:
  void wait();

  base::EventLoop& loop_;
  const std::function<void(ToControl)>& tell_;
  std::vector<Refused> untold_;
  base::EventLoop::Timer due_;
};

}  // namespace vrdma::vrdmad
