// Where a broker works, and for whom.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace vrdma::vrdmad {

struct BrokerPlace {
  // Listeners are below its netns/, and the processes that were checked are written down in its
  // broker/. Empty, for tests: listeners are anywhere, and each process counts as checked.
  std::string run_dir;
  static constexpr unsigned kMostWorkers = 4'096;  // processes
  // The daemon's user. Processes of the daemon get no entry, because an entry gives access to what
  // they cannot open. Those of this user are in the broker's network namespace, and cannot leave
  // it; a tenant with this uid is in another namespace. 0: root, for which there is no such check.
  // Workers are recognized by their network namespace.
  uid_t daemon = 0;
  gid_t group = 0;
  // The program of worker processes. Empty: `vrdmad-worker`, where open_program() finds it
  // (program.h).
  std::string worker = {};
  // The directories of the control groups below which worker processes get theirs. None: they get
  // none.
  std::vector<std::string> groups = {};
  // The first of kMostWorkers uids and gids of worker processes, of which each has one by itself.
  // 0: they have the daemon's.
  uid_t first_worker_user = 0;
  // What the requests of a worker may cost: ns in a second. It may save some seconds' worth, for
  // the sessions that are opened at once.
  uint64_t worker_time = 250'000'000;
};

}  // namespace vrdma::vrdmad
