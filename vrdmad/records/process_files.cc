#include "vrdmad/records/process_files.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/base/mapping.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

namespace {

// The value of `key` in fdinfo (proc(5)) of descriptor `number`; `directory`: the process's. 0:
// none.
uint64_t info_of(const std::string& directory, int number, const char* key, uint64_t plus = 0) {
  std::ifstream info(directory + "/fdinfo/" + std::to_string(number));
  for (std::string word; info >> word;)
    if (word == key && info >> word) return std::strtoull(word.c_str(), nullptr, 10) + plus;
  return 0;
}

uint64_t id_in(const std::string& directory, int number) {
  return info_of(directory, number, "eventfd-id:", 1);
}

// The device number of all memory files.
uint64_t memory_device() {
  struct stat status {};
  const auto file = base::make_memfd("vrdma-none", 0);
  if (!file || ::fstat(file->get(), &status) != 0) return 0;
  return uint64_t{major(status.st_dev)} << 32 | minor(status.st_dev);
}

// The kernel's description of a descriptor in /proc.
std::string kind_in(const std::string& directory, int number) {
  std::error_code gone;
  return std::filesystem::read_symlink(directory + "/fd/" + std::to_string(number), gone).string();
}

// A descriptor that may be another file, whose last close may take as long as its maker chose.
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
  return {device, info_of("/proc/self", fd.get(), "ino:")};
}

uint64_t eventfd_id(const Fd& fd) { return id_in("/proc/self", fd.get()); }

Result<ProcessFiles> ProcessFiles::of(pid_t pid, int pidfd, Intake::AccountRef account) {
  namespace fs = std::filesystem;
  ProcessFiles files;
  files.account_ = std::move(account);
  files.pidfd_ = Fd(::fcntl(pidfd, F_DUPFD_CLOEXEC, 0));
  if (!files.pidfd_.valid()) return fail_errno("inspect process " + std::to_string(pid));
  std::error_code error;
  const std::string directory = "/proc/" + std::to_string(pid);
  auto it = fs::directory_iterator(directory + "/fd", error);
  if (error) return fail(error.value(), "list " + directory + ": " + error.message());
  for (int left = kMost; it != fs::directory_iterator(); it.increment(error), --left) {
    if (left == 0)
      return fail(EMFILE, "its process has more than " + std::to_string(kMost) + " descriptors");
    const int number = std::atoi(it->path().filename().c_str());
    const std::string target = kind_in(directory, number);
    if (target.rfind("/memfd:vrdma-", 0) == 0) files.memory_files_.push_back(number);
    if (target == "anon_inode:[eventfd]") files.eventfds_.emplace(id_in(directory, number), number);
    if (constexpr std::string_view kSocket = "socket:["; target.rfind(kSocket, 0) == 0)
      files.sockets_.emplace(std::strtoull(target.c_str() + kSocket.size(), nullptr, 10), number);
    if (error) break;
  }
  return files;
}

Fd ProcessFiles::take(int number) const {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd_.get(), number, 0)));
}

Result<Fd> ProcessFiles::memory_file(const FileId& id, uint64_t size) const {
  for (const int number : memory_files_) {
    // Its name proves nothing, and reading fdinfo does not block on a lock of the file.
    Taken taken(account_, take(number));
    const auto own = file_id(taken.fd) == id ? taken.fd.reopen(O_RDWR) : base::Result<Fd>(Fd());
    if (!own ||
        ::fcntl(taken.fd.get(), F_GET_SEALS) != (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
        ::lseek(own->get(), 0, SEEK_END) != static_cast<off_t>(size) ||
        (::fcntl(taken.fd.get(), F_GETFL) & O_ACCMODE) != O_RDWR)
      continue;
    return std::move(taken.fd);
  }
  return fail(ENOENT, "its process no longer has a memory file");
}

Result<Fd> ProcessFiles::eventfd(uint64_t id) const {
  if (const auto it = eventfds_.find(id); id != 0 && it != eventfds_.end()) {
    Taken taken(account_, take(it->second));
    if (eventfd_id(taken.fd) == id) return std::move(taken.fd);
  }
  return fail(ENOENT, "its process no longer has its doorbell");
}

Result<Fd> ProcessFiles::event_end(uint64_t inode) const {
  const auto it = sockets_.find(inode);
  if (inode != 0 && it != sockets_.end()) {
    Taken taken(account_, take(it->second));
    int domain = 0;
    socklen_t size = sizeof domain;
    if (file_id(taken.fd).inode == inode &&
        ::getsockopt(taken.fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
        domain == AF_UNIX)
      return std::move(taken.fd);
  }
  return fail(ENOENT, "its process no longer has an end of its events");
}

}  // namespace vrdma::vrdmad
