#include "client/device/memory/arena.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "client/device/memory/raw_memory.h"

namespace vrdma::client {

namespace {
uint64_t inode_of(const base::Fd& file) {
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 ? status.st_ino : 0;
}
}  // namespace

Arena::Arena(base::Fd file) : file_(std::move(file)), inode_(inode_of(file_)) {}

bool Arena::is_same_file() const { return inode_of(file_) == inode_; }

void Arena::punch(uint64_t start, uint64_t end) const {
  if (start < end)
    (void)::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(start), static_cast<off_t>(end - start));
}

void* Arena::copy_of(const Mapped& one, uint64_t genuine) const {
  const uint64_t size = one.end - one.start;
  void* const copy =
      raw::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return nullptr;
  uint64_t done = 0;
  while (done < genuine) {
    const long count = raw::call(SYS_pread64, file_.get(), static_cast<uint8_t*>(copy) + done,
                                 genuine - done, one.offset + done);
    if (count <= 0) break;
    done += static_cast<uint64_t>(count);
  }
  if (done == genuine &&
      (one.prot == (PROT_READ | PROT_WRITE) || raw::mprotect(copy, size, one.prot) == 0))
    return copy;
  raw::munmap(copy, size);
  return nullptr;
}

bool replace(const Mapped& one, void* copy) {
  const uint64_t size = one.end - one.start;
  if (raw::mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED,
                  reinterpret_cast<void*>(one.start)) != MAP_FAILED)
    return true;
  raw::munmap(copy, size);
  return false;
}

}  // namespace vrdma::client
