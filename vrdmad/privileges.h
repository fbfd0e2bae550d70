// What the daemon may do once it has started: the capabilities that it needs, and nothing else.
//
// privileges.cc lists them, each with its reason and the files that need it; the systemd unit
// (packaging/systemd/vrdmad.service) allows the same and a test compares the two.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::vrdmad {

// For this thread and those that it starts: gives up all other capabilities for good, also for
// programs that it could execute (bounding set, no-new-privileges). Call it before threads are
// made. Needed ones that this process does not have (in a container, say) are left out: their
// names, for the log.
[[nodiscard]] base::Result<std::vector<std::string>> drop_privileges();

}  // namespace vrdma::vrdmad
