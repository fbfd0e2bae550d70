#include "vrdmad/records/process_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "core/base/mapping.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;

namespace {

constexpr const char* kMemory = "a memory file";

uint64_t find_device_of_memory() {
  struct stat status {};
  const auto file = base::make_memfd("vrdma-none", 0);
  if (!file || ::fstat(file->get(), &status) != 0) return 0;
  return uint64_t{major(status.st_dev)} << 32 | minor(status.st_dev);
}

// The device number of all memory files.
uint64_t device_of_memory() {
  static const uint64_t device = find_device_of_memory();
  return device;
}

tl::unexpected<base::Error> missing(const char* what) {
  return fail(ENOENT, std::string("its process no longer has ") + what);
}

// The last close of another file may take long.
void close_by(const Intake::AccountRef& account, Fd fd) {
  if (fd.valid() && account->intake() != nullptr) account->intake()->close(account, std::move(fd));
}

// The broker has compared its inode.
bool is_ours(const Fd& fd, const FileId& id, uint64_t size) {
  if (id.device != device_of_memory()) return false;
  const auto own = fd.reopen(O_RDWR);
  return own && ::fcntl(fd.get(), F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) &&
         ::lseek(own->get(), 0, SEEK_END) == static_cast<off_t>(size) &&
         (::fcntl(fd.get(), F_GETFL) & O_ACCMODE) == O_RDWR;
}

}  // namespace

FileId file_id(const Fd& fd) { return memory_file_id(FdInfo::own(fd).inode); }

FileId memory_file_id(uint64_t inode) { return {device_of_memory(), inode}; }

uint64_t eventfd_id(const Fd& fd) { return FdInfo::own(fd).eventfd; }

ProcessFiles::ProcessFiles(Intake::AccountRef account, const std::vector<Caller::Wanted>& wanted,
                           std::vector<Fd> taken)
    : account_(std::move(account)) {
  for (size_t i = 0; i < taken.size(); ++i)
    if (taken[i].valid()) taken_[{wanted[i].kind, wanted[i].id}] = std::move(taken[i]);
}

ProcessFiles::~ProcessFiles() {
  for (auto& [wanted, fd] : taken_) close_by(account_, std::move(fd));
}

Result<Fd> ProcessFiles::give(WantedFile kind, uint64_t id, const char* what) {
  auto taken = taken_.extract({kind, id});
  if (taken.empty()) return missing(what);
  return std::move(taken.mapped());
}

Result<Fd> ProcessFiles::memory_file(const FileId& id, uint64_t size) {
  auto fd = give(WantedFile::kMemory, id.inode, kMemory);
  if (!fd || is_ours(*fd, id, size)) return fd;
  close_by(account_, std::move(*fd));
  return missing(kMemory);
}

Result<Fd> ProcessFiles::eventfd(uint64_t id) {
  return give(WantedFile::kEventfd, id, "its doorbell");
}

Result<Fd> ProcessFiles::event_end(uint64_t inode) {
  return give(WantedFile::kSocket, inode, "an end of its events");
}

}  // namespace vrdma::vrdmad
