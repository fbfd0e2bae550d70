// Writes changes to disk on a separate thread, so that the control thread need not wait. Changes
// that arrive while the disk is busy share the next commit.
#pragma once

#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "vrdmad/control/store.h"

namespace vrdma::vrdmad {

class StoreThread {
 public:
  // How long a change without a waiting caller may wait for others.
  static constexpr std::chrono::milliseconds kDelay{200}, kRetryDelay{10'000};

  // Only this thread uses the store until the destructor returns.
  explicit StoreThread(Store& store);
  ~StoreThread();  // writes all pending changes first
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  // Ready when the change is on disk or has failed. Any thread; changes take effect in the order of
  // the calls.
  [[nodiscard]] std::future<base::Result<void>> write(Store::Change change);
  // Stores a vdevice without a waiting caller; an error is logged and the change retried. A later
  // change of the same vdevice replaces it until it is written, so that flapping addresses cost a
  // few writes per second in total.
  void write_later(Store::Change change);

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void try_again(Store::Change change, const base::Error& error);

  Store& store_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Store::Change> changes_;
  std::vector<std::promise<base::Result<void>>> promises_;  // one for each of changes_
  std::map<uint64_t, Store::Change> later_;                 // by vdevice; 0: ids
  Clock::time_point due_;                                   // when later_ must be written
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace vrdma::vrdmad
