// The two sysfs helpers that libibverbs exports; librdmacm and programs such as ibv_devinfo use
// them. The ibdev_path of a virtual device is empty, so its files are not found.
#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "client/dial/export.h"
#include "client/verbs/private_abi.h"
#include "core/base/fd.h"

// The sysfs directory: SYSFS_PATH (not in set-uid programs) without trailing slashes, or /sys.
VRDMA_EXPORT const char* ibv_get_sysfs_path() {
  static const char* const path = [] {
    static char kept[PATH_MAX] = "/sys";
    if (const char* given = ::secure_getenv("SYSFS_PATH"); given != nullptr) {
      std::string_view text(given);
      while (text.ends_with('/')) text.remove_suffix(1);
      if (text.size() < sizeof kept) kept[text.copy(kept, sizeof kept - 1)] = '\0';
    }
    return kept;
  }();
  return path;
}

// Reads at most `size` bytes of dir/file into `buf`, and terminates them with a zero in place of
// the final newline or after the text. Returns the length, or -1 if the file cannot be read or is
// too long.
VRDMA_EXPORT int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) {
  char path[PATH_MAX];
  const int length = std::snprintf(path, sizeof path, "%s/%s", dir, file);
  if (length < 0 || static_cast<size_t>(length) >= sizeof path) return -1;
  const vrdma::base::Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return -1;
  const ssize_t got = ::read(fd.get(), buf, size);
  if (got < 0) return -1;
  if (got == 0) return 0;
  const auto end = static_cast<size_t>(got);
  if (buf[end - 1] == '\n') {
    buf[end - 1] = '\0';
    return static_cast<int>(got - 1);
  }
  if (end == size) return -1;
  buf[end] = '\0';
  return static_cast<int>(got);
}
