// Runs inspections of processes with a time limit, in threads that may hang.
//
// execve(2) holds the process's exec_update_lock while the kernel frees the old memory. If that
// memory is large, or maps a file whose server does not answer, every open or read of most of its
// files in /proc blocks for as long. run() waits while the inspecting thread computes or waits for
// a processor, but gives up on a thread that sleeps in the kernel after kPatience, at each look in
// the next 35 ms. It then closes the network namespace of the process: no process in it is
// inspected until the thread returns and kPenalty has passed. So a tenant can delay others by less
// than twice kPatience in every kPenalty.
//
// To look at a process can also take much processor time: the kernel writes each of up to 65,536
// supplementary groups down. The processes of a namespace may use one part in kPart of that time,
// and kAtOnce of it at once. Beyond, the namespace is closed until that is paid.
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
  static constexpr std::chrono::seconds kLongest{5};  // for a thread that does not sleep
  static constexpr int kPart = 20;
  static constexpr std::chrono::milliseconds kAtOnce{200};
  // Processor time of each look that is not charged. A sanitizer makes looks take many times as
  // long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr std::chrono::milliseconds kFree{20};
#else
  static constexpr std::chrono::milliseconds kFree{2};
#endif

  Bounded();
  Bounded(const Bounded&) = delete;
  Bounded& operator=(const Bounded&) = delete;
  ~Bounded();  // does not wait for hung threads

  // Runs `job` on a separate thread. False: `job` did not finish in time, or was not started. It
  // may still run later, so it must own everything it uses. `pays`: for its processor time.
  [[nodiscard]] bool run(uint64_t netns, std::function<void()> job, bool pays = true);
  // Time until processes of the namespace may be inspected.
  [[nodiscard]] base::Duration closed_for(uint64_t netns);

 private:
  struct Job;
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);
  const std::shared_ptr<Shared> shared_;
};

}  // namespace vrdma::vrdmad
