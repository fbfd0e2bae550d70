// The broker as a process of its own: the only one of the daemon that has privileges once the
// daemon has started.
//
// The daemon starts it before it gives its own privileges up. Each thread of the daemon that makes
// a request takes one of a few sockets to it, of which each has a thread in the broker, so that a
// process that cannot be inspected delays only those who ask for it. The broker ends when the
// daemon has ended.
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
  // Forks the broker. Call before the daemon has threads; `confine` runs in the new process.
  // `channels`: how many requests it serves at a time. `run_dir`: see LocalBroker.
  [[nodiscard]] static base::Result<std::shared_ptr<BrokerProcess>> start(
      const std::string& run_dir, unsigned channels, const std::function<void()>& confine);

  // EPIPE: the broker has ended.
  [[nodiscard]] Answer serve(const Request& request, Beside* beside) override;

  // Calls `died` once when the process has ended, which it does not do by itself while the daemon
  // lives.
  [[nodiscard]] base::Result<base::EventLoop::Watch> watch(base::EventLoop& loop,
                                                           std::function<void()> died);

  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  BrokerProcess(base::Fd life, pid_t pid) : life_(std::move(life)), pid_(pid) {}

  base::Fd life_;
  const pid_t pid_;
  std::function<void()> died_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<base::Fd> idle_;  // channels that nobody uses
};

}  // namespace vrdma::vrdmad
