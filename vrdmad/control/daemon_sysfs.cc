// The files of vdevices that programs see below /sys.
#include <spdlog/spdlog.h>

#include <fstream>
#include <utility>

#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

namespace {

std::string online_cpus() {
  std::string list;
  std::getline(std::ifstream("/sys/devices/system/cpu/online"), list);
  return list;
}

}  // namespace

void Daemon::show_sysfs(Record& record) {
  const netns::Link& link = record.link;
  if (record.sysfs == nullptr)
    record.sysfs =
        std::make_unique<SysfsTree>(run_dir_.sysfs_dir(link.netns_cookie) + "/" + record.spec.name);
  const auto shown = record.sysfs->show({record.spec.name, record.node_guid.text(),
                                         "vrdma-" VRDMA_VERSION, link.name, link.up, record.table(),
                                         online_cpus(), record.downs, record.share.capabilities});
  if (!shown)
    return spdlog::warn("vdevice {}: cannot update its sysfs files: {}", record.label,
                        shown.error().message());
  if (record.counter_files != nullptr) return;
  record.counter_files = std::make_unique<CounterFiles>(
      loop_, *read_leases_, record.sysfs->counters(), [this, &record] {
        const VdeviceUse use = worker_of(record.fabric).use_of_all(record.id);
        return sysfs_counters(record.spec.name, use.traffic, quota_rows(record, use));
      });
}

}  // namespace vrdma::vrdmad
