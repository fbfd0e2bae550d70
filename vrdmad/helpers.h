// The helper processes of the daemon: intake, stopper and broker.
//
// Each executes the program vrdmad-helper (helper_main.cc), which contains only what they need.
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
// What the kernel isolates worker processes by, beside their namespaces.
struct WorkerBounds {
  std::string cgroup;    // see prepare_parent_groups()
  uid_t first_user = 0;  // see BrokerPlace
};
// Call with the privileges of root. Returns when all of them serve. `user`: of the daemon, and so
// of the intake. `run_dir`: see BrokerPlace. `requests`: how many the broker serves at a time.
[[nodiscard]] base::Result<Helpers> start_helpers(const User& user, const std::string& run_dir,
                                                  const WorkerBounds& workers, unsigned requests);

}  // namespace vrdma::vrdmad
