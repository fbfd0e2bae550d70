#include "vrdmad/control/outside.h"

#include <utility>

#include "vrdmad/control/worker_process_end.h"
#include "vrdmad/worker/worker_thread.h"

namespace vrdma::vrdmad {

using base::Result;

Outside::StartWorker worker_threads(base::EventLoop& loop, std::shared_ptr<Broker> broker) {
  return [&loop, broker = std::move(broker)](const Workers::Tell& tell,
                                             const Workers::Ended& /*it does not end by itself*/)
             -> Result<std::unique_ptr<WorkerEnd>> {
    return WorkerThread::start(broker, [&loop, tell](const ToControl& message) {
      loop.post([tell, message] { tell(message); });
    });
  };
}

Outside::StartWorker worker_processes(base::EventLoop& loop, std::shared_ptr<Broker> broker,
                                      Intake* intake) {
  return [&loop, broker = std::move(broker), intake](
             const Workers::Tell& tell,
             const Workers::Ended& ended) -> Result<std::unique_ptr<WorkerEnd>> {
    return WorkerProcessEnd::start(loop, *broker, tell, ended,
                                   std::make_shared<Intake::Account>(intake));
  };
}

}  // namespace vrdma::vrdmad
