// The user that the daemon becomes, and the files that root gives to that user before.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/error.h"
#include "vrdmad/privileges.h"

namespace vrdma::vrdmad {

// The user of that name or number. ENOENT: there is none. EINVAL: this user namespace has no such
// number, as in a container of one user.
[[nodiscard]] base::Result<User> find_user(const std::string& name);

// Whether this user namespace has the users and groups with these numbers (user_namespaces(7)).
[[nodiscard]] bool are_mapped(uid_t first, unsigned count);

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
// EPERM: the directory is this user's, and others can write to it or have files there. Changes
// nothing; one that does not exist is in order.
[[nodiscard]] base::Result<void> check_own(const OwnDirectory& directory);
// As give(), for a file. Does nothing to what is no plain file.
[[nodiscard]] base::Result<void> give_file(const std::string& path, const User& user);

}  // namespace vrdma::vrdmad
