// One process whose other threads are kept from running, from ptrace(2)'s attach to its detach.
//
// A thread of the stopper makes one Hold, uses it, and ends: what it could not let go of in order
// (a thread that was seized and did not stop) the kernel lets go then. Signals that arrive as a
// thread stops are passed on, also if the stopper is killed: they are looked at and left in place
// (WNOWAIT) until the thread is let go.
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
  static constexpr auto kLongest = std::chrono::milliseconds(200);   // then it ends,
  static constexpr auto kHardest = std::chrono::milliseconds(1000);  // and then in any case
  static constexpr size_t kMostThreads = 4096;

  // `arena` has the HoldWords, see core/ipc/layout.h.
  [[nodiscard]] static base::Result<Hold> make(rdma::PeerHandle process, const base::Fd& arena,
                                               uint32_t thread);
  Hold(Hold&&) = default;

  // Stops all threads of the process but one. kNot: they are stopped, and the words say so under
  // `serial`. Else some may have been stopped for a while, and run again after let_go().
  [[nodiscard]] ipc::Reached stop(uint32_t serial);
  // Until the program says that it is done, has died, or was given long enough, or `hurry`.
  void keep(const std::function<bool()>& hurry);
  void let_go();

 private:
  enum class State : uint8_t { kSeized, kStopped, kGone };
  struct Thread {
    State state = State::kSeized;
    int signal = 0;  // that it stopped for, and gets when it is let go
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
  uint32_t wanted_ = 0;  // the thread that runs on, as its namespace has it
  pid_t spared_ = 0;     // the same, as we have it
  uint32_t serial_ = 0;
  std::map<pid_t, Thread> threads_;
};

}  // namespace vrdma::vrdmad::stopper
