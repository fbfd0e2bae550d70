// The processes that own vdevices, or are the first of a container: of this host, or of a
// simulation (tests/sim).
//
// Pid, start time and boot id identify a process: a pid alone may be reused, and so may a pid with
// its start time after a reboot.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "netns/routed_netdevs.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

// Belongs to the control thread, unless a function says otherwise.
class Processes {
 public:
  // Its destructor ends the watch.
  struct Watch {
    virtual ~Watch() = default;
  };
  Processes() = default;
  virtual ~Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Of the present boot; the same until the object ends.
  [[nodiscard]] virtual const std::string& boot_id() const = 0;
  // Completes the operator's identification of the process. ESRCH: no such process, or one with
  // another start time.
  [[nodiscard]] virtual base::Result<Owner> identify(const Owner& said) = 0;
  // Calls `ended` once, from the loop, when the process has ended, but not after the watch's end.
  // ESRCH: it has already ended, perhaps with an earlier boot. The watch must not outlive this.
  [[nodiscard]] virtual base::Result<std::unique_ptr<Watch>> watch(const Owner& owner,
                                                                   std::function<void()> ended) = 0;
  // The netdevs of its network namespace that have addresses. ESRCH: it has ended. Any thread; the
  // kernel may need long for it.
  [[nodiscard]] virtual base::Result<netns::RoutedNetdevs> netdevs(pid_t pid) const = 0;
};

// By the id of the container and the pid of its first process, which several ids may name.
using OwnerWatches = std::map<std::pair<std::string, uint32_t>, std::unique_ptr<Processes::Watch>>;

// Those of this host. A watch holds a pidfd, which stays bound to the process, so that a later
// process of the same pid is not mistaken for it.
//
// Sources: pidfd_open(2), proc_pid_stat(5), /proc/sys/kernel/random/boot_id.
class HostProcesses final : public Processes {
 public:
  explicit HostProcesses(base::EventLoop& loop);
  // Of another boot: for tests.
  HostProcesses(base::EventLoop& loop, std::string boot_id)
      : loop_(loop), boot_id_(std::move(boot_id)) {}

  [[nodiscard]] const std::string& boot_id() const override { return boot_id_; }
  [[nodiscard]] base::Result<Owner> identify(const Owner& said) override;
  [[nodiscard]] base::Result<std::unique_ptr<Watch>> watch(const Owner& owner,
                                                           std::function<void()> ended) override;
  [[nodiscard]] base::Result<netns::RoutedNetdevs> netdevs(pid_t pid) const override {
    return netns::routed_netdevs(pid);
  }

 private:
  base::EventLoop& loop_;
  const std::string boot_id_;
};

}  // namespace vrdma::vrdmad
