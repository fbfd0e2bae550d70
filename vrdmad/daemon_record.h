// What the daemon holds of a vdevice.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "vrdmad/daemon.h"
#include "vrdmad/raw_gsi.h"

namespace vrdma::vrdmad {

// Undone from the bottom up.
struct Daemon::Record {
  uint64_t id = 0;  // tells it from a later one of the same name
  VdevSpec spec;
  std::string fabric;
  gid::NodeGuid node_guid;
  netns::Link link;
  StoredVdev stored;     // as it is on disk
  uint64_t foreign = 0;  // connections from another netns
  bool crowded = false;  // it was said that there are addresses without a GID
  Budgets::Allotment allotment;
  std::shared_ptr<void> netns_dir;
  std::unique_ptr<SysfsTree> sysfs;
  gid::Registry::Holding gids;
  netns::Monitor::LinkWatch watch;
  std::shared_ptr<RawGsi> gsi;  // none: not allowed
  std::shared_ptr<void> in_worker;
  std::unique_ptr<CmDevice> cm;
  std::unique_ptr<SessionSocket> socket;
  std::shared_ptr<SessionSocket> cm_socket;
};

// Names become file names and words of a command line. `what`: "the vdevice".
[[nodiscard]] base::Result<void> check_name(const std::string& what, const std::string& name);
[[nodiscard]] std::vector<QuotaRow> to_rows(const std::vector<provisioning::Row>& rows);
[[nodiscard]] std::vector<provisioning::Setting> to_settings(
    const std::vector<QuotaSetting>& quota);

}  // namespace vrdma::vrdmad
