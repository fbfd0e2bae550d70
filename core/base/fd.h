// A file descriptor with one owner.
//
// Move-only; the destructor closes. close() is never retried on EINTR (Linux has freed the
// descriptor by then, see close(2)) and errno is left as it was.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace vrdma::base {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ < 0) return;
    const int saved = errno;
    ::close(std::exchange(fd_, -1));
    errno = saved;
  }

  // A second descriptor of the same open file description.
  [[nodiscard]] Result<Fd> duplicate() const;

  // A new open file description of the same file, with `flags` of open(2). What another holder
  // does to its own description (O_NONBLOCK, access mode) has no effect on this one.
  [[nodiscard]] Result<Fd> reopen(int flags) const;

 private:
  int fd_ = -1;
};

}  // namespace vrdma::base
