#include "cli/exec.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "cli/environment.h"
#include "cli/run_program.h"
#include "core/base/fd.h"
#include "core/base/netns_cookie.h"

namespace vrdma::cli {

std::string netns_path(const std::string& netns) {
  if (netns.rfind("pid:", 0) == 0) return "/proc/" + netns.substr(4) + "/ns/net";
  if (netns.rfind('/', 0) == 0) return netns;
  return "/run/netns/" + netns;
}

base::Result<void> enter_netns(const v1::Vdev& vdev) {
  const std::string path = netns_path(vdev.netns());
  const std::string what = "netns of vdevice " + vdev.name();
  const base::Fd netns(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!netns.valid()) return base::fail_errno(what + ": open " + path);
  if (::setns(netns.get(), CLONE_NEWNET) != 0) return base::fail_errno(what + ": enter " + path);
  const auto cookie = base::own_netns_cookie();
  if (!cookie) return base::pass(cookie.error(), what);
  if (*cookie != vdev.netns_cookie())
    return base::fail(ESTALE, what + ": " + path + " is another one by now");
  return {};
}

base::Result<std::string> library_dir() {
  std::error_code error;
  const auto executable = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return base::fail(error.value(), "read /proc/self/exe: " + error.message());
  const std::string libraries = executable.parent_path().parent_path() / "lib/vrdma";
  // ld.so(8): both separate directories.
  if (libraries.find_first_of(":;") != std::string::npos)
    return base::fail(EINVAL, "LD_LIBRARY_PATH cannot name " + libraries +
                                  ", because of its ':' or ';': move vrdma elsewhere");
  return libraries;
}

base::Error exec_in(const v1::Vdev& vdev, const std::string& run_dir,
                    const std::vector<std::string>& command) {
  auto libraries = library_dir();
  if (!libraries) return std::move(libraries).error();
  if (!vdev.lost().empty())
    return {ENODEV, "vdevice '" + vdev.name() + "' is lost: " + vdev.lost()};
  if (auto entered = enter_netns(vdev); !entered) return std::move(entered).error();

  const char* const path = std::getenv("PATH");
  const std::string programs =
      *libraries + "/bin:" + (path != nullptr ? path : "/usr/sbin:/usr/bin:/sbin:/bin");
  const char* const before = std::getenv("LD_LIBRARY_PATH");
  if (before != nullptr && *before != '\0') *libraries += ":" + std::string(before);
  std::error_code ignored;
  const std::string absolute_run_dir = std::filesystem::absolute(run_dir, ignored).string();
  const std::string sysfs_dir = absolute_run_dir + "/sysfs/" + std::to_string(vdev.netns_cookie());
  // Verbs need none of it, so a program may well run without.
  if (const auto made = make_environment(sysfs_dir); !made)
    std::cerr << "vrdmactl: " << command[0]
              << " may miss devices in /sys/class/infiniband: " << made.error().message() << '\n';
  ::setenv("PATH", programs.c_str(), 1);
  ::setenv("LD_LIBRARY_PATH", libraries->c_str(), 1);
  ::setenv("VRDMA_RUN_DIR", absolute_run_dir.c_str(), 1);

  std::exit(run_program("vrdmactl", command));
}

}  // namespace vrdma::cli
