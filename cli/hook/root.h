// The root file system of a container whose runtime has not entered it yet.
//
// The image's author wrote it, and until pivot_root(2) the host's files are in reach: a link
// through /proc/1/root leads to them. So each path is resolved by openat2(2) with RESOLVE_IN_ROOT,
// which takes absolute links and `..` as inside of the root and refuses links of /proc; chroot(2)
// does neither. Nothing but directories and regular files is opened, because a FIFO or a device can
// block the caller or act. Nothing is mounted where the mount would reach the host: in a volume
// with shared propagation. Created directories have mode 0755, files 0644.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/mounts/plan.h"
#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::cli::hook {

class Root {
 public:
  // `path` in this process's mount namespace, which must be the container's.
  [[nodiscard]] static base::Result<Root> open(const std::string& path);

  // Of a private file system that this process has mounted at `place`, by a descriptor of its top:
  // paths begin there, whatever becomes of the place.
  [[nodiscard]] base::Result<Root> inside(const base::Fd& mount, const std::string& place) const;

  // All paths are absolute in the container. The descriptors are O_PATH.
  [[nodiscard]] base::Result<base::Fd> find(const std::string& path) const;
  [[nodiscard]] base::Result<base::Fd> find_file(const std::string& path) const;  // regular
  // Makes missing directories, or an empty file in an existing directory.
  [[nodiscard]] base::Result<base::Fd> directory(const std::string& path) const;
  [[nodiscard]] base::Result<base::Fd> file(const std::string& path) const;
  [[nodiscard]] base::Result<void> link(const std::string& path, const std::string& target) const;
  [[nodiscard]] base::Result<void> write(const std::string& path, const std::string& text) const;

  // Mounts a detached tree (cli/mounts/tree.h) on what find(), directory() or file() returned for
  // `path`. EXDEV: the mount would propagate, as the kernel says at this moment.
  [[nodiscard]] base::Result<void> attach(const base::Fd& tree, const base::Fd& target,
                                          const std::string& path) const;

  // The content of a regular file: EFBIG if it is longer than `most`, EINVAL if it is no file.
  [[nodiscard]] base::Result<std::string> read(const std::string& path, size_t most) const;
  // The first bytes of a file that find_file() returned.
  [[nodiscard]] base::Result<std::string> begin_of(const base::Fd& file, size_t most) const;
  // At most `most` entries. None: no such directory.
  [[nodiscard]] std::optional<std::vector<Entry>> list(const std::string& path,
                                                       size_t most = SIZE_MAX) const;

 private:
  Root(base::Fd root, base::Fd own_files, std::string place, uint64_t made)
      : root_(std::move(root)),
        own_files_(std::move(own_files)),
        place_(std::move(place)),
        made_(made) {}
  [[nodiscard]] base::Result<base::Fd> resolve(const std::string& path, uint64_t flags,
                                               uint64_t mode = 0) const;
  [[nodiscard]] base::Result<bool> is_shared(uint64_t mount) const;

  base::Fd root_;
  base::Fd own_files_;  // /proc/self/fd of the host
  std::string place_;   // for errors; empty: the container's root
  uint64_t made_;       // the id of the mount that this process has made; 0: the runtime made it
};

// base::read_all() of the file of the host at `path`, which the error names.
[[nodiscard]] base::Result<std::string> read_file(const std::string& path, size_t most);

}  // namespace vrdma::cli::hook
