#include "cli/mounts/tree.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace vrdma::cli {

namespace {

using base::Fd;
using base::Result;

constexpr char kMostBytes[] = "4m";  // of a tmpfs: names, links and a loader's cache

// And makes it private; `recursive`: AT_RECURSIVE or 0.
Result<void> set_attributes(const Fd& mount, uint64_t attributes, const std::string& path,
                            unsigned recursive = 0) {
  mount_attr attr{};
  attr.attr_set = attributes;
  attr.propagation = MS_PRIVATE;
  if (::mount_setattr(mount.get(), "", AT_EMPTY_PATH | recursive, &attr, sizeof attr) != 0)
    return base::fail_errno("set the mount options of " + path);
  return {};
}

// `flags`: AT_EMPTY_PATH, or 0.
Result<Fd> clone_at(int directory, const char* name, unsigned flags, const std::string& path,
                    uint64_t attributes) {
  Fd tree(::open_tree(directory, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags));
  if (!tree.valid()) return base::fail_errno("clone the mount of " + path);
  if (auto done = set_attributes(tree, attributes, path); !done)
    return base::pass(std::move(done).error());
  return tree;
}

}  // namespace

Result<Fd> clone_path(const std::string& path, uint64_t attributes) {
  return clone_at(AT_FDCWD, path.c_str(), 0, path, attributes);
}

Result<Fd> clone_below(const std::string& top, const std::string& path, uint64_t attributes) {
  if (!path.starts_with(top + "/")) return base::fail(EINVAL, path + " is not in " + top);
  const Fd directory(::open(top.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return base::fail_errno("open " + top);
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  const Fd file(static_cast<int>(
      ::syscall(SYS_openat2, directory.get(), path.c_str() + top.size() + 1, &how, sizeof how)));
  if (!file.valid()) return base::fail_errno("open " + path);
  return clone_at(file.get(), "", AT_EMPTY_PATH, path, attributes);
}

Result<Fd> clone_whole(const Fd& fd, const std::string& path) {
  Fd tree(::open_tree(
      fd.get(), "",
      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | static_cast<unsigned>(AT_EMPTY_PATH | AT_RECURSIVE)));
  if (!tree.valid()) return base::fail_errno("clone the mount of " + path);
  if (auto done = set_attributes(tree, 0, path, AT_RECURSIVE); !done)
    return base::pass(std::move(done).error());
  return tree;
}

Result<Fd> new_tmpfs() {
  const Fd context(::fsopen("tmpfs", FSOPEN_CLOEXEC));
  if (!context.valid()) return base::fail_errno("open a tmpfs");
  for (const auto& [key, value] : {std::pair{"mode", "755"}, {"size", kMostBytes}})
    if (::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value, 0) != 0)
      return base::fail_errno(std::string("set the option ") + key + " of a tmpfs");
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return base::fail_errno("make a tmpfs");
  Fd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  if (!mount.valid()) return base::fail_errno("mount a tmpfs");
  return mount;
}

Result<void> make_read_only(const Fd& mount, const std::string& path) {
  return set_attributes(mount, MOUNT_ATTR_RDONLY, path + " of the container");
}

}  // namespace vrdma::cli
