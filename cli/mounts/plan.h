// What has to be mounted for programs to find vdevices where they look beside verbs:
//
//   /sys/devices/virtual/vrdma/<vdevice>/    what vrdmad keeps (vrdmad/control/sysfs_tree.h)
//   /sys/class/infiniband/<vdevice>          a link to <vdevice>/infiniband/<vdevice> in there
//   /sys/class/infiniband_verbs/uverbs<N>/   N: one that no other device has
//   /dev/infiniband/<vdevice>                a null device: some programs ask whether they may open
//                                            the node of that name, and use verbs if they may
//
// beside all that was there before. A plan is data: whoever gives a program its file system, be it
// `vrdmactl exec`, a container's hook or a CDI specification, carries the same list out in its own
// way. No directory can be made in sysfs, so a tmpfs that holds what was there covers a class
// directory that is to hold more.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace vrdma::cli {

// One step. All paths are absolute; `to` is of the program's file system. Steps are carried out in
// their order, and a step's mount point that is not there is made first.
struct Mount {
  enum class Kind : uint8_t {
    kDirectory,  // a directory, mode 0755, if it is not there
    kSysfs,      // sysfs of the program's network namespace
    kTmpfs,      // an empty tmpfs, mode 0755
    kLink,       // a symbolic link that says `from`
    kBind,       // `from`, with all that is mounted below it
  };
  Kind kind = Kind::kBind;
  std::string to;
  std::string from;
  // Of kBind: `from` is a path of the program's own file system as it was before the first step of
  // the plan; otherwise, one of the host's.
  bool own = false;
  bool file = false;       // of kBind: `from` is no directory
  bool read_only = false;  // of kSysfs and kBind
  bool optional = false;   // without it, programs see less and nothing else

  bool operator==(const Mount&) const = default;
};
using Plan = std::vector<Mount>;

// What a directory of the program's file system holds.
struct Entry {
  enum class Kind : uint8_t { kDirectory, kFile, kLink };
  std::string name;
  Kind kind = Kind::kDirectory;
  std::string target;  // of a link
};
// In any order; none: there is no such directory.
using Look = std::function<std::optional<std::vector<Entry>>(const std::string& directory)>;

struct ShownVdevice {
  std::string name;
  std::string tree;  // on the host: R/sysfs/<cookie>/<name>
};

// Of a program whose /sys is another network namespace's. `below` are the mount points below /sys
// (control groups, debugfs, ...), those that are below another one of them left out.
[[nodiscard]] Plan plan_sysfs(const std::vector<std::string>& below, bool read_only);

// `vdevices` are those of the program's network namespace. One whose name /sys/class/infiniband has
// already is left out: it is shown by a plan before this one, or is a device of the kernel.
[[nodiscard]] Plan plan_devices(const Look& look, std::vector<ShownVdevice> vdevices);

}  // namespace vrdma::cli
