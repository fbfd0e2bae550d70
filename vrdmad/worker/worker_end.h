// A worker as control sees it: a process, or a thread of the daemon (worker_thread.h).
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "vrdmad/worker/parcel.h"

namespace vrdma::vrdmad {

class WorkerEnd {
 public:
  WorkerEnd() = default;
  virtual ~WorkerEnd() = default;  // ends all sessions and the worker
  WorkerEnd(const WorkerEnd&) = delete;
  WorkerEnd& operator=(const WorkerEnd&) = delete;

  // Does not wait. The worker takes all in the order of the calls.
  virtual void send(Parcel parcel) = 0;
  void send(ToWorker message) { send(Parcel{std::move(message), {}}); }
  // Before the destructor: the sessions are left as they are, for another worker.
  virtual void leave() = 0;
  // The broker's number of the process; 0: it is a thread, for which control asks the broker.
  [[nodiscard]] virtual uint32_t entry() const { return 0; }
  // Its number in the daemon's pid namespace: of a thread, the daemon's. 0: it has ended.
  [[nodiscard]] virtual pid_t pid() const { return ::getpid(); }
  // Readable when the process has ended: WorkerProcess::report; invalid: it is a thread.
  [[nodiscard]] virtual base::Fd report() const { return {}; }
};

}  // namespace vrdma::vrdmad
