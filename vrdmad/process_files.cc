#include "vrdmad/process_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

FileId file_id(const Fd& fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

namespace {

// Of the descriptor that is `number` in the process whose directory is given; see eventfd_id().
uint64_t id_in(const std::string& directory, int number) {
  std::ifstream info(directory + "/fdinfo/" + std::to_string(number));
  for (std::string word; info >> word;)
    if (word == "eventfd-id:" && info >> word) return std::strtoull(word.c_str(), nullptr, 10) + 1;
  return 0;
}

// What /proc says that a descriptor is: text of the kernel's own.
std::string kind_in(const std::string& directory, int number) {
  std::error_code gone;
  return std::filesystem::read_symlink(directory + "/fd/" + std::to_string(number), gone).string();
}

// Perhaps not what was looked for: then its last close may take as long as its maker likes.
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

uint64_t eventfd_id(const Fd& fd) { return id_in("/proc/self", fd.get()); }

Result<ProcessFiles> ProcessFiles::of(pid_t pid, int pidfd, Intake::AccountRef account) {
  namespace fs = std::filesystem;
  ProcessFiles files;
  files.account_ = std::move(account);
  files.pidfd_ = Fd(::fcntl(pidfd, F_DUPFD_CLOEXEC, 0));
  if (!files.pidfd_.valid()) return fail_errno("look into process " + std::to_string(pid));
  std::error_code error;
  const std::string directory = "/proc/" + std::to_string(pid);
  auto it = fs::directory_iterator(directory + "/fd", error);
  if (error) return fail(error.value(), "look at " + directory + ": " + error.message());
  for (int left = kMost; it != fs::directory_iterator(); it.increment(error), --left) {
    if (left == 0)
      return fail(EMFILE, "its process has more than " + std::to_string(kMost) + " descriptors");
    const int number = std::atoi(it->path().filename().c_str());
    const std::string target = kind_in(directory, number);
    if (target.rfind("/memfd:vrdma-", 0) == 0) files.memory_files_.push_back(number);
    if (target == "anon_inode:[eventfd]") files.eventfds_.emplace(id_in(directory, number), number);
    if (target.rfind("pipe:[", 0) == 0)
      files.pipes_.emplace(std::strtoull(target.c_str() + 6, nullptr, 10), number);
    if (error) break;
  }
  return files;
}

Fd ProcessFiles::take(int number) const {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd_.get(), number, 0)));
}

Result<Fd> ProcessFiles::memory_file(const FileId& id, uint64_t size) const {
  for (const int number : memory_files_) {
    Taken taken(account_, take(number));  // its name proves nothing
    struct stat status {};
    if (::fcntl(taken.fd.get(), F_GET_SEALS) != (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
        ::fstat(taken.fd.get(), &status) != 0 || static_cast<uint64_t>(status.st_size) != size ||
        (::fcntl(taken.fd.get(), F_GETFL) & O_ACCMODE) != O_RDWR || file_id(taken.fd) != id)
      continue;
    return std::move(taken.fd);
  }
  return fail(ENOENT, "its process does not have a memory file any more");
}

Result<Fd> ProcessFiles::eventfd(uint64_t id) const {
  if (const auto it = eventfds_.find(id); id != 0 && it != eventfds_.end()) {
    Taken taken(account_, take(it->second));
    if (eventfd_id(taken.fd) == id) return std::move(taken.fd);
  }
  return fail(ENOENT, "its process does not have its doorbell any more");
}

Result<Fd> ProcessFiles::pipe(uint64_t inode) const {
  const auto it = pipes_.find(inode);
  if (it == pipes_.end()) return fail(ENOENT, "its process does not have a pipe any more");
  Taken taken(account_, take(it->second));
  // A FIFO of somebody's file system would be a path.
  if (kind_in("/proc/self", taken.fd.get()) != "pipe:[" + std::to_string(inode) + "]")
    return fail(ENOENT, "its process does not have a pipe any more");
  return taken.fd.reopen(O_WRONLY | O_NONBLOCK);
}

}  // namespace vrdma::vrdmad
