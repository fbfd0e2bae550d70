#include "cli/environment.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <climits>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "core/base/fd.h"

namespace vrdma::cli {

namespace {

using base::Result;

const std::string kClass = "/sys/class";
const std::string kDevices = "/dev/infiniband";

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

// Another name of what `fd` refers to, also when its path is covered.
std::string path_of(const base::Fd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); }

Result<void> bind_mount(const std::string& from, const std::string& to) {
  if (::mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return base::fail_errno("mount " + from + " on " + to);
  return {};
}

Result<void> make_dir(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return base::fail_errno("make " + path);
  return {};
}

Result<void> bind_dir(const std::string& from, const std::string& to) {
  if (auto made = make_dir(to); !made) return made;
  return bind_mount(from, to);
}

Result<void> bind_file(const std::string& from, const std::string& to) {
  const base::Fd file(::open(to.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444));
  if (!file.valid()) return base::fail_errno("make " + to);
  return bind_mount(from, to);
}

Result<std::vector<std::string>> names_in(const std::string& dir) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(dir.c_str()), ::closedir);
  if (listing == nullptr) return base::fail_errno("list " + dir);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

// A tmpfs over `dir`, with all that `dir` held.
Result<void> cover(const std::string& dir) {
  const base::Fd covered(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!covered.valid()) return base::fail_errno("open " + dir);
  const auto names = names_in(dir);
  if (!names) return base::pass(names.error());
  if (::mount("tmpfs", dir.c_str(), "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755") != 0)
    return base::fail_errno("mount a tmpfs on " + dir);
  for (const auto& name : *names) {
    const std::string from = path_of(covered) + "/" + name;
    const std::string to = dir + "/" + name;
    struct stat status {};
    if (::fstatat(covered.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;  // gone
    Result<void> done;
    if (S_ISLNK(status.st_mode)) {
      char target[PATH_MAX];
      const ssize_t length = ::readlinkat(covered.get(), name.c_str(), target, sizeof target - 1);
      if (length < 0) continue;
      target[length] = '\0';
      if (::symlink(target, to.c_str()) != 0) done = base::fail_errno("make " + to);
    } else {
      done = S_ISDIR(status.st_mode) ? bind_dir(from, to) : bind_file(from, to);
    }
    if (!done) return done;
  }
  return {};
}

// What is mounted below /sys (control groups, debugfs, ...), each before what is mounted below it.
std::vector<std::pair<std::string, base::Fd>> mounts_below_sys() {
  std::vector<std::pair<std::string, base::Fd>> mounts;
  std::ifstream table("/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string word, point;
    for (int i = 0; i < 4; ++i) words >> word;
    words >> point;
    if (point.rfind("/sys/", 0) != 0) continue;
    // What is mounted below another one comes along with it.
    if (!mounts.empty() && point.rfind(mounts.back().first + "/", 0) == 0) continue;
    base::Fd root(::open(point.c_str(), O_PATH | O_CLOEXEC));
    if (root.valid()) mounts.emplace_back(point, std::move(root));
  }
  return mounts;
}

// sysfs shows the network interfaces of the namespace that it was mounted in.
Result<void> mount_own_sys() {
  struct statvfs before {};
  const bool read_only =
      ::statvfs("/sys", &before) == 0 && (before.f_flag & static_cast<unsigned long>(ST_RDONLY));
  const auto below = mounts_below_sys();
  unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (read_only) flags |= MS_RDONLY;
  if (::mount("sysfs", "/sys", "sysfs", flags, nullptr) != 0) {
    if (errno == EBUSY) return {};  // it is this namespace's already
    return base::fail_errno("mount /sys");
  }
  for (const auto& [point, root] : below)
    if (exists(point))
      (void)bind_mount(path_of(root), point);  // without it, programs see less, not else
  return {};
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

// A directory below /sys/class that can be written.
Result<void> open_class(const std::string& name) {
  const std::string path = kClass + "/" + name;
  if (exists(path)) return cover(path);
  if (::mkdir(path.c_str(), 0755) == 0) return {};  // /sys/class is covered already
  if (auto covered = cover(kClass); !covered) return covered;
  return make_dir(path);
}

// uverbs0, uverbs1, ...: the first that is free.
std::string free_uverbs() {
  const std::string stem = kClass + "/infiniband_verbs/uverbs";
  int number = 0;
  while (exists(stem + std::to_string(number))) ++number;
  return stem + std::to_string(number);
}

// Not even root writes into what vrdmad keeps.
Result<void> bind_tree(const std::string& from, const std::string& to) {
  if (auto done = bind_dir(from, to); !done) return done;
  const unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (::mount(nullptr, to.c_str(), nullptr, flags, nullptr) != 0)
    return base::fail_errno("make " + to + " read-only");
  return {};
}

Result<void> show_vdevice(const std::string& name, const std::string& tree) {
  // Shown by an exec around this one, or a device of the kernel.
  if (exists(kClass + "/infiniband/" + name)) return {};
  auto done = bind_tree(tree + "/infiniband", kClass + "/infiniband/" + name);
  if (done) done = bind_tree(tree + "/infiniband_verbs", free_uverbs());
  if (done) done = bind_file("/dev/null", kDevices + "/" + name);
  return done;
}

}  // namespace

Result<void> make_environment(const std::string& sysfs_dir) {
  if (::unshare(CLONE_NEWNS) != 0) return base::fail_errno("a mount namespace");
  if (auto done = detach_mounts(); !done) return done;
  if (auto done = mount_own_sys(); !done) return done;
  for (const char* const name : {"infiniband", "infiniband_verbs"})
    if (auto done = open_class(name); !done) return done;
  if (auto done = make_dir(kDevices); !done) return done;
  if (auto done = cover(kDevices); !done) return done;

  const auto names = names_in(sysfs_dir);
  if (!names) return base::pass(names.error());
  for (const auto& name : *names) {
    if (name.ends_with('~')) continue;  // it is being made
    if (auto done = show_vdevice(name, sysfs_dir + "/" + name); !done) return done;
  }
  return {};
}

}  // namespace vrdma::cli
