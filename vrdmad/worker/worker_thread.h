// A worker that is a thread of this process: in tests, and where workers cannot be processes.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "core/base/event_loop.h"
#include "vrdmad/worker/worker.h"
#include "vrdmad/worker/worker_end.h"

namespace vrdma::vrdmad {

class WorkerThread final : public WorkerEnd {
 public:
  // As for Worker. `tell` is called on the worker's thread, and on that of the destructor.
  [[nodiscard]] static base::Result<std::unique_ptr<WorkerThread>> start(
      std::shared_ptr<Broker> broker, std::function<void(ToControl)> tell);
  ~WorkerThread() override;

  using WorkerEnd::send;
  void send(Parcel parcel) override;
  void leave() override;

 private:
  explicit WorkerThread(std::unique_ptr<base::EventLoop> loop) : loop_(std::move(loop)) {}
  void call(const std::function<void()>& f);  // on the worker's thread; waits

  std::unique_ptr<base::EventLoop> loop_;
  std::unique_ptr<Worker> worker_;
  std::thread thread_;
  bool left_ = false;  // sessions, for another worker
};

}  // namespace vrdma::vrdmad
