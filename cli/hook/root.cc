#include "cli/hook/root.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "core/base/read_all.h"

namespace vrdma::cli::hook {

namespace {

using base::Fd;
using base::Result;

constexpr int kMostTries = 1000;
constexpr size_t kMostMountinfo = size_t{64} << 20;  // bytes

// "/a/b" -> "/a", "b"
std::pair<std::string, std::string> split(const std::string& path) {
  const size_t slash = path.rfind('/');
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

bool is_regular(const Fd& fd) {
  struct stat status {};
  return ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode);
}

// None: it vanished.
std::optional<Entry> entry_of(int directory, const dirent& found) {
  const char* const name = found.d_name;
  unsigned char type = found.d_type;
  struct stat status {};
  if (type == DT_UNKNOWN) {  // the file system does not tell
    if (::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return {};
    type = static_cast<unsigned char>(IFTODT(status.st_mode));
  }
  Entry entry{name, Entry::Kind::kFile, ""};
  if (type == DT_DIR) entry.kind = Entry::Kind::kDirectory;
  if (type != DT_LNK) return entry;
  char target[PATH_MAX];
  const ssize_t length = ::readlinkat(directory, name, target, sizeof target);
  if (length < 0 || length == sizeof target) return {};
  entry.kind = Entry::Kind::kLink;
  entry.target.assign(target, static_cast<size_t>(length));
  return entry;
}

Result<uint64_t> mount_of(const Fd& file) {
  struct statx status {};
  if (::statx(file.get(), "", AT_EMPTY_PATH, STATX_MNT_ID, &status) != 0)
    return base::fail_errno("find the mount");
  return status.stx_mnt_id;
}

}  // namespace

Result<std::string> read_file(const std::string& path, size_t most) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return base::fail_errno("open " + path);
  auto text = base::read_all(file, most);
  if (!text) return base::pass(std::move(text).error(), path);
  return text;
}

Result<Root> Root::open(const std::string& path) {
  Fd own_files(::open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!own_files.valid()) return base::fail_errno("open /proc/self/fd");
  Fd root(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return base::fail_errno("open the container's root " + path);
  return Root(std::move(root), std::move(own_files), "", 0);
}

Result<Root> Root::inside(const Fd& mount, const std::string& place) const {
  auto top = mount.duplicate();
  auto files = own_files_.duplicate();
  if (!top) return base::pass(std::move(top).error());
  if (!files) return base::pass(std::move(files).error());
  const auto made = mount_of(mount);
  if (!made) return base::pass(made.error(), place_ + place + " of the container");
  return Root(std::move(*top), std::move(*files), place_ + place, *made);
}

// Whether it belongs to a peer group (proc_pid_mountinfo(5)). The host may mount in a volume at any
// moment, and such a mount is shared if the volume is; so nothing is remembered.
Result<bool> Root::is_shared(uint64_t mount) const {
  const Fd table(::openat(own_files_.get(), "../mountinfo", O_RDONLY | O_CLOEXEC));
  if (!table.valid()) return base::fail_errno("open /proc/self/mountinfo");
  const auto mountinfo = base::read_all(table, kMostMountinfo);
  if (!mountinfo) return base::pass(mountinfo.error(), "/proc/self/mountinfo");
  std::istringstream lines(*mountinfo);
  for (std::string line; std::getline(lines, line);)
    if (std::strtoull(line.c_str(), nullptr, 10) == mount)
      return line.substr(0, line.find(" - ")).find(" shared:") != line.npos;
  return base::fail(ENOENT, "it was unmounted");
}

Result<Fd> Root::resolve(const std::string& path, uint64_t flags, uint64_t mode) const {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.mode = mode;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  Fd fd;
  // EAGAIN: a mount or rename on the host meanwhile, and the path has a link with `..`.
  for (int tries = 0; tries < kMostTries && !fd.valid(); ++tries) {
    fd = Fd(static_cast<int>(::syscall(SYS_openat2, root_.get(), path.c_str(), &how, sizeof how)));
    if (!fd.valid() && errno != EAGAIN) break;
  }
  if (!fd.valid()) return base::fail_errno("open " + place_ + path + " of the container");
  return fd;
}

Result<Fd> Root::find(const std::string& path) const { return resolve(path, O_PATH); }

Result<Fd> Root::find_file(const std::string& path) const {
  auto found = find(path);
  if (found && !is_regular(*found))
    return base::fail(EINVAL, place_ + path + " of the container is no regular file");
  return found;
}

Result<Fd> Root::directory(const std::string& path) const {
  auto found = resolve(path, O_PATH | O_DIRECTORY);
  if (found || found.error().code() != ENOENT || path == "/") return found;
  const auto [parent, name] = split(path);
  const auto above = directory(parent);
  if (!above) return base::pass(above.error());
  if (::mkdirat(above->get(), name.c_str(), 0755) != 0 && errno != EEXIST)
    return base::fail_errno("make " + place_ + path + " in the container");
  return resolve(path, O_PATH | O_DIRECTORY);
}

Result<Fd> Root::file(const std::string& path) const {
  auto found = find_file(path);
  if (found || found.error().code() != ENOENT) return found;
  const auto [parent, name] = split(path);
  const auto above = resolve(parent, O_PATH | O_DIRECTORY);
  if (!above) return base::pass(above.error());
  const Fd made(::openat(above->get(), name.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!made.valid()) return base::fail_errno("make " + place_ + path + " in the container");
  return find_file(path);
}

Result<void> Root::link(const std::string& path, const std::string& target) const {
  const auto [parent, name] = split(path);
  const auto above = resolve(parent, O_PATH | O_DIRECTORY);
  if (!above) return base::pass(above.error());
  if (::symlinkat(target.c_str(), above->get(), name.c_str()) != 0)
    return base::fail_errno("make the link " + place_ + path + " in the container");
  return {};
}

Result<void> Root::write(const std::string& path, const std::string& text) const {
  const auto made = file(path);
  if (!made) return base::pass(made.error());
  const Fd opened(::openat(own_files_.get(), std::to_string(made->get()).c_str(),
                           O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!opened.valid() ||
      ::write(opened.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return base::fail_errno("write " + place_ + path + " in the container");
  return {};
}

Result<void> Root::attach(const Fd& tree, const Fd& target, const std::string& path) const {
  const auto mount = mount_of(target);
  if (!mount) return base::pass(mount.error(), place_ + path + " of the container");
  const auto shared = *mount == made_ ? Result<bool>(false) : is_shared(*mount);
  if (!shared) return base::pass(shared.error(), "mount on " + place_ + path + " of the container");
  if (*shared)
    return base::fail(EXDEV, place_ + path +
                                 " of the container is in a volume with shared propagation: " +
                                 "a mount there would change the host");
  if (::move_mount(tree.get(), "", target.get(), "",
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
    return base::fail_errno("mount on " + place_ + path + " of the container");
  return {};
}

Result<std::string> Root::read(const std::string& path, size_t most) const {
  const auto found = find_file(path);
  if (!found) return base::pass(found.error());
  const Fd opened(::openat(own_files_.get(), std::to_string(found->get()).c_str(),
                           O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!opened.valid()) return base::fail_errno("open " + place_ + path + " of the container");
  auto text = base::read_all(opened, most);
  if (!text) return base::pass(std::move(text).error(), place_ + path + " of the container");
  return text;
}

Result<std::string> Root::begin_of(const Fd& file, size_t most) const {
  const Fd opened(::openat(own_files_.get(), std::to_string(file.get()).c_str(),
                           O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string begin(most, '\0');
  const ssize_t count = opened.valid() ? ::read(opened.get(), begin.data(), most) : -1;
  if (count < 0) return base::fail_errno("read a file of the container");
  begin.resize(static_cast<size_t>(count));
  return begin;
}

std::optional<std::vector<Entry>> Root::list(const std::string& path, size_t most) const {
  auto opened = resolve(path, O_RDONLY | O_DIRECTORY);
  if (!opened) return {};
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(opened->get()), ::closedir);
  if (listing == nullptr) return {};
  (void)opened->release();  // closedir() closes it
  std::vector<Entry> entries;
  while (entries.size() < most) {
    const dirent* const found = ::readdir(listing.get());
    if (found == nullptr) break;
    const std::string_view name = found->d_name;
    if (name == "." || name == "..") continue;
    if (auto entry = entry_of(::dirfd(listing.get()), *found)) entries.push_back(std::move(*entry));
  }
  return entries;
}

}  // namespace vrdma::cli::hook
