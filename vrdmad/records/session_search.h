// Finds the processes of sessions that a daemon takes over, several at a time.
//
// To find a process takes the broker half a millisecond, in part waiting for threads to wake. So a
// few threads ask it for different processes at a time. One thread finds all sessions of a process,
// one after the other, so that the broker searches its descriptors once.
//
// The searches of a vdevice have a budget of processor time, ProcessFiles::kSearchTime. While
// several run, each may use kShare of it. If that is not enough, the session and all later ones of
// the vdevice wait until the threads have ended. They are then searched one after the other, each
// with all that is left of the vdevice's, and of kSearchTime for all of these together: a tenant
// can have many such vdevices, and the caller serves nobody meanwhile.
//
// Owned by one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "vrdmad/broker/broker.h"

namespace vrdma::vrdmad {

class SessionSearch {
 public:
  struct Wanted {
    uint64_t vdevice = 0;
    rdma::Peer process;
    std::string socket;
    Recipient recipient;
    std::vector<Caller::Wanted> files;
  };
  static constexpr unsigned kThreads = 3;
  static constexpr base::Duration kShare = std::chrono::milliseconds(20);

  // Begins. `broker` and `wanted` outlive it.
  SessionSearch(Broker& broker, const std::vector<Wanted>& wanted);
  SessionSearch(const SessionSearch&) = delete;
  SessionSearch& operator=(const SessionSearch&) = delete;
  ~SessionSearch();  // waits for the threads

  // Waits until that one is found. Once for each, in order. Errors: as of Broker::find(); EAGAIN:
  // the searches before it have used the time.
  [[nodiscard]] base::Result<Broker::Found> take(size_t index);
  // Processor time that each vdevice pays. After the last take().
  [[nodiscard]] std::map<uint64_t, base::Duration> used();

 private:
  struct Budget {
    base::Duration left, used{};
    bool alone = false;  // the threads no longer search for the vdevice
  };
  using Result = base::Result<Broker::Found>;

  void run();
  [[nodiscard]] Budget& budget_of(size_t index);
  [[nodiscard]] Result find(size_t index, base::Duration share, std::unique_lock<std::mutex>& lock);

  Broker& broker_;
  const std::vector<Wanted>& wanted_;
  std::vector<std::vector<size_t>> processes_;  // the sessions of each
  std::vector<std::thread> threads_;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_process_ = 0;
  unsigned running_ = 0;  // threads
  std::vector<std::optional<Result>> found_;
  std::map<pid_t, std::shared_ptr<Caller>> callers_;  // by which each process is searched
  std::map<uint64_t, Budget> budgets_;                // by vdevice
  base::Duration left_;                               // for searches by take()
};

}  // namespace vrdma::vrdmad
