#include "vrdmad/control/store_thread.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <utility>

namespace vrdma::vrdmad {

using base::Result;

namespace {

// The id of the changed vdevice, or 0.
uint64_t vdevice_of(const Store::Change& change) {
  if (const auto* vdev = std::get_if<StoredVdev>(&change)) return vdev->id;
  if (const auto* forgotten = std::get_if<Store::Forgotten>(&change)) return forgotten->id;
  if (const auto* made = std::get_if<Store::Replacement>(&change)) return made->vdev.id;
  return 0;
}

}  // namespace

StoreThread::StoreThread(Store& store) : store_(store), thread_([this] { run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "store");
}

StoreThread::~StoreThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::future<Result<void>> StoreThread::write(Store::Change change) {
  std::future<Result<void>> written;
  {
    const std::lock_guard lock(mutex_);
    if (const uint64_t vdevice = vdevice_of(change); vdevice != 0) later_.erase(vdevice);
    changes_.push_back(std::move(change));
    written = promises_.emplace_back().get_future();
  }
  wake_.notify_one();
  return written;
}

void StoreThread::write_later(Store::Change change) {
  {
    const std::lock_guard lock(mutex_);
    if (later_.empty()) due_ = Clock::now() + kDelay;
    later_.insert_or_assign(vdevice_of(change), std::move(change));
  }
  wake_.notify_one();
}

void StoreThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (changes_.empty() && !ends_ && (later_.empty() || Clock::now() < due_)) {
      if (later_.empty())
        wake_.wait(lock);
      else
        wake_.wait_until(lock, due_);
      continue;
    }
    auto changes = std::exchange(changes_, {});
    auto promises = std::exchange(promises_, {});
    for (auto& [vdevice, change] : std::exchange(later_, {})) changes.push_back(std::move(change));
    if (changes.empty()) return;
    lock.unlock();
    const auto results = store_.write(changes);
    for (size_t i = 0; i < promises.size(); ++i) promises[i].set_value(results[i]);
    lock.lock();
    for (size_t i = promises.size(); i < changes.size(); ++i)
      if (!results[i]) try_again(std::move(changes[i]), results[i].error());
  }
}

void StoreThread::try_again(Store::Change change, const base::Error& error) {
  const uint64_t vdevice = vdevice_of(change);
  spdlog::error("vdevice id:{}: {}", vdevice, error.message());
  if (ends_) return;
  if (later_.empty()) due_ = Clock::now() + kRetryDelay;
  later_.emplace(vdevice, std::move(change));  // unless a newer one is queued
}

}  // namespace vrdma::vrdmad
