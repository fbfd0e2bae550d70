#include "vrdmad/process_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "vrdmad/strange_fds.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::Result;

FileId file_id(const Fd& fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

uint64_t eventfd_id(const Fd& fd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd.get()));
  for (std::string word; info >> word;)
    if (word == "eventfd-id:" && info >> word) return std::strtoull(word.c_str(), nullptr, 10) + 1;
  return 0;
}

Result<ProcessFiles> ProcessFiles::of(pid_t pid, int pidfd) {
  namespace fs = std::filesystem;
  ProcessFiles files;
  files.pidfd_ = pidfd;
  std::error_code error;
  const std::string directory = "/proc/" + std::to_string(pid) + "/fd";
  auto it = fs::directory_iterator(directory, error);
  if (error) return fail(error.value(), "look at " + directory + ": " + error.message());
  for (; it != fs::directory_iterator(); it.increment(error)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(it->path(), gone).string();
    const int number = std::atoi(it->path().filename().c_str());
    if (target.rfind("/memfd:vrdma-", 0) == 0) files.memory_files_.push_back(number);
    if (target == "anon_inode:[eventfd]") files.eventfds_.push_back(number);
    if (target.rfind("pipe:[", 0) == 0)
      files.pipes_.emplace(std::strtoull(target.c_str() + 6, nullptr, 10), number);
    if (error) break;
  }
  return files;
}

Fd ProcessFiles::take(int number) const {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd_, number, 0)));
}

Result<Fd> ProcessFiles::memory_file(const FileId& id, uint64_t size) const {
  for (const int number : memory_files_) {
    StrangeFds taken;  // its name proves nothing
    taken.push_back(take(number));
    struct stat status {};
    if (::fcntl(taken[0].get(), F_GET_SEALS) != (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
        ::fstat(taken[0].get(), &status) != 0 || static_cast<uint64_t>(status.st_size) != size ||
        (::fcntl(taken[0].get(), F_GETFL) & O_ACCMODE) != O_RDWR || file_id(taken[0]) != id)
      continue;
    return std::move(taken[0]);
  }
  return fail(ENOENT, "its process does not have a memory file any more");
}

Result<Fd> ProcessFiles::eventfd(uint64_t id) const {
  for (const int number : eventfds_) {
    StrangeFds taken;
    taken.push_back(take(number));
    if (id != 0 && eventfd_id(taken[0]) == id) return std::move(taken[0]);
  }
  return fail(ENOENT, "its process does not have its doorbell any more");
}

Result<Fd> ProcessFiles::pipe(uint64_t inode) const {
  const auto it = pipes_.find(inode);
  if (it == pipes_.end()) return fail(ENOENT, "its process does not have a pipe any more");
  StrangeFds taken;
  taken.push_back(take(it->second));
  // Only a pipe has a size as a pipe. A FIFO of somebody's file system is another inode.
  if (::fcntl(taken[0].get(), F_GETPIPE_SZ) < 0 || file_id(taken[0]).inode != inode)
    return fail(ENOENT, "its process does not have a pipe any more");
  return taken[0].reopen(O_WRONLY | O_NONBLOCK);
}

}  // namespace vrdma::vrdmad
