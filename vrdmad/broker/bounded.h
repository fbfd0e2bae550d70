// Looks at processes that may keep the onlooker waiting.
//
// A process in execve(2) whose old memory goes slowly, because it is large or a file's whose server
// does not answer, keeps waiting whoever opens or reads most of its files in /proc (the kernel's
// exec_update_lock). So that is done by threads that may hang. Whoever asked waits for one that
// works, or has not got a processor, but not for one that after kPatience is found to sleep in the
// kernel. Then the network namespace that the process is of is closed for a while: nobody of it is
// looked at as long as such a thread hangs, and kPenalty longer. So a tenant delays others by
// little more than kPatience in kPenalty.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "core/base/event_loop.h"

namespace vrdma::vrdmad {

// Any thread.
class Bounded {
 public:
  static constexpr std::chrono::milliseconds kPatience{50};
  static constexpr std::chrono::milliseconds kPenalty{2500};
  static constexpr std::chrono::seconds kLongest{5};  // for one that works

  Bounded();
  Bounded(const Bounded&) = delete;
  Bounded& operator=(const Bounded&) = delete;
  ~Bounded();  // threads that hang are left to themselves

  // Runs `job` on a thread of its own. False: it has not ended in time, or was not begun, and then
  // `job` may yet run, or be running: it must own what it uses.
  [[nodiscard]] bool run(uint64_t netns, std::function<void()> job);
  // Until somebody of the namespace may be looked at.
  [[nodiscard]] base::Duration closed_for(uint64_t netns);

 private:
  struct Job;
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);
  const std::shared_ptr<Shared> shared_;
};

}  // namespace vrdma::vrdmad
