// Changes of the configuration that wait for the disk, with who waits for them.
//
// A change with a waiting caller is written at once, with all others that are there; one without
// within kDelay, so that flapping addresses cost a few writes per second in total. Decides by the
// times that it is told; StoreThread gives it a thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "vrdmad/control/store.h"

namespace vrdma::vrdmad {

class ChangeQueue {
 public:
  // How long a change without a waiting caller may wait for others, and after it has failed.
  static constexpr std::chrono::milliseconds kDelay{200}, kRetryDelay{10'000};

  // What goes to the disk together, in order. The first ones have a caller each.
  struct Batch {
    std::vector<Store::Change> changes;
    std::vector<std::promise<base::Result<void>>> callers;
  };

  // Ready when finish() has the result.
  [[nodiscard]] std::future<base::Result<void>> write(Store::Change change);
  // A later change of the same vdevice replaces it until it is written.
  void write_later(Store::Change change, base::TimePoint now);

  // When take() is due; time_point::min(): at once. Empty: nothing waits.
  [[nodiscard]] std::optional<base::TimePoint> due() const;
  // All that waits.
  [[nodiscard]] Batch take();
  // `results`: one for each change. What failed and has no caller is logged and written again in
  // kRetryDelay, unless a newer change of that vdevice waits or the daemon `ends`.
  void finish(Batch batch, const std::vector<base::Result<void>>& results, base::TimePoint now,
              bool ends);

 private:
  // Whether a newer change of the vdevice waits, or its deletion.
  [[nodiscard]] bool waits(uint64_t vdevice) const;

  std::vector<Store::Change> changes_;
  std::vector<std::promise<base::Result<void>>> callers_;  // one for each of changes_
  std::map<uint64_t, Store::Change> later_;                // by vdevice; 0: ids
  base::TimePoint due_;                                    // of later_
};

}  // namespace vrdma::vrdmad
