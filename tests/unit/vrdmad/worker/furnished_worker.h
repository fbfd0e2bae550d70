// A worker whose sessions get their kits without a control thread.
#pragma once

#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "vrdmad/broker/local_broker.h"
#include "vrdmad/records/furnisher.h"
#include "vrdmad/worker/worker_thread.h"

namespace vrdma::vrdmad {

class FurnishedWorker {
 public:
  WorkerThread* operator->() { return worker_.get(); }
  // The daemon's end of a program's connection.
  void accept(uint64_t vdevice, base::Fd socket) {
    auto arrival = broker_->admit(std::move(socket));
    if (!arrival) std::abort();
    const uint64_t connection = add(vdevice, arrival->caller);
    worker_->send(parcel(vdevice, connection, std::move(*arrival)));
  }

 private:
  uint64_t add(uint64_t vdevice, std::shared_ptr<Caller> caller) {
    const std::lock_guard lock(mutex_);
    return furnisher_.add(vdevice, std::move(caller));
  }
  void on(const ToControl& message) {
    const std::lock_guard lock(mutex_);
    if (const auto* wish = std::get_if<WantKit>(&message))
      worker_->send(
          parcel(Kit{wish->connection}, furnisher_.furnish(wish->connection, {}, wish->shown)));
    if (const auto* ended = std::get_if<Ended>(&message)) furnisher_.ended(ended->connection);
  }

  std::shared_ptr<LocalBroker> broker_ = std::make_shared<LocalBroker>();
  std::mutex mutex_;
  Furnisher furnisher_;
  std::unique_ptr<WorkerThread> worker_ =
      WorkerThread::start(broker_, [this](const ToControl& message) { on(message); }).value();
};

}  // namespace vrdma::vrdmad
