// Descriptors for a fork of a process that has no other free: open, but of no use until let_go()
// makes their numbers free. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <array>

#include "core/base/fd.h"

namespace vrdma::client {

class SpareDescriptors {
 public:
  // False: there are not enough.
  [[nodiscard]] bool make();
  // Closes them, but not what the program has opened in place of one that it has closed.
  void let_go();

 private:
  std::array<base::Fd, 3> all_;
  ino_t inode_ = 0;  // of the memory file that all of them are of
};

}  // namespace vrdma::client
