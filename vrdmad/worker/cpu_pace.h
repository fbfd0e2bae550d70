// Quota `cpu`: how much of the daemon's processor time a vdevice may use, and what it has used.
//
// It pays for the turns of its lane on the worker, with its requests and connections, and for what
// reach threads do for it, on its own memory or on a peer's. Without tokens its lane rests and its
// reach threads begin nothing. All is paid afterwards, so that over any time it uses no more than
// its part, what it may use at once (provisioning::kBurst), and one turn of each thread. Who must
// wait waits for kCpuRest at least: to be woken costs a worker more than a short turn.
//
// Thread-safe. Nobody who spends or asks waits for another thread, which may have lost its
// processor: who finds the bucket taken goes on, and is paid for later.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/cpu_meter.h"
#include "provisioning/ledger.h"
#include "provisioning/pace.h"
#include "vrdmad/worker/pacer.h"

namespace vrdma::vrdmad {

constexpr auto kCpuRest = std::chrono::milliseconds(5);

class CpuPace final : public base::CpuMeter {
 public:
  // Any thread reads it.
  struct Shown {
    std::atomic<int64_t> total = 0;  // nanoseconds that were spent; each thread adds its own
    provisioning::RateUse rate;      // of nanoseconds: of those that were settled
    // In percent of a processor.
    [[nodiscard]] uint64_t percent(base::TimePoint now) const;
  };
  explicit CpuPace(const Rates& rates, std::shared_ptr<Shown> shown = std::make_shared<Shown>());
  // A limit of Kind::kCpu.
  void set(uint64_t percent);
  // All that was spent so far.
  [[nodiscard]] base::Duration total() const { return base::Duration(shown_->total.load()); }

  void spend(base::Duration used) override;
  [[nodiscard]] base::Duration wait(base::TimePoint now) override;

 private:
  void settle(base::TimePoint now);  // under mutex_

  const std::shared_ptr<Shown> shown_;
  std::mutex mutex_;
  int64_t settled_;          // of the total, with pace_
  provisioning::Pace pace_;  // nanoseconds
};

}  // namespace vrdma::vrdmad
