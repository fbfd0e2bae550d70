// What the daemon holds of a vdevice.
#pragma once

#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gid/layout.h"
#include "gid/prefix.h"
#include "vrdmad/control/daemon.h"
#include "vrdmad/worker/raw_gsi.h"

namespace vrdma::vrdmad {

// Undone from the bottom up.
struct Daemon::Record {
  uint64_t id = 0;
  std::string label;  // what the log calls it
  VdevSpec spec;
  std::vector<QuotaSetting> asked;                 // the quota that was named when it was made
  std::shared_future<base::Result<void>> on_disk;  // invalid: it was made before this daemon
  bool owner_ended = false;
  std::string tenant, fabric;
  gid::NodeGuid node_guid;
  netns::Link link;
  StoredVdev stored;                  // as it is on disk, or will be
  bool leaving = false;               // it is being deleted: nothing of it is stored any more
  uint32_t number = 0;                // of its session socket
  std::vector<gid::Prefix> prefixes;  // as the operator said
  gid::Layout layout = gid::Layout::kDense;
  std::vector<verbs::Gid> first_addresses;  // that the netdev had when it was made
  std::set<verbs::Gid> ignored;             // addresses that it has and may not
  uint64_t ignored_so_far = 0;
  uint64_t foreign = 0;  // connections from another netns
  bool crowded = false;  // it was said that there are addresses without a GID
  Budgets::Allotment allotment;
  std::unique_ptr<OwnerWatch> owner;  // none: it has none, or that has ended
  std::shared_ptr<void> netns_dir;
  std::unique_ptr<SysfsTree> sysfs;  // none: no operator has wanted to see it
  uint64_t downs = 0;                // how often the link went down
  gid::Registry::Holding gids;
  netns::Monitor::LinkWatch watch;
  std::shared_ptr<RawGsi> gsi;  // none: not allowed
  std::shared_ptr<Entrance> entrance = std::make_shared<Entrance>();
  std::shared_ptr<void> in_worker;
  std::unique_ptr<CmDevice> cm;
  std::unique_ptr<SessionSocket> socket;
  std::shared_ptr<SessionSocket> cm_socket;
  std::unique_ptr<CounterFiles> counter_files;  // of `sysfs`

  // The GID table, by index.
  [[nodiscard]] std::vector<verbs::Gid> table() const { return gid::lay_out(gids.gids(), layout); }
};

// Names become file names and words of a command line. `what`: "the vdevice".
[[nodiscard]] base::Result<void> check_name(const std::string& what, const std::string& name);
// Whose it is, and whom it can meet: as the operator said, or its own.
[[nodiscard]] std::string tenant_of(const VdevSpec& spec, uint64_t id);
[[nodiscard]] std::string fabric_of(const VdevSpec& spec, uint64_t id);
[[nodiscard]] inline std::string fabric_of(const StoredVdev& vdev) {
  return fabric_of(vdev.spec, vdev.id);
}
// Bytes of payload a packet, on a netdev of that MTU.
[[nodiscard]] uint32_t roce_mtu(uint32_t netdev_mtu);
// What all addresses of the netdev make.
[[nodiscard]] std::vector<verbs::Gid> all_gids(const netns::Link& link);
[[nodiscard]] std::vector<QuotaRow> to_rows(const std::vector<provisioning::Row>& rows);
[[nodiscard]] std::vector<provisioning::Setting> to_settings(
    const std::vector<QuotaSetting>& quota);

}  // namespace vrdma::vrdmad
