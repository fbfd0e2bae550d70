// The content of /sys/class/infiniband for a vdevice, as plain files in the run directory.
//
// The kernel has no device for a vdevice, so its sysfs has no entry. Programs still look there for
// what verbs does not return: the netdev, the type of a GID, the NUMA node. These files have the
// names and the format of the kernel's (Documentation/ABI/stable/sysfs-class-infiniband), with the
// values that the session socket returns.
//
//   DIR/device/            to be mounted on /sys/devices/virtual/vrdma/<vdevice>, where
//     infiniband/<vdevice>/    is what /sys/class/infiniband/<vdevice> must lead to
//   DIR/infiniband_verbs/  to be mounted on /sys/class/infiniband_verbs/uverbs<N>
//
// An adapter has the same layout in the directory of its PCI device, and programs rely on it:
// <vdevice>/device and <vdevice>/../.. are the device, with its numa_node. "virtual" in its path
// tells programs not to search for a PCI device.
//
// Only root can enter the directory (vrdmad/control/run_dir.h); the program that sets up a tenant's
// view mounts the tenant's own trees, see cli/environment.h. The second has no `dev` file and no
// device node, so that other libraries do not take it for a device of the kernel.
//
// The tree appears as a whole, and each file is replaced as a whole, never half written. A tenant
// may be root and have found a way to write in it, so no symlink in the tree is ever followed.
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
#include "core/verbs/capabilities.h"
#include "core/verbs/gid.h"
#include "provisioning/ledger.h"
#include "transport/roce/counters.h"

namespace vrdma::vrdmad {

struct SysfsView {
  std::string name;
  std::string node_guid;  // "0211:22ff:fe33:4455"
  std::string firmware;
  std::string netdev;  // empty: it has none yet
  bool up = false;
  std::vector<verbs::Gid> gids;  // the table, by index
  std::string cpus;              // of the host, as a list: "0-3,8"
  uint64_t downs = 0;            // how often the port went down
  verbs::Capabilities capabilities = verbs::kSoftCapabilities;
};

struct SysfsFile {
  bool link = false;
  std::string text;    // the content with its newline, or the target of the link
  bool moves = false;  // a counter, of which `text` is the first value: see SysfsTree::counters()

  bool operator==(const SysfsFile&) const = default;
};
using SysfsFiles = std::map<std::string, SysfsFile>;  // by path below DIR

// A CPU list as the kernel's mask: "10f", in groups of 32 bits from the highest.
[[nodiscard]] std::string cpu_mask(const std::string& cpus);

[[nodiscard]] SysfsFiles sysfs_files(const SysfsView& view);
// The values of the counters, by path. `rows`: what the vdevice uses; 0 of a kind without a row.
[[nodiscard]] std::map<std::string, uint64_t> sysfs_counters(
    const std::string& name, const rdma::TrafficCounters& traffic,
    const transport::roce::Counters& network, const std::vector<provisioning::Row>& rows);

// Owns DIR, and DIR~ while the first show() builds it. The destructor removes it. A DIR that the
// previous daemon left is taken over with all of its directories, which may be mounted.
class SysfsTree {
 public:
  explicit SysfsTree(std::string dir) : dir_(std::move(dir)) {}
  ~SysfsTree();
  SysfsTree(const SysfsTree&) = delete;
  SysfsTree& operator=(const SysfsTree&) = delete;

  // Makes the files show `view`: writes those that changed and removes those that it no longer has.
  [[nodiscard]] base::Result<void> show(const SysfsView& view);
  // Owns a DIR that is there; the first show() does so by itself.
  void take_over();
  void leave() { left_ = true; }  // keeps DIR for the next daemon
  // After the first show(): the counters' files by path, open for writing. Call once.
  [[nodiscard]] std::map<std::string, base::Fd> counters() { return std::move(counters_); }

 private:
  [[nodiscard]] base::Result<void> make(const SysfsFiles& files);

  std::string dir_;
  bool left_ = false;
  SysfsFiles shown_;  // empty: nothing was made yet
  std::map<std::string, base::Fd> counters_;
};

}  // namespace vrdma::vrdmad
