// A worker that is a process of its own (vrdmad/worker_main.cc), started by the broker.
//
// Its socket hangs up when it ends, also while a thread of it is stuck in a program's memory and
// the kernel cannot end the process yet. Then it is killed, and the pidfd tells the end: a thread
// that was writing into a program's memory must not write after the next worker has. One that is
// still stuck after kPatience is not waited for. The kernel copies no further page for a thread
// that is killed, so it writes nothing when it comes loose.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/rdma/peer.h"
#include "vrdmad/broker/broker.h"
#include "vrdmad/control/workers.h"
#include "vrdmad/worker/link.h"

namespace vrdma::vrdmad {

class WorkerProcessEnd final : public WorkerEnd {
 public:
  static constexpr auto kPatience = std::chrono::milliseconds(200);

  // The callbacks run on `loop`; `ended` may destroy this. `closer`: see Link::start().
  [[nodiscard]] static base::Result<std::unique_ptr<WorkerProcessEnd>> start(
      base::EventLoop& loop, Broker& broker, Workers::Tell tell, Workers::Ended ended,
      Intake::AccountRef closer);

  using WorkerEnd::send;
  void send(Parcel parcel) override;
  void leave() override {  // a process that is killed undoes nothing
    died_.reset();
    patience_.reset();
    process_.reset();
  }
  [[nodiscard]] uint32_t entry() const override { return process_ ? process_->worker : 0; }
  [[nodiscard]] pid_t pid() const override { return rdma::pid_of(pidfd_).value_or(0); }
  [[nodiscard]] base::Fd report() const override;

 private:
  WorkerProcessEnd(base::EventLoop& loop, WorkerProcess process, Workers::Ended ended);
  void on_hang_up(const std::string& why);
  void on_death();

  base::EventLoop& loop_;
  std::optional<WorkerProcess> process_;  // killed with this
  const base::Fd pidfd_, report_;         // of it
  Workers::Ended ended_;                  // called once
  std::unique_ptr<Link> link_;
  base::EventLoop::Watch died_;
  std::optional<std::string> why_;  // its socket has hung up
  base::EventLoop::Timer patience_;
};

}  // namespace vrdma::vrdmad
