#include "cli/environment.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "cli/mounts/plan.h"
#include "cli/mounts/render.h"

namespace vrdma::cli {

namespace {

using base::Result;

// What is mounted below /sys (control groups, debugfs, ...); what is mounted below another one
// comes along with it.
std::vector<std::string> mounts_below_sys() {
  std::vector<std::string> points;
  std::ifstream table("/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string word, point;
    for (int i = 0; i < 4; ++i) words >> word;
    words >> point;
    if (point.rfind("/sys/", 0) != 0) continue;
    if (!points.empty() && point.rfind(points.back() + "/", 0) == 0) continue;
    points.push_back(point);
  }
  return points;
}

bool is_read_only(const char* path) {
  struct statvfs status {};
  return ::statvfs(path, &status) == 0 && (status.f_flag & static_cast<unsigned long>(ST_RDONLY));
}

// What is mounted later on the host is seen here; what is mounted here is not seen there.
Result<void> detach_mounts() {
  const auto detach = [](const char* path) {
    return ::mount("", path, nullptr, MS_SLAVE | MS_REC, nullptr) == 0;
  };
  // A root that is no mount point, as after chroot(2), has nothing to detach: then what is mounted
  // on below.
  if (detach("/") || (errno == EINVAL && detach("/sys") && detach("/dev"))) return {};
  return base::fail_errno("detach the mount namespace");
}

// The trees of a namespace's vdevices that vrdmad keeps.
Result<std::vector<ShownVdevice>> vdevices_in(const std::string& sysfs_dir) {
  const auto trees = look_here(sysfs_dir);
  if (!trees) return base::fail_errno("list " + sysfs_dir);
  std::vector<ShownVdevice> vdevices;
  for (const auto& tree : *trees)
    if (!tree.name.ends_with('~'))  // it is being made
      vdevices.push_back({tree.name, sysfs_dir + "/" + tree.name});
  return vdevices;
}

}  // namespace

Result<void> make_environment(const std::string& sysfs_dir) {
  if (::unshare(CLONE_NEWNS) != 0) return base::fail_errno("a mount namespace");
  if (auto done = detach_mounts(); !done) return done;
  // sysfs shows the network interfaces of the namespace that it was mounted in.
  if (auto done = render(plan_sysfs(mounts_below_sys(), is_read_only("/sys"))); !done) return done;
  auto vdevices = vdevices_in(sysfs_dir);
  if (!vdevices) return base::pass(std::move(vdevices.error()));
  return render(plan_devices(look_here, std::move(*vdevices)));
}

}  // namespace vrdma::cli
