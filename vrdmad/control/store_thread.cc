#include "vrdmad/control/store_thread.h"

#include <pthread.h>

#include <chrono>
#include <utility>

namespace vrdma::vrdmad {

using base::Result;

namespace {
base::TimePoint now() { return base::Clock::steady().now(); }
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
    written = queue_.write(std::move(change));
  }
  wake_.notify_one();
  return written;
}

void StoreThread::write_later(Store::Change change) {
  {
    const std::lock_guard lock(mutex_);
    queue_.write_later(std::move(change), now());
  }
  wake_.notify_one();
}

void StoreThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto due = queue_.due();
    if (!due && ends_) return;
    if (!due) {
      wake_.wait(lock);
      continue;
    }
    if (!ends_ && now() < *due) {
      wake_.wait_until(lock, *due);
      continue;
    }
    auto batch = queue_.take();
    lock.unlock();
    const auto results = store_.write(batch.changes);
    lock.lock();
    queue_.finish(std::move(batch), results, now(), ends_);
  }
}

}  // namespace vrdma::vrdmad
