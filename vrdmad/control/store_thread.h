// Writes changes to disk on a separate thread, so that the control thread need not wait. Changes
// that arrive while the disk is busy share the next commit.
#pragma once

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "vrdmad/control/change_queue.h"
#include "vrdmad/control/store.h"

namespace vrdma::vrdmad {

// Has changes on disk, in the order of the calls.
class Writer {
 public:
  Writer() = default;
  virtual ~Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Ready when the change is on disk or has failed.
  [[nodiscard]] virtual std::future<base::Result<void>> write(Store::Change change) = 0;
  // Without a waiting caller; an error is logged and the change retried.
  virtual void write_later(Store::Change change) = 0;
};

// Any thread may call.
class StoreThread final : public Writer {
 public:
  // Only this thread uses the store until the destructor returns.
  explicit StoreThread(Store& store);
  ~StoreThread() override;  // writes all pending changes first
  [[nodiscard]] std::future<base::Result<void>> write(Store::Change change) override;
  void write_later(Store::Change change) override;

 private:
  void run();

  Store& store_;
  std::mutex mutex_;
  std::condition_variable wake_;
  ChangeQueue queue_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace vrdma::vrdmad
