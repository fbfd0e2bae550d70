// The helper processes of the daemon: intake, stopper and broker.
//
// The daemon forks them before it does anything else, and then executes its program again. A fork
// has the address layout and the stack canary of its parent; so what a bug in the daemon discloses
// does not help against the broker, which has privileges.
#pragma once

#include <memory>
#include <string>

#include "core/base/error.h"
#include "vrdmad/broker/broker_process.h"
#include "vrdmad/broker/intake.h"
#include "vrdmad/privileges.h"
#include "vrdmad/stopper/stopper.h"

namespace vrdma::vrdmad {

struct Helpers {
  std::unique_ptr<Intake> intake;
  std::unique_ptr<Stopper> stopper;
  std::shared_ptr<BrokerProcess> broker;
};
// Call first, with the standard streams open and nothing else, and without threads. Does not return
// from the first call; returns in the program that it executes, where the environment names the
// helpers' sockets. `user`: of the intake. `run_dir`: see LocalBroker. `cgroup`: see
// prepare_parent_groups(). `requests`: how many the broker serves at a time.
[[nodiscard]] base::Result<Helpers> start_helpers(const User& user, const std::string& run_dir,
                                                  const std::string& cgroup, unsigned requests);
// Whether this is the program that was executed again.
[[nodiscard]] bool have_helpers();

}  // namespace vrdma::vrdmad
