#include "vrdmad/control/aside.h"

#include <pthread.h>

namespace vrdma::vrdmad {

AsideThread::AsideThread() : thread_([this] { serve(); }) {
  ::pthread_setname_np(thread_.native_handle(), "aside");
}

AsideThread::~AsideThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void AsideThread::run(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  wake_.notify_one();
}

void AsideThread::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return ends_ || work_ != nullptr; });
    if (ends_) return;
    const auto work = std::exchange(work_, nullptr);
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace vrdma::vrdmad
