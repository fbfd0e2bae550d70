// A file descriptor with one owner.
//
// Move-only; the destructor closes it. close() is never retried on EINTR, because Linux has already
// freed the descriptor (close(2)). errno is preserved.
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

  // A new open file description of the same file, with `flags` of open(2). It is independent of
  // what other holders do to theirs (O_NONBLOCK, access mode).
  [[nodiscard]] Result<Fd> reopen(int flags) const;

 private:
  int fd_ = -1;
};

}  // namespace vrdma::base
