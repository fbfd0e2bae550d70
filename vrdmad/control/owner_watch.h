// The process that a vdevice belongs to: whether it is still there, and when it ends.
//
// A process is known by its pid, its start time and the boot: a pid alone may be another process's
// after a while, and so may a pid with its start time after a reboot. The daemon holds a pidfd,
// which stays bound to the process, so that no later process of the same pid is taken for it.
//
// Sources: pidfd_open(2), proc_pid_stat(5), /proc/sys/kernel/random/boot_id.
//
// Belongs to the control thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

class OwnerWatch {
 public:
  // What an operator said, with all that identifies the process. ESRCH: there is no such process,
  // or it is another one than that which started then.
  [[nodiscard]] static base::Result<Owner> identify(const Owner& said, const std::string& boot_id);

  // `ended` is called once, from the loop, when the process has ended; not after the destructor.
  // ESRCH: it has ended before, also with an earlier boot.
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

}  // namespace vrdma::vrdmad
