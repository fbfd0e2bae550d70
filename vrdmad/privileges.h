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
// The user of that name or number. ENOENT: there is none. EINVAL: this user namespace has no such
// number, as in a container of one user.
[[nodiscard]] base::Result<User> find_user(const std::string& name);

// Makes a directory with its parents if it is missing, and gives it to the user. Gives it with all
// that root has in it, unless that is more than `ours` (names, or their beginnings before a '*'):
// then it is another program's directory, and nothing is changed. `kept` stays root's. Does nothing
// to a directory of another user than root, nor where another user could have put it: each
// directory above must be root's, and none a link.
struct OwnDirectory {
  std::string path;
  mode_t mode = 0755;  // of a new one
  std::vector<std::string> ours;
  std::string kept;
};
[[nodiscard]] base::Result<void> give(const OwnDirectory& directory, const User& user);
// The same for a file. Does nothing to what is no plain file.
[[nodiscard]] base::Result<void> give_file(const std::string& path, const User& user);

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
