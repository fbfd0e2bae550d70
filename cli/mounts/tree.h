// Mounts that are not attached to any path: open_tree(2), fsmount(2), move_mount(2).
//
// Each is a descriptor. Closed before it was attached, it is gone. So a hook clones what it needs
// of the host, enters the container's mount namespace, and attaches the clones there
// (cli/hook/root.h).
#pragma once

#include <sys/mount.h>

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::cli {

// MOUNT_ATTR_* of mount_setattr(2).
constexpr uint64_t kReadOnlyData =
    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
constexpr uint64_t kReadOnlyCode = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
constexpr uint64_t kDeviceNode = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;

// A private clone of what is at a path of this process, without the mounts below it, with
// `attributes`.
[[nodiscard]] base::Result<base::Fd> clone_path(const std::string& path, uint64_t attributes);
// The same of a path that begins with `top`. What is below `top` may belong to another user, so no
// link is followed there.
[[nodiscard]] base::Result<base::Fd> clone_below(const std::string& top, const std::string& path,
                                                 uint64_t attributes);
// A private clone of what a descriptor names, with the mounts below it, which are private too: a
// clone in the peer group of a volume would carry to the host what is mounted in it later. `path`
// is for the error.
[[nodiscard]] base::Result<base::Fd> clone_whole(const base::Fd& fd, const std::string& path);
// An empty tmpfs, mode 0755, without set-user-id programs and devices.
[[nodiscard]] base::Result<base::Fd> new_tmpfs();

[[nodiscard]] base::Result<void> make_read_only(const base::Fd& mount, const std::string& path);

}  // namespace vrdma::cli
