#include "provisioning/cgroup.h"

#include <libcgroup.h>

#include <cstdlib>
#include <fstream>
#include <memory>

namespace vrdma::provisioning {

namespace {

constexpr const char* kRdma = "rdma";

// Reads the host's mounts, once.
bool ready() {
  static const bool is_ready = cgroup_init() == 0;
  return is_ready;
}

struct Freed {
  void operator()(char* text) const { std::free(text); }
};
using Text = std::unique_ptr<char, Freed>;

bool is_mounted(const char* controller) {
  char* where = nullptr;
  const bool mounted = ready() && cgroup_get_subsys_mount_point(controller, &where) == 0;
  const Text owned(where);
  return mounted;
}

// libcgroup looks groups up by controller, so it misses a unified hierarchy without controllers.
std::string unified_path(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("0::/", 0) == 0) return line.substr(3);
  return "/";
}

}  // namespace

std::string cgroup_of(pid_t pid) {
  for (const char* controller : {kRdma, "pids", "memory", "cpu"}) {
    char* path = nullptr;
    if (!is_mounted(controller) || cgroup_get_current_controller_path(pid, controller, &path) != 0)
      continue;
    const Text owned(path);
    return path;
  }
  return unified_path(pid);
}

bool has_rdma_controller() { return is_mounted(kRdma); }

base::Result<void> set_rdma_max(const std::string& name, const std::string& ibdev, uint64_t handles,
                                uint64_t objects) {
  if (!has_rdma_controller())
    return base::fail(EOPNOTSUPP, "the kernel has no rdma controller of control groups");
  const std::unique_ptr<cgroup, void (*)(cgroup*)> group(cgroup_new_cgroup(name.c_str()),
                                                         [](cgroup* gone) { cgroup_free(&gone); });
  cgroup_controller* const controller =
      group != nullptr ? cgroup_add_controller(group.get(), kRdma) : nullptr;
  const std::string limits =
      ibdev + " hca_handle=" + std::to_string(handles) + " hca_object=" + std::to_string(objects);
  int error = controller == nullptr
                  ? ECGFAIL
                  : cgroup_add_value_string(controller, "rdma.max", limits.c_str());
  if (error == 0) error = cgroup_modify_cgroup(group.get());
  if (error != 0)
    return base::fail(EIO,
                      "cannot limit the control group " + name + ": " + cgroup_strerror(error));
  return {};
}

}  // namespace vrdma::provisioning
