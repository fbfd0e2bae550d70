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
  explicit CpuPace(const Rates& rates);
  // A limit of Kind::kCpu.
  void set(uint64_t percent);
  // All that was spent so far.
  [[nodiscard]] base::Duration total() const { return base::Duration(total_.load()); }
  // Puts what it uses into `rows`, which are in the order of Kind.
  void report(std::vector<provisioning::Row>& rows);

  void spend(base::Duration used) override;
  [[nodiscard]] base::Duration wait(base::TimePoint now) override;

 private:
  void settle(base::TimePoint now);  // under mutex_

  std::atomic<int64_t> total_ = 0;  // nanoseconds
  std::mutex mutex_;
  int64_t settled_ = 0;      // of total_, with pace_
  provisioning::Pace pace_;  // nanoseconds
};

}  // namespace vrdma::vrdmad
