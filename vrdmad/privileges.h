// What the daemon's processes may do after their start.
//
// The broker keeps some capabilities; privileges.cc lists them, each with its reason and the files
// that need it. The systemd unit (packaging/systemd/vrdmad.service) allows the same set, and a test
// compares the two. The daemon itself, which serves tenants and operators, keeps none, and changes
// to another user.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::vrdmad {

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
};

// The names of needed capabilities that this process lacks (in a container, for example), for the
// log.
[[nodiscard]] std::vector<std::string> missing_capabilities();

// Both act on this thread and those that it starts, permanently, and for programs that it could
// execute (bounding set, no-new-privileges). Call before threads exist.
// Drops all other capabilities.
[[nodiscard]] base::Result<void> keep_broker_privileges();
// Becomes the user and drops all capabilities. The process cannot be traced by others of that user.
[[nodiscard]] base::Result<void> drop_privileges(const User& user);

}  // namespace vrdma::vrdmad
