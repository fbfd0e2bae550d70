// The control groups in which the broker makes those of worker processes
// (vrdmad/broker/worker_groups.h, cgroups(7)).
//
// It is one group of each hierarchy that has the controllers: of version 1 `cpu` and `pids`, of
// version 2 `memory` too. vrdmad makes groups only below a group that it was given:
// that in which it was started, if the service manager has delegated it (Delegate=yes), or the
// group that the operator names. A worker is never in the group of a tenant or pod, whose manager
// would count, limit, kill and remove it with the rest.
//
// In version 2 a group with controllers for its children may have no processes. vrdmad therefore
// moves itself from its own group into a child of it, kOwnGroup.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::vrdmad {

// The name of vrdmad's own group below the one that it was given.
inline constexpr const char* kOwnGroup = "daemon";

// A mounted hierarchy of control groups.
struct Hierarchy {
  bool unified = false;                  // of version 2
  std::vector<std::string> controllers;  // of version 1, or its name (`name=systemd`)
  std::string root;                      // the group that is mounted
  std::string mount;                     // where
  std::string own;                       // the group of this process

  [[nodiscard]] bool has(const std::string& controller) const;
  // Of a group; empty: it is not below the mounted group.
  [[nodiscard]] std::string directory(const std::string& group) const;
};
// From the content of /proc/PID/mountinfo and /proc/PID/cgroup.
[[nodiscard]] std::vector<Hierarchy> find_hierarchies(std::istream& mountinfo,
                                                      std::istream& groups);
// Of this process.
[[nodiscard]] std::vector<Hierarchy> own_hierarchies();

// Whether it begins with '/', and no part is empty, "." or "..".
[[nodiscard]] bool is_group_path(const std::string& path);

// Prepares the groups, and logs where they are, or why there are none. Returns their directories.
// `asked`: the path of a group, which is made in each hierarchy of `all` where it is missing; or
// "none"; or empty: that of this process, if it is delegated. If `asked` names a group that cannot
// be used, that is an error. Call as root, before this process has threads or children.
[[nodiscard]] base::Result<std::vector<std::string>> prepare_parent_groups(
    const std::string& asked, const std::vector<Hierarchy>& all);

}  // namespace vrdma::vrdmad
