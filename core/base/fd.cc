#include "core/base/fd.h"

#include <fcntl.h>

namespace vrdma::base {

Result<Fd> Fd::duplicate() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return fail_errno("duplicate a file descriptor");
  return Fd(copy);
}

Result<Fd> Fd::reopen(int flags) const {
  const std::string path = "/proc/self/fd/" + std::to_string(fd_);
  const int fresh = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fresh < 0) return fail_errno("reopen a file descriptor");
  return Fd(fresh);
}

}  // namespace vrdma::base
