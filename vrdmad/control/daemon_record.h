// The control thread's record of a vdevice.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/token_bucket.h"
#include "gid/layout.h"
#include "gid/prefix.h"
#include "provisioning/permission.h"
#include "vrdmad/cm/gsi_relay.h"
#include "vrdmad/control/daemon.h"

namespace vrdma::vrdmad {

// The sockets of an address on the network; the worker has duplicates.
struct Daemon::OnNetwork {
  base::Fd data;
  std::vector<base::Fd> sources;  // that only send; invalid: the port is taken
  std::shared_ptr<void> gsi;
};

// Destroyed from the last member to the first.
struct Daemon::Record {
  uint64_t id = 0;
  std::string label;  // its name in the log
  VdevSpec spec;
  std::vector<QuotaSetting> asked;                 // the quota of the create request
  std::shared_future<base::Result<void>> on_disk;  // invalid: created by an earlier daemon
  bool owner_ended = false;
  std::string tenant, fabric, domain;
  gid::NodeGuid node_guid;
  netns::Link link;
  StoredVdev stored;     // on disk, or queued
  bool leaving = false;  // being deleted: not stored any more
  FabricSpec settings;   // of its fabric, and as its worker knows
  [[nodiscard]] bool reaches_network() const { return settings.reach != Reach::kHost; }
  // See rdma::Fabric::near(): a vdevice on the wire is near those of its network namespace alone.
  [[nodiscard]] uint64_t island() const {
    return settings.reach == Reach::kWire ? link.netns_cookie : 0;
  }
  uint32_t number = 0;                // of its session socket
  std::vector<gid::Prefix> prefixes;  // given by the operator
  gid::Layout layout = gid::Layout::kDense;
  std::vector<verbs::Gid> first_addresses;  // of the netdev when the vdevice was created
  // Whether its fabric was shared when its addresses were chosen; none: not chosen since a restart.
  std::optional<bool> applied_shared;
  std::set<verbs::Gid> ignored;  // addresses of the netdev that it may not use
  uint64_t ignored_so_far = 0;
  std::set<verbs::Gid> conflicting;  // wanted GIDs that others_on_network() has
  uint64_t foreign = 0;              // connections from another netns
  bool crowded = false;              // the log says that addresses have no GID
  bool many_addresses = false;       // the log says that not all are read
  Budgets::Allotment allotment;
  ParentShare share;
  std::unique_ptr<Processes::Watch> owner;  // null: it has none, or its owner has ended
  OwnerWatches containers;                  // those of spec.containers that have not ended
  std::shared_ptr<void> netns_dir;
  std::unique_ptr<SysfsTree> sysfs;  // none: no operator has wanted to see it
  uint64_t downs = 0;                // how often the link went down
  base::TokenBucket changes;         // of the link that are logged
  base::TokenBucket refusals;        // of addresses that are logged
  gid::Registry::Holding gids;
  netns::Links::LinkWatch watch;
  std::map<verbs::Gid, OnNetwork> on_network;        // while a process uses it
  std::map<verbs::Gid, base::Fd> groups;             // multicast, on the network; likewise
  base::TokenBucket joins;                           // of these
  std::shared_ptr<GsiRelay> gsi;                     // null: not allowed
  base::SharedPage<rdma::QpNumberTable> qp_numbers;  // the worker writes, `cm` reads
  provisioning::Permissions permissions;
  std::map<verbs::Gid, base::TimePoint> off_network_until;  // addresses without sockets
  std::map<verbs::Gid, base::EventLoop::Timer> awaited;  // by the worker, until a pause has ended
  std::set<verbs::Gid> unbound;  // wanted by the worker, when no socket could be bound to them
  uint64_t off_network = 0;      // how often an address could not be on the network
  uint64_t unserved = 0;         // how often a connection found no worker
  bool declines = false;         // the next connection is told that there is none
  uint64_t unfurnished = 0;      // attempts to open it for which this process had no room
  uint64_t without_files = 0;    // sessions that cannot be taken over
  base::SharedPage<VdevicePage> page;
  std::shared_ptr<FabricPage> fabric_counters;
  std::shared_ptr<Entrance> entrance = std::make_shared<Entrance>();
  Intake::AccountRef intake;
  std::shared_ptr<void> in_worker;
  std::unique_ptr<CmDevice> cm;
  std::unique_ptr<SessionSocket> socket;
  std::shared_ptr<SessionSocket> cm_socket;
  std::unique_ptr<CounterFiles> counter_files;  // of `sysfs`

  // The GID table, by index.
  [[nodiscard]] std::vector<verbs::Gid> table() const { return gid::lay_out(gids.gids(), layout); }
};

// A change of which the caller waits for the disk.
struct Daemon::Begun {
  uint64_t id = 0;
  VdevInfo info;
  std::shared_future<base::Result<void>> on_disk;
  bool existed = false;  // and was in use
};

// Names become file names and words of a command line. `what` begins the error: "the vdevice".
[[nodiscard]] base::Result<void> check_name(const std::string& what, const std::string& name);
// The same of a tenant or a fabric (base::is_group_name()).
[[nodiscard]] base::Result<void> check_group(const std::string& what, const std::string& name);
// Why a vdevice gets an address that another has given up, for subscribers.
inline constexpr const char* kAddressFree = "an address is free";
// What the workers of its members know of a fabric.
[[nodiscard]] inline Ways ways_of(const FabricSpec& fabric) {
  return {fabric.reach != Reach::kHost, fabric.reach == Reach::kWire, fabric.peers};
}
// The tenant and the fabric: given by the operator, or private to the vdevice.
[[nodiscard]] std::string tenant_of(const VdevSpec& spec, uint64_t id);
[[nodiscard]] std::string fabric_of(const VdevSpec& spec, uint64_t id);
[[nodiscard]] inline std::string fabric_of(const StoredVdev& vdev) {
  return fabric_of(vdev.spec, vdev.id);
}
// Of the vdevice in the directory.
[[nodiscard]] Directory::Entry entry_of(const VdevSpec& spec, uint64_t cookie, uint32_t number,
                                        const std::string& fabric, const std::string& tenant);
// Of its containers; without any, what an operator's label `container` says.
[[nodiscard]] std::vector<std::string> container_ids(const VdevSpec& spec);
// Empty: it has no such label.
[[nodiscard]] std::string label_value(const VdevSpec& spec, const std::string& key);
// The GIDs of all addresses of the netdev.
[[nodiscard]] std::vector<verbs::Gid> all_gids(const netns::Link& link);
[[nodiscard]] std::vector<QuotaRow> to_rows(const std::vector<provisioning::Row>& rows);
[[nodiscard]] std::vector<provisioning::Setting> to_settings(
    const std::vector<QuotaSetting>& quota);

}  // namespace vrdma::vrdmad
