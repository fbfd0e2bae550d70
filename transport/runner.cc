#include "transport/runner.h"

#include <algorithm>
#include <thread>

namespace vrdma::transport {

Runner::Runner(base::EventLoop& loop)
    : loop_(loop),
      spin_(std::thread::hardware_concurrency() > 2 ? std::chrono::microseconds(20)
                                                    : base::Duration(0)) {
  loop_.set_poller([this] { return pass(); });
}

void Runner::activate(Runnable* runnable) {
  runnable->again_ = true;
  if (runnable->active_) return;
  runnable->active_ = true;
  active_.push_back(runnable);
}

void Runner::remove(Runnable* runnable) {
  if (!runnable->active_) return;
  // The place is kept until the pass is over, for it may be running through the list.
  std::replace(active_.begin(), active_.end(), runnable, static_cast<Runnable*>(nullptr));
}

bool Runner::pass() {
  for (size_t i = 0; i < active_.size(); ++i) {  // the list may grow meanwhile
    Runnable* runnable = active_[i];
    if (runnable == nullptr) continue;
    runnable->again_ = false;
    const bool more = runnable->run();
    if (active_[i] != runnable || more || runnable->again_) continue;  // it may be no more
    runnable->active_ = false;
    active_[i] = nullptr;
  }
  std::erase(active_, nullptr);
  return !active_.empty();
}

}  // namespace vrdma::transport
