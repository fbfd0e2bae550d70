// What /sys/class/infiniband says of a vdevice, as plain files in the run directory.
//
// The kernel knows nothing of a vdevice, so its sysfs shows none; yet programs look there for
// what verbs does not tell: the netdev, the type of a GID, the NUMA node. These files have the
// names and the format of the kernel's (Documentation/ABI/stable/sysfs-class-infiniband), and the
// content of what the session socket answers.
//
//   DIR/device/            to be mounted on /sys/devices/virtual/vrdma/<vdevice>, where
//     infiniband/<vdevice>/    is what /sys/class/infiniband/<vdevice> must lead to
//   DIR/infiniband_verbs/  to be mounted on /sys/class/infiniband_verbs/uverbs<N>
//
// This is the order of an adapter in its PCI device, in which programs walk: <vdevice>/device and
// <vdevice>/../.. are the device, with its numa_node. "virtual" in its path says that there is no
// PCI device to look for.
//
// They are in a directory that only root can enter (vrdmad/control/run_dir.h): whoever sets up a
// tenant's view mounts the tenant's own, see cli/environment.h. No `dev` in the second and no
// device node: a library that is not ours must not take it for a device of the kernel.
//
// The tree appears as a whole, and a file of it is replaced as a whole, never half written. A
// tenant may be root and have found a way to write in it: no symlink of the tree is ever followed.
//
// Used by the control thread only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/rdma/traffic.h"
#include "core/verbs/gid.h"

namespace vrdma::vrdmad {

struct SysfsView {
  std::string name;
  std::string node_guid;  // "0211:22ff:fe33:4455"
  std::string firmware;
  std::string netdev;
  bool up = false;
  std::vector<verbs::Gid> gids;  // the table, by index
  std::string cpus;              // of the host, as a list: "0-3,8"
  uint64_t downs = 0;            // how often the port went down
};

// What programs have of it, as rdma-resource(8) calls it.
struct SysfsResources {
  uint64_t pd = 0, cq = 0, qp = 0, cm_id = 0, mr = 0, ctx = 0, srq = 0;
};

struct SysfsFile {
  bool link = false;
  std::string text;    // what is read, with its newline; or where the link leads
  bool moves = false;  // the text is where it begins: see SysfsTree::counters()

  bool operator==(const SysfsFile&) const = default;
};
using SysfsFiles = std::map<std::string, SysfsFile>;  // by path below DIR

// The same as a mask, as the kernel prints one: "10f", groups of 32 bits from the highest on.
[[nodiscard]] std::string cpu_mask(const std::string& cpus);

[[nodiscard]] SysfsFiles sysfs_files(const SysfsView& view);
// Of the files that move; by path.
[[nodiscard]] std::map<std::string, uint64_t> sysfs_counters(const std::string& name,
                                                             const rdma::TrafficCounters& traffic,
                                                             const SysfsResources& resources);

// Owns DIR, and DIR~ while that is made: by the first show(). The destructor removes it. If there
// is a DIR already, of a daemon that has ended, the first show() takes it over with all of its
// directories, which may be mounted.
class SysfsTree {
 public:
  explicit SysfsTree(std::string dir) : dir_(std::move(dir)) {}
  ~SysfsTree();
  SysfsTree(const SysfsTree&) = delete;
  SysfsTree& operator=(const SysfsTree&) = delete;

  // Makes the files say `view`; writes what changed, removes what is not in it any more.
  [[nodiscard]] base::Result<void> show(const SysfsView& view);
  void leave() { left_ = true; }  // to another daemon
  // After the first show(): the files that move, by path and open for writing. Once.
  [[nodiscard]] std::map<std::string, base::Fd> counters() { return std::move(counters_); }

 private:
  [[nodiscard]] base::Result<void> make(const SysfsFiles& files);

  std::string dir_;
  bool left_ = false;
  SysfsFiles shown_;  // empty: nothing has been made yet
  std::map<std::string, base::Fd> counters_;
};

}  // namespace vrdma::vrdmad
