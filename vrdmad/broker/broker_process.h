// The broker as a process of its own: the only one of the daemon that has privileges once the
// daemon has started.
//
// The daemon starts it before it gives its own privileges up. Each thread of the daemon that makes
// a request takes one of a few sockets to it, of which each has a thread in the broker, so that a
// process that cannot be inspected delays only the threads that ask for it. The broker ends when
// the daemon has ended.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "vrdmad/broker/broker.h"

namespace vrdma::vrdmad {

// Any thread.
class BrokerProcess final : public Broker {
 public:
  // `socket`: to broker::serve() (broker_serve.h). `requests`: how many it serves at a time.
  [[nodiscard]] static base::Result<std::shared_ptr<BrokerProcess>> attach(base::Fd socket,
                                                                           unsigned requests);
  // In a worker process: over the channel to the broker that it was started with, for one request
  // at a time. watch() is not for it.
  [[nodiscard]] static std::shared_ptr<BrokerProcess> over(base::Fd channel);

  // EPIPE: the broker has ended.
  [[nodiscard]] Answer serve(const Request& request, Beside* beside) override;

  // Calls `died` once when the process has ended, which it does not do by itself while the daemon
  // lives.
  [[nodiscard]] base::Result<base::EventLoop::Watch> watch(base::EventLoop& loop,
                                                           std::function<void()> died);

 private:
  explicit BrokerProcess(base::Fd life) : life_(std::move(life)) {}

  base::Fd life_;
  std::function<void()> died_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<base::Fd> idle_;  // channels that no thread uses
};

}  // namespace vrdma::vrdmad
