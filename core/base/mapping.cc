#include "core/base/mapping.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace vrdma::base {

Result<Mapping> Mapping::shared(const Fd& fd, size_t size, uint64_t offset, int prot) {
  void* address = ::mmap(nullptr, size, prot, MAP_SHARED, fd.get(), static_cast<off_t>(offset));
  if (address == MAP_FAILED) return fail_errno("map shared memory");
  ::madvise(address, size, MADV_DONTDUMP);
  ::madvise(address, size, MADV_DONTFORK);
  Mapping mapping;
  mapping.address_ = address;
  mapping.size_ = size;
  return mapping;
}

Result<void> Mapping::show(const Fd& fd) {
  if (::mmap(address_, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0) ==
      MAP_FAILED)
    return fail_errno("map shared memory");
  ::madvise(address_, size_, MADV_DONTDUMP);
  ::madvise(address_, size_, MADV_DONTFORK);
  return {};
}

Result<Fd> make_memfd(const char* name, uint64_t size) {
  Fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return fail_errno("create a memory file");
  if (::fchmod(fd.get(), 0600) != 0) return fail_errno("set the mode of a memory file");
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return fail_errno("size a memory file");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return fail_errno("seal a memory file");
  return fd;
}

}  // namespace vrdma::base
