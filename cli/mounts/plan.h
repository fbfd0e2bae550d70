// The mounts by which programs find vdevices in sysfs and /dev:
//
//   /sys/devices/virtual/vrdma/<vdevice>/    vrdmad's files (vrdmad/control/sysfs_tree.h)
//   /sys/class/infiniband/<vdevice>          a link to <vdevice>/infiniband/<vdevice> in there
//   /sys/class/infiniband_verbs/uverbs<N>/   N: unused by other devices
//   /dev/infiniband/<vdevice>                a null device: some programs use verbs only if they
//                                            may open the node of that name
//
// beside everything that was there before. A plan is data: `vrdmactl exec` and a container's hook
// (cli/hook) each carry the same list out in their own way. Directories cannot be made in
// sysfs, so a class directory that must hold more is covered by a tmpfs with the previous contents.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace vrdma::cli {

// One step. All paths are absolute; `to` is in the program's file system. Steps are carried out in
// order; a missing mount point is created first.
struct Mount {
  enum class Kind : uint8_t {
    kDirectory,  // a directory, mode 0755, unless it exists
    kSysfs,      // sysfs of the program's network namespace
    kTmpfs,      // an empty tmpfs, mode 0755
    kLink,       // a symbolic link with target `from`
    kBind,       // `from`, with all mounts below it
  };
  Kind kind = Kind::kBind;
  std::string to;
  std::string from;
  // For kBind: `from` is a path in the program's own file system before the first step of the plan;
  // otherwise, in the host's.
  bool own = false;
  bool file = false;       // for kBind: `from` is not a directory
  bool read_only = false;  // for kSysfs and kBind
  bool optional = false;   // if it fails, programs see less, but nothing else

  bool operator==(const Mount&) const = default;
};
using Plan = std::vector<Mount>;

// An entry of a directory in the program's file system.
struct Entry {
  enum class Kind : uint8_t { kDirectory, kFile, kLink };
  std::string name;
  Kind kind = Kind::kDirectory;
  std::string target;  // of a link
};
// In any order; none: no such directory.
using Look = std::function<std::optional<std::vector<Entry>>(const std::string& directory)>;

struct ShownVdevice {
  std::string name;
  std::string tree;  // on the host: R/sysfs/<cookie>/<name>
};

// For a program whose /sys shows another network namespace. `below` are the mount points below /sys
// (control groups, debugfs, ...), except those below another of them.
[[nodiscard]] Plan plan_sysfs(const std::vector<std::string>& below, bool read_only);

// `vdevices` are those of the program's network namespace. Omits one whose name exists in
// /sys/class/infiniband: an earlier plan shows it, or it is a device of the kernel.
[[nodiscard]] Plan plan_devices(const Look& look, std::vector<ShownVdevice> vdevices);

}  // namespace vrdma::cli
