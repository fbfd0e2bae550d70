// What the daemon decides about but does not do itself: links, the disk, workers, processes. Those
// of this host, or of a simulation (tests/sim).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/base/event_loop.h"
#include "netns/links.h"
#include "vrdmad/broker/broker.h"
#include "vrdmad/control/aside.h"
#include "vrdmad/control/parent.h"
#include "vrdmad/control/processes.h"
#include "vrdmad/control/store_thread.h"
#include "vrdmad/control/workers.h"

namespace vrdma::vrdmad {

struct Outside {
  // Starts a worker that knows nothing yet. The callbacks are those of Workers::Start.
  using StartWorker = std::function<base::Result<std::unique_ptr<WorkerEnd>>(
      const Workers::Tell& tell, const Workers::Ended& ended)>;

  std::unique_ptr<netns::Links> links;
  std::unique_ptr<Writer> writer;
  StartWorker start_worker;
  std::unique_ptr<Processes> processes;
  std::unique_ptr<Aside> aside;  // of the search for netdevs
  std::vector<std::unique_ptr<Parent>> parents = find_parents();
  // Called again and again while a call of AdminBackend or HookBackend waits: runs a pass of the
  // loop, whose thread makes the call. Empty: another thread runs the loop, and calls block.
  std::function<void()> pass = {};
};

// Workers that are threads of this process.
[[nodiscard]] Outside::StartWorker worker_threads(base::EventLoop& loop,
                                                  std::shared_ptr<Broker> broker);
// Workers that are processes, whose parent is the broker. `intake`: closes their connections;
// nullptr: this process does.
[[nodiscard]] Outside::StartWorker worker_processes(base::EventLoop& loop,
                                                    std::shared_ptr<Broker> broker, Intake* intake);

}  // namespace vrdma::vrdmad
