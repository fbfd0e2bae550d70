// Descriptors 0 to 2 of a program that was started without them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace vrdma::base {

// Opens /dev/null where standard input, output or error is closed. Else the next file or socket
// that the program opens would be taken for it. First in main().
//
// `writable`: output is lost. Otherwise a write fails (EBADF), so that the program can say so.
inline void fill_standard_streams(bool writable) {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0)
      (void)::open("/dev/null", writable ? O_RDWR : fd == 0 ? O_WRONLY : O_RDONLY);
}

}  // namespace vrdma::base
