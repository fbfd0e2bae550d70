#include "cli/kubernetes/node/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/base/fd.h"

namespace vrdma::cli::kubernetes {

base::Result<std::string> read_text_file(const std::string& path, size_t most) {
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return base::fail_errno("read it");
  std::string text(most + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::fail_errno("read it");
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > most)
    return base::fail(EFBIG, "it is larger than " + std::to_string(most >> 10) + " KiB");
  text.resize(size);
  return text;
}

}  // namespace vrdma::cli::kubernetes
