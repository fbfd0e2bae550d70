// A worker that is a process of its own (vrdmad/worker_main.cc), started by the broker.
//
// Its socket hangs up when it ends, also while a thread of it is stuck in a program's memory and
// the kernel cannot end the process yet. If the worker has sent a duplicate of the socket to a
// program, the pidfd tells the end.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "vrdmad/broker/broker.h"
#include "vrdmad/control/workers.h"
#include "vrdmad/worker/link.h"

namespace vrdma::vrdmad {

class WorkerProcessEnd final : public WorkerEnd {
 public:
  // The callbacks run on `loop`; `ended` may destroy this. `closer`: see Link::start().
  [[nodiscard]] static base::Result<std::unique_ptr<WorkerProcessEnd>> start(
      base::EventLoop& loop, Broker& broker, Workers::Tell tell, Workers::Ended ended,
      Intake::AccountRef closer);

  using WorkerEnd::send;
  void send(Parcel parcel) override;
  void leave() override {  // a process that is killed undoes nothing
    died_.reset();
    process_.reset();
  }
  [[nodiscard]] uint32_t entry() const override { return process_ ? process_->worker : 0; }
  [[nodiscard]] base::Fd report() const override;

 private:
  explicit WorkerProcessEnd(WorkerProcess process) : process_(std::move(process)) {}

  std::optional<WorkerProcess> process_;  // killed with this
  std::unique_ptr<Link> link_;
  base::EventLoop::Watch died_;
};

}  // namespace vrdma::vrdmad
