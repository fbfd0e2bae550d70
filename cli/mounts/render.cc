#include "cli/mounts/render.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <map>
#include <memory>

#include "core/base/fd.h"

namespace vrdma::cli {

namespace {

using base::Result;

// Another path of the file behind `fd`, valid also when its own path is covered.
std::string path_of(const base::Fd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); }

Result<void> make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return {};
  const int error = errno;  // for example EROFS, although the directory exists
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return {};
  return base::fail_errno("make " + path, error);
}

Result<void> make_file(const std::string& path) {
  const base::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444));
  if (!file.valid()) return base::fail_errno("make " + path);
  return {};
}

Result<void> bind_mount(const Mount& step, const std::string& from) {
  auto made = step.file ? make_file(step.to) : make_directory(step.to);
  if (!made) return made;
  if (::mount(from.c_str(), step.to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return base::fail_errno("mount " + step.from + " on " + step.to);
  const unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (step.read_only && ::mount(nullptr, step.to.c_str(), nullptr, flags, nullptr) != 0)
    return base::fail_errno("make " + step.to + " read-only");
  return {};
}

Result<void> mount_new(const char* type, const std::string& to, unsigned long flags,
                       const char* options) {
  if (::mount(type, to.c_str(), type, flags | MS_NOSUID | MS_NOEXEC, options) != 0)
    return base::fail_errno(std::string("mount a ") + type + " on " + to);
  return {};
}

}  // namespace

std::optional<std::vector<Entry>> look_here(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(directory.c_str()), ::closedir);
  if (listing == nullptr) return {};
  std::vector<Entry> entries;
  while (const dirent* found = ::readdir(listing.get())) {
    Entry entry;
    entry.name = found->d_name;
    if (entry.name == "." || entry.name == "..") continue;
    struct stat status {};
    if (::fstatat(::dirfd(listing.get()), found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;  // vanished
    if (S_ISLNK(status.st_mode)) {
      char target[PATH_MAX];
      const ssize_t length =
          ::readlinkat(::dirfd(listing.get()), found->d_name, target, sizeof target);
      if (length < 0 || length == sizeof target) continue;
      entry.kind = Entry::Kind::kLink;
      entry.target.assign(target, static_cast<size_t>(length));
    } else if (!S_ISDIR(status.st_mode)) {
      entry.kind = Entry::Kind::kFile;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<void> render(const Plan& plan) {
  // The sources that the plan covers are held open meanwhile.
  std::map<std::string, base::Fd> own;
  for (const auto& step : plan)
    if (step.kind == Mount::Kind::kBind && step.own)
      own[step.from] = base::Fd(::open(step.from.c_str(), O_PATH | O_CLOEXEC));
  for (const auto& step : plan) {
    Result<void> done;
    switch (step.kind) {
      case Mount::Kind::kDirectory:
        done = make_directory(step.to);
        break;
      case Mount::Kind::kSysfs:
        done = mount_new("sysfs", step.to, MS_NODEV | (step.read_only ? MS_RDONLY : 0), nullptr);
        // EPERM: in a user namespace, where mounts of before cover a part of /sys (containers). The
        // interfaces that /sys shows are another namespace's then.
        if (!done && (done.error().code() == EBUSY || done.error().code() == EPERM)) return {};
        break;
      case Mount::Kind::kTmpfs:
        done = mount_new("tmpfs", step.to, 0, "mode=755");
        break;
      case Mount::Kind::kLink:
        if (::symlink(step.from.c_str(), step.to.c_str()) != 0)
          done = base::fail_errno("make " + step.to);
        break;
      case Mount::Kind::kBind:
        if (!step.own)
          done = bind_mount(step, step.from);
        else if (const auto& source = own[step.from]; source.valid())
          done = bind_mount(step, path_of(source));
        break;
    }
    if (!done && !step.optional) return done;
  }
  return {};
}

}  // namespace vrdma::cli
