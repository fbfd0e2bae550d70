// What control asked its workers and waits for, each with a time limit.
//
// Control never blocks on a worker: an admin call, or whatever else needs the answer, goes on when
// the answer comes or the time is over. Belongs to the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "core/base/event_loop.h"
#include "vrdmad/worker/messages.h"

namespace vrdma::vrdmad {

class Answers {
 public:
  // nullptr: the time is over, or the worker was lost.
  using Then = std::function<void(const ToControl* answer)>;

  explicit Answers(base::EventLoop& loop) : loop_(loop) {}
  // The ticket that the answer must have. Calls `then` once, from the loop. `domain`: of the worker
  // that is asked (workers.h).
  [[nodiscard]] uint64_t expect(const std::string& domain, base::Duration limit, Then then);
  // One that comes too late, or from another domain, is dropped.
  void came(const std::string& domain, const ToControl& answer);
  // The worker has ended: this is the answer to all that it was asked; nullptr: it was lost.
  void ended(const std::string& domain, const ToControl* answer);

 private:
  struct Expected {
    std::string domain;
    Then then;
    base::EventLoop::Timer limit;
  };
  void end(uint64_t ticket, const ToControl* answer);

  base::EventLoop& loop_;
  uint64_t last_ = 0;
  std::map<uint64_t, Expected> expected_;
};

}  // namespace vrdma::vrdmad
