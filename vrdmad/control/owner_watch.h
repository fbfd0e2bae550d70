// The process that owns a vdevice: identifies it and reports its end.
//
// Pid, start time and boot id identify a process: a pid alone may be reused, and so may a pid with
// its start time after a reboot. The daemon holds a pidfd, which stays bound to the process, so a
// later process of the same pid is not mistaken for it.
//
// Sources: pidfd_open(2), proc_pid_stat(5), /proc/sys/kernel/random/boot_id.
//
// Belongs to the control thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

class OwnerWatch {
 public:
  // Completes the operator's identification of the process. ESRCH: no such process, or one with
  // another start time.
  [[nodiscard]] static base::Result<Owner> identify(const Owner& said, const std::string& boot_id);

  // Calls `ended` once, from the loop, when the process has ended, but not after the destructor.
  // ESRCH: it has already ended, perhaps with an earlier boot.
  [[nodiscard]] static base::Result<std::unique_ptr<OwnerWatch>> start(base::EventLoop& loop,
                                                                       const Owner& owner,
                                                                       const std::string& boot_id,
                                                                       std::function<void()> ended);
  OwnerWatch(const OwnerWatch&) = delete;
  OwnerWatch& operator=(const OwnerWatch&) = delete;
  ~OwnerWatch() = default;

 private:
  OwnerWatch() = default;
  base::Fd pidfd_;
  base::EventLoop::Watch watch_;
};

// By the id of the container and the pid of its first process, which several ids may name.
using OwnerWatches = std::map<std::pair<std::string, uint32_t>, std::unique_ptr<OwnerWatch>>;

}  // namespace vrdma::vrdmad
