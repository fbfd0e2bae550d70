// The capabilities that the daemon keeps after its start.
//
// privileges.cc lists them, each with its reason and the files that need it; the systemd unit
// (packaging/systemd/vrdmad.service) allows the same set, and a test compares the two.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::vrdmad {

// Drops all other capabilities of this thread and of those that it starts, permanently and for
// programs that it could execute (bounding set, no-new-privileges). Call before threads exist.
// Returns the names of needed capabilities that this process lacks (in a container, for example),
// for the log.
[[nodiscard]] base::Result<std::vector<std::string>> drop_privileges();

}  // namespace vrdma::vrdmad
