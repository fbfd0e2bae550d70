// Where a broker works, and for whom.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace vrdma::vrdmad {

struct BrokerPlace {
  // Listeners are below its netns/, and the processes that were checked are written down in its
  // broker/. Empty, for tests: listeners are anywhere, and each process counts as checked.
  std::string run_dir;
  // The daemon's uid. Processes of the daemon get no entry, because an entry gives access to what
  // they cannot open. They are in the broker's network namespace, or in that of the workers, and
  // cannot leave it; a tenant with this uid is in another namespace. 0: root, for which there is no
  // such check. Worker processes have the same uid.
  uid_t daemon = 0;
  gid_t group = 0;  // of worker processes
  // The program of worker processes. Empty: `vrdmad-worker`, where open_program() finds it
  // (program.h).
  std::string worker = {};
  // The directories of the control groups below which worker processes get theirs. None: they get
  // none.
  std::vector<std::string> groups = {};
};

}  // namespace vrdma::vrdmad
