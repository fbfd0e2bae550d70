// Stops the other threads of one process, from ptrace(2)'s attach to its detach.
//
// A thread of the stopper makes one Hold, uses it and ends; the kernel then detaches what let_go()
// could not (a seized thread that did not stop). Signals that arrive while a thread stops reach it
// even if the stopper is killed: the Hold only peeks at them (WNOWAIT) until it detaches the
// thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/fd.h"
#include "core/base/mapping.h"
#include "core/ipc/layout.h"
#include "core/ipc/messages.h"
#include "core/rdma/peer.h"

namespace vrdma::vrdmad::stopper {

class Hold {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kStopping = std::chrono::milliseconds(50);   // until all have stopped
  static constexpr auto kPatience = std::chrono::milliseconds(2);    // for a thread to leave a call
  static constexpr auto kLongest = std::chrono::milliseconds(200);   // then the hold ends,
  static constexpr auto kHardest = std::chrono::milliseconds(1000);  // and then in any case
  static constexpr size_t kMostThreads = 4096;

  // `arena` contains the HoldWords, see core/ipc/layout.h. `thread` is not stopped.
  [[nodiscard]] static base::Result<Hold> make(rdma::PeerHandle process, const base::Fd& arena,
                                               uint32_t thread);
  Hold(Hold&&) = default;

  // Stops all other threads of the process. kNot: they are stopped, and the words say so under
  // `serial`. Otherwise some may have been stopped, and run again after let_go().
  [[nodiscard]] ipc::Reached stop(uint32_t serial);
  // Returns when the program is done, has died, has rested or has exceeded its time, or when
  // `hurry` returns true.
  void keep(const std::function<bool()>& hurry);
  void let_go();

 private:
  enum class State : uint8_t { kSeized, kStopped, kGone };
  struct Thread {
    State state = State::kSeized;
    int signal = 0;  // that stopped it; delivered at the detach
  };

  Hold(rdma::PeerHandle process, base::Fd tasks, base::Mapping page);
  [[nodiscard]] bool list(std::vector<pid_t>* found) const;
  [[nodiscard]] bool is_spared(pid_t thread);
  [[nodiscard]] std::string read(pid_t thread, const char* file) const;
  [[nodiscard]] bool is_there(pid_t thread) const;
  [[nodiscard]] ipc::Reached wait_for_calls(const std::vector<pid_t>& threads) const;
  [[nodiscard]] ipc::Reached seize(pid_t thread);
  [[nodiscard]] ipc::Reached await(pid_t thread, Thread* its);
  [[nodiscard]] ipc::Reached await_all(Clock::time_point deadline);
  void begin_again(pid_t thread, int signal) const;
  [[nodiscard]] ipc::HoldWords& words() const {
    return *page_.at<ipc::HoldWords>(ipc::kHoldOffset);
  }
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] bool one_has_ended() const;

  rdma::PeerHandle process_;
  base::Fd tasks_;  // /proc/PID/task
  base::Mapping page_;
  uint32_t wanted_ = 0;  // the thread that keeps running, by its number in its own pid namespace
  pid_t spared_ = 0;     // the same thread in ours
  uint32_t serial_ = 0;
  std::map<pid_t, Thread> threads_;
};

}  // namespace vrdma::vrdmad::stopper
