// The files of vdevices that programs see below /sys.
#include <spdlog/spdlog.h>
#include <unistd.h>

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
      loop_, *read_leases_, record.sysfs->counters(),
      [this, id = record.id](std::function<void(CounterFiles::Values)> then) {
        after_collecting({id}, [this, id, then = std::move(then)] {
          const Record* const its = find(id);
          if (its == nullptr) return;
          const VdeviceUse use = use_of(*its);
          then(sysfs_counters(its->spec.name, use.device.traffic, use.network,
                              quota_rows(*its, use)));
        });
      });
}

void Daemon::show_sysfs_again(Record& record) {
  const std::string tree = run_dir_.sysfs_dir(record.link.netns_cookie) + "/" + record.spec.name;
  if (::access(tree.c_str(), F_OK) == 0) show_sysfs(record);
}

void Daemon::hand_over(std::unique_ptr<SysfsTree> files, const SysfsTree* to) {
  if (files != nullptr && to != nullptr) files->leave();
}

}  // namespace vrdma::vrdmad
