#include "vrdmad/worker/refusals.h"

#include <algorithm>
#include <utility>

namespace vrdma::vrdmad {

void Refusals::note(Refused one) {
  if (!due_.active()) {
    tell_(one);
    return wait();
  }
  const auto known = std::find_if(untold_.begin(), untold_.end(), [&](const Refused& other) {
    return other.vdevice == one.vdevice && other.pid == one.pid && other.why == one.why &&
           other.kind == one.kind;
  });
  if (known != untold_.end()) {
    known->count += one.count;
  } else if (untold_.size() < kMost) {
    untold_.push_back(one);
  }
}

void Refusals::wait() {
  due_ = loop_.after(kDelay, [this] {
    due_.reset();
    if (untold_.empty()) return;
    for (const Refused& each : std::exchange(untold_, {})) tell_(each);
    wait();
  });
}

}  // namespace vrdma::vrdmad
