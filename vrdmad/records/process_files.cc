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

// The device number of all memory files.
uint64_t memory_device() {
  struct stat status {};
  const auto file = base::make_memfd("vrdma-none", 0);
  if (!file || ::fstat(file->get(), &status) != 0) return 0;
  return uint64_t{major(status.st_dev)} << 32 | minor(status.st_dev);
}

// A memory file that may be another one, whose last close frees as much memory as it has.
struct Taken {
  Taken(Intake::AccountRef whose, Fd taken) : account(std::move(whose)), fd(std::move(taken)) {}
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  ~Taken() {
    if (account->intake() != nullptr) account->intake()->close(account, std::move(fd));
  }
  const Intake::AccountRef account;
  Fd fd;
};

}  // namespace

FileId file_id(const Fd& fd) {
  static const uint64_t device = memory_device();
  return {device, FdInfo::own(fd).inode};
}

uint64_t eventfd_id(const Fd& fd) { return FdInfo::own(fd).eventfd; }

tl::unexpected<base::Error> ProcessFiles::missing(const char* what) {
  return fail(ENOENT, std::string("its process no longer has ") + what);
}

Result<Fd> ProcessFiles::take(WantedFile kind, uint64_t id, const char* what) const {
  base::Duration used{};
  auto fd = process_->take(kind, id, *left_, &used);
  *left_ -= used;
  *used_ += used;
  if (fd) return fd;
  if (fd.error().code() == EMFILE)
    return fail(EMFILE, "its process has too many descriptors to search them all");
  if (fd.error().code() == ENOENT) return missing(what);
  return pass(std::move(fd).error());
}

Result<Fd> ProcessFiles::memory_file(const FileId& id, uint64_t size) const {
  auto file = take(WantedFile::kMemory, id.inode, kMemory);
  if (!file) return file;
  Taken taken(account_, std::move(*file));
  // Its name proves nothing, and reading fdinfo does not block on a lock of the file.
  Fd& fd = taken.fd;
  const auto own = file_id(fd) == id ? fd.reopen(O_RDWR) : Result<Fd>(Fd());
  if (own && ::fcntl(fd.get(), F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) &&
      ::lseek(own->get(), 0, SEEK_END) == static_cast<off_t>(size) &&
      (::fcntl(fd.get(), F_GETFL) & O_ACCMODE) == O_RDWR)
    return std::move(fd);
  return missing(kMemory);
}

Result<Fd> ProcessFiles::eventfd(uint64_t id) const {
  return take(WantedFile::kEventfd, id, "its doorbell");
}

Result<Fd> ProcessFiles::event_end(uint64_t inode) const {
  return take(WantedFile::kSocket, inode, "an end of its events");
}

}  // namespace vrdma::vrdmad
