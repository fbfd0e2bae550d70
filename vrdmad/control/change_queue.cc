#include "vrdmad/control/change_queue.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace vrdma::vrdmad {

using base::Result;
using base::TimePoint;

namespace {

// The id of the changed vdevice, or 0.
uint64_t vdevice_of(const Store::Change& change) {
  if (const auto* vdev = std::get_if<StoredVdev>(&change)) return vdev->id;
  if (const auto* forgotten = std::get_if<Store::Forgotten>(&change)) return forgotten->id;
  if (const auto* made = std::get_if<Store::Replacement>(&change)) return made->vdev.id;
  return 0;
}

}  // namespace

std::future<Result<void>> ChangeQueue::write(Store::Change change) {
  if (const uint64_t vdevice = vdevice_of(change); vdevice != 0) later_.erase(vdevice);
  if (const auto* const made = std::get_if<Store::Replacement>(&change))
    for (const uint64_t other : made->others) later_.erase(other);
  changes_.push_back(std::move(change));
  return callers_.emplace_back().get_future();
}

void ChangeQueue::write_later(Store::Change change, TimePoint now) {
  if (later_.empty()) due_ = now + kDelay;
  later_.insert_or_assign(vdevice_of(change), std::move(change));
}

std::optional<TimePoint> ChangeQueue::due() const {
  if (!changes_.empty()) return TimePoint::min();
  if (!later_.empty()) return due_;
  return std::nullopt;
}

ChangeQueue::Batch ChangeQueue::take() {
  Batch batch{std::exchange(changes_, {}), std::exchange(callers_, {})};
  for (auto& [vdevice, change] : std::exchange(later_, {}))
    batch.changes.push_back(std::move(change));
  return batch;
}

bool ChangeQueue::waits(uint64_t vdevice) const {
  if (later_.contains(vdevice)) return true;
  if (vdevice == 0) return false;  // a budget or a fabric is no newer reservation of ids
  return std::any_of(changes_.begin(), changes_.end(), [&](const Store::Change& change) {
    if (vdevice_of(change) == vdevice) return true;
    const auto* const made = std::get_if<Store::Replacement>(&change);
    return made != nullptr &&
           std::find(made->others.begin(), made->others.end(), vdevice) != made->others.end();
  });
}

void ChangeQueue::finish(Batch batch, const std::vector<Result<void>>& results, TimePoint now,
                         bool ends) {
  for (size_t i = 0; i < batch.callers.size(); ++i) batch.callers[i].set_value(results[i]);
  for (size_t i = batch.callers.size(); i < batch.changes.size(); ++i) {
    if (results[i]) continue;
    const uint64_t vdevice = vdevice_of(batch.changes[i]);
    spdlog::error("vdevice id:{}: {}", vdevice, results[i].error().message());
    if (ends || waits(vdevice)) continue;
    if (later_.empty()) due_ = now + kRetryDelay;
    later_.emplace(vdevice, std::move(batch.changes[i]));
  }
}

}  // namespace vrdma::vrdmad
