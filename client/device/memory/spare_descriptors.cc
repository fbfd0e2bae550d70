#include "client/device/memory/spare_descriptors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

namespace vrdma::client {

namespace {
ino_t inode_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_ino : 0;
}
}  // namespace

bool SpareDescriptors::make() {
  if (inode_ != 0) return true;
  all_[0] = base::Fd(::memfd_create("vrdma-spare", MFD_CLOEXEC));
  for (size_t i = 1; i < all_.size() && all_[0].valid(); ++i)
    all_[i] = base::Fd(::fcntl(all_[0].get(), F_DUPFD_CLOEXEC, 0));
  if (std::all_of(all_.begin(), all_.end(), [](const base::Fd& one) { return one.valid(); })) {
    inode_ = inode_of(all_[0].get());
    return true;
  }
  for (base::Fd& one : all_) one.reset();
  return false;
}

void SpareDescriptors::let_go() {
  for (base::Fd& one : all_) {
    if (inode_of(one.get()) != inode_)
      (void)one.release();
    else
      one.reset();
  }
  inode_ = 0;
}

}  // namespace vrdma::client
