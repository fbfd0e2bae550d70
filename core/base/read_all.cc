#include "core/base/read_all.h"

#include <unistd.h>

#include <cerrno>

namespace vrdma::base {

Result<std::string> read_all(const Fd& file, size_t most) {
  std::string text;
  char block[16384];
  for (;;) {
    const ssize_t count = ::read(file.get(), block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("read");
    if (count == 0) return text;
    if (text.size() + static_cast<size_t>(count) > most)
      return fail(EFBIG, "it is longer than " + std::to_string(most) + " bytes");
    text.append(block, static_cast<size_t>(count));
  }
}

}  // namespace vrdma::base
