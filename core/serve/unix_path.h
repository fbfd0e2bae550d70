// Unix sockets by their paths, and which file a path leads to.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::serve {

// Whether the path can be that of a socket. The sentence names the limit.
[[nodiscard]] base::Result<void> check_path(const std::string& path);

// A socket's file gets this owner. Nothing else does: not what another user of the directory has
// put in the place of the file, such as a symbolic link, or a second name of a file.
[[nodiscard]] base::Result<void> give_socket(const std::string& path, uid_t user, gid_t group);

// Stream sockets, non-blocking. A listener's file gets mode 0600 and must not exist.
[[nodiscard]] base::Result<base::Fd> listen_at(const std::string& path);
// Never waits: EAGAIN if too many clients wait already.
[[nodiscard]] base::Result<base::Fd> connect_to(const std::string& path);
// Whether no process listens there.
[[nodiscard]] bool is_stale(const std::string& path);

// A file that replaces another differs.
struct FileId {
  uint64_t device = 0, inode = 0;
  int64_t changed = 0;  // st_ctim in nanoseconds: an inode number may be used again
  bool operator==(const FileId&) const = default;
};
[[nodiscard]] std::optional<FileId> file_at(const std::string& path);

[[nodiscard]] inline int64_t nanoseconds_of(const timespec& time) {
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

}  // namespace vrdma::serve
