// Puts changes on disk, on a thread of its own: whoever changes something goes on meanwhile, and
// what comes while the disk is busy shares the next commit.
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
  // How long a change that nobody waits for may wait for others.
  static constexpr std::chrono::milliseconds kDelay{200}, kRetryDelay{10'000};

  // The store is this thread's until it ends.
  explicit StoreThread(Store& store);
  ~StoreThread();  // when all is written
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  // Ready when the change is on disk, or cannot be. Any thread; changes take effect in the order of
  // the calls.
  [[nodiscard]] std::future<base::Result<void>> write(Store::Change change);
  // A change of a vdevice that nobody waits for; an error is logged, and the change tried again.
  // Until it is written, a later one of the same vdevice takes its place, so that addresses which
  // come and go cost a few writes a second in all.
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
  Clock::time_point due_;                                   // of what is in later_
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace vrdma::vrdmad
