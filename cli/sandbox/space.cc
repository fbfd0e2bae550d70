#include "cli/sandbox/space.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <vector>

#include "core/base/fd.h"

namespace vrdma::cli::sandbox {

namespace {

using base::Result;

bool may_administrate() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  return ::syscall(SYS_capget, &header, data.data()) == 0 &&
         (data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
}

Result<void> write_file(const char* path, const std::string& text) {
  const base::Fd file(::open(path, O_WRONLY | O_CLOEXEC));
  if (!file.valid() || ::write(file.get(), text.data(), text.size()) < 0)
    return base::fail_errno(std::string("write ") + path);
  return {};
}

// Of the user namespace that this process has just made: one user and one group. A process with
// these ids may map them without privileges (user_namespaces(7)).
Result<void> map_ids(uid_t inside_uid, uid_t outside_uid, gid_t inside_gid, gid_t outside_gid) {
  const auto line = [](unsigned inside, unsigned outside) {
    return std::to_string(inside) + " " + std::to_string(outside) + " 1\n";
  };
  // Absent before Linux 3.19.
  (void)write_file("/proc/self/setgroups", "deny");
  if (auto done = write_file("/proc/self/uid_map", line(inside_uid, outside_uid)); !done)
    return done;
  return write_file("/proc/self/gid_map", line(inside_gid, outside_gid));
}

// What is mounted in the sandbox is not seen outside of it. In a chroot(2) "/" is no mount point;
// then each mount that can be named.
Result<void> detach_mounts() {
  if (::mount("", "/", nullptr, MS_SLAVE | MS_REC, nullptr) == 0) return {};
  if (errno != EINVAL) return base::fail_errno("detach the mount namespace");
  for (const char* path : {"/proc", "/sys", "/dev", "/tmp", "/run"})
    (void)::mount("", path, nullptr, MS_SLAVE | MS_REC, nullptr);
  return {};
}

// Tries it in processes that end, because a pid namespace cannot be left again.
bool proc_can_be_mounted() {
  const pid_t outer = ::fork();
  if (outer < 0) return false;
  if (outer == 0) {
    if (::unshare(CLONE_NEWNS | CLONE_NEWPID) != 0) ::_exit(1);
    const pid_t inner = ::fork();
    if (inner < 0) ::_exit(1);
    if (inner == 0) ::_exit(mount_own_proc() ? 0 : 1);
    int status = 1;
    ::waitpid(inner, &status, 0);
    ::_exit(status == 0 ? 0 : 1);
  }
  int status = 1;
  ::waitpid(outer, &status, 0);
  return status == 0;
}

// A directory that exists as long as the host does: empty for everybody else, and the same for all
// sandboxes of a user, each of which covers it in its own mount namespace. `owner` is this user, as
// this process sees it.
Result<std::string> place_for_files(uid_t outside_uid, uid_t owner) {
  std::vector<std::string> parents{"/tmp", "/var/tmp", "/dev/shm"};
  if (const char* value = std::getenv("TMPDIR"); value != nullptr && *value == '/')
    parents.emplace_back(value);
  for (const auto& parent : parents) {
    if (parent.size() > 40) continue;  // sockets are below it, whose paths are at most 107 long
    std::string path = parent + "/vrdma-sandbox-" + std::to_string(outside_uid);
    struct stat status {};
    if ((::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) &&
        ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == owner)
      return path;
  }
  return base::fail(EACCES,
                    "no directory for the sandbox's files can be made in /tmp, /var/tmp or "
                    "/dev/shm: set TMPDIR to one where this user may write");
}

Result<void> copy_entry(const std::string& covered, const std::string& name) {
  const std::string from = covered + "/" + name, to = "/dev/" + name;
  struct stat status {};
  if (::lstat(from.c_str(), &status) != 0) return {};  // gone
  if (S_ISLNK(status.st_mode)) {
    char target[PATH_MAX];
    const ssize_t length = ::readlink(from.c_str(), target, sizeof target - 1);
    if (length < 0) return {};
    target[length] = '\0';
    if (::symlink(target, to.c_str()) != 0) return base::fail_errno("make " + to);
    return {};
  }
  if (S_ISDIR(status.st_mode)) {
    if (::mkdir(to.c_str(), 0755) != 0) return base::fail_errno("make " + to);
  } else {
    const base::Fd made(::open(to.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444));
    if (!made.valid()) return base::fail_errno("make " + to);
  }
  if (::mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return base::fail_errno("mount " + to);
  return {};
}

}  // namespace

Result<Space> enter_space(const HostFacts& facts) {
  Space space;
  space.uid = ::geteuid();
  space.gid = ::getegid();
  const auto refused = [&facts](Step step, int code = errno) {
    return base::pass(explain(step, code, facts));
  };
  if (!may_administrate()) {
    if (::unshare(CLONE_NEWUSER) != 0) return refused(Step::kUserNamespace);
    space.own_users = true;
    if (auto mapped = map_ids(0, space.uid, 0, space.gid); !mapped)
      return refused(Step::kIdMap, mapped.error().code());
  }
  if (::unshare(CLONE_NEWNS) != 0) return refused(Step::kMountNamespace);
  if (auto done = detach_mounts(); !done) return refused(Step::kMount, done.error().code());
  if (::unshare(CLONE_NEWNET | CLONE_NEWIPC) != 0) return refused(Step::kNetNamespace);
  auto dir = place_for_files(space.uid, space.own_users ? 0 : space.uid);
  if (!dir) return base::pass(std::move(dir).error());
  space.dir = std::move(*dir);
  if (::mount("tmpfs", space.dir.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755") !=
      0)
    return refused(Step::kMount);
  space.own_pids = proc_can_be_mounted();
  if (space.own_pids && ::unshare(CLONE_NEWPID) != 0) return refused(Step::kPidNamespace);
  return space;
}

Result<void> mount_own_proc() {
  if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
    return base::fail_errno("mount /proc");
  return {};
}

Result<void> add_infiniband_to_dev() {
  if (::access("/dev/infiniband", F_OK) == 0) return {};
  const base::Fd covered(::open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!covered.valid()) return base::fail_errno("open /dev");
  const std::string below = "/proc/self/fd/" + std::to_string(covered.get());
  std::vector<std::string> names;
  {
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir("/dev"), ::closedir);
    if (listing == nullptr) return base::fail_errno("list /dev");
    while (const dirent* entry = ::readdir(listing.get())) names.emplace_back(entry->d_name);
  }
  if (::mount("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755") != 0)
    return base::fail_errno("mount a tmpfs on /dev");
  for (const auto& name : names) {
    if (name == "." || name == "..") continue;
    if (auto done = copy_entry(below, name); !done) return done;
  }
  if (::mkdir("/dev/infiniband", 0755) != 0) return base::fail_errno("make /dev/infiniband");
  return {};
}

Result<void> keep_user_namespace(const Space& space, const std::string& path) {
  std::array<int, 2> made{}, kept{};
  if (::pipe2(made.data(), O_CLOEXEC) != 0) return base::fail_errno("make a pipe");
  const base::Fd made_read(made[0]);
  base::Fd made_write(made[1]);
  if (::pipe2(kept.data(), O_CLOEXEC) != 0) return base::fail_errno("make a pipe");
  base::Fd kept_read(kept[0]), kept_write(kept[1]);
  const pid_t child = ::fork();
  if (child < 0) return base::fail_errno("fork");
  if (child == 0) {
    kept_write.reset();
    char error = 0, byte = 0;
    if (::unshare(CLONE_NEWUSER) != 0)
      error = static_cast<char>(errno);
    else if (auto mapped = map_ids(space.uid, 0, space.gid, 0); !mapped)
      error = static_cast<char>(mapped.error().code());
    (void)!::write(made_write.get(), &error, 1);
    (void)!::read(kept_read.get(), &byte, 1);  // until the other end is closed
    ::_exit(0);
  }
  made_write.reset();
  char error = EIO;
  const bool answered = ::read(made_read.get(), &error, 1) == 1;
  Result<void> done;
  if (!answered || error != 0) {
    done = base::fail_errno("make the command's user namespace", error);
  } else {
    const std::string from = "/proc/" + std::to_string(child) + "/ns/user";
    const base::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444));
    if (!file.valid() || ::mount(from.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0)
      done = base::fail_errno("mount the command's user namespace on " + path);
  }
  kept_write.reset();
  ::waitpid(child, nullptr, 0);
  return done;
}

}  // namespace vrdma::cli::sandbox
