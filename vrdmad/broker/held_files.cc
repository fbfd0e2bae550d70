#include "vrdmad/broker/held_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/base/cpu_meter.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

namespace {

uint64_t value_of(std::string_view text, std::string_view key, int base) {
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at, key.size()) == key)
      return std::strtoull(text.data() + at + key.size(), nullptr, base);
    const size_t end = text.find('\n', at);
    at = end == std::string_view::npos ? text.size() : end + 1;
  }
  return 0;
}

// A directory that is read without its path.
class Directory {
 public:
  explicit Directory(const std::string& path) : directory_(::opendir(path.c_str())) {}
  ~Directory() {
    if (directory_ != nullptr) ::closedir(directory_);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  [[nodiscard]] bool valid() const { return directory_ != nullptr; }
  [[nodiscard]] int fd() const { return ::dirfd(directory_); }
  // nullptr: there is no more.
  [[nodiscard]] const char* next() {
    const dirent* entry = ::readdir(directory_);
    return entry != nullptr ? entry->d_name : nullptr;
  }

 private:
  DIR* directory_;
};

// Reading fdinfo reaches no file system, and a file system cannot be mistaken for any of the three.
bool is(const Fd& fd, WantedFile kind, uint64_t id) {
  const FdInfo info = FdInfo::own(fd);
  int domain = 0;
  socklen_t size = sizeof domain;
  switch (kind) {
    case WantedFile::kMemory:
      return ::fcntl(fd.get(), F_GET_SEALS) >= 0 && info.inode == id;
    case WantedFile::kEventfd:
      return info.eventfd == id;
    case WantedFile::kSocket:
      return ::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
             domain == AF_UNIX && info.inode == id;
  }
  return false;
}

}  // namespace

FdInfo FdInfo::own(const Fd& fd) {
  return of(AT_FDCWD, ("/proc/self/fdinfo/" + std::to_string(fd.get())).c_str());
}

FdInfo FdInfo::of(int fdinfo, const char* name) {
  constexpr int kDecimal = 10, kOctal = 8;
  constexpr std::string_view kEventfdId = "eventfd-id:";
  std::array<char, 512> room{};
  const Fd file(::openat(fdinfo, name, O_RDONLY | O_CLOEXEC));
  const ssize_t got = file.valid() ? ::read(file.get(), room.data(), room.size() - 1) : -1;
  const std::string_view text(room.data(), got > 0 ? static_cast<size_t>(got) : 0);
  FdInfo info;
  info.inode = value_of(text, "ino:", kDecimal);
  if (text.find(kEventfdId) != std::string_view::npos)
    info.eventfd = value_of(text, kEventfdId, kDecimal) + 1;
  info.writable = (value_of(text, "flags:", kOctal) & O_ACCMODE) == O_RDWR;
  return info;
}

Result<HeldFiles> HeldFiles::of(pid_t pid, base::Duration time) {
  constexpr unsigned kAtOnce = 64;  // between two looks at the clock
  const std::string process = "/proc/" + std::to_string(pid);
  Directory fds(process + "/fd"), infos(process + "/fdinfo");
  if (!fds.valid() || !infos.valid()) return fail_errno("inspect process " + std::to_string(pid));
  const base::Duration begun = base::thread_cpu_time();
  HeldFiles files;
  unsigned count = 0;
  while (const char* name = fds.next()) {
    if (++count % kAtOnce == 0 && base::thread_cpu_time() - begun > time) {
      files.ended_early_ = true;
      break;
    }
    if (name[0] != '.') files.look_at(fds.fd(), infos.fd(), name);
  }
  return files;
}

void HeldFiles::look_at(int fds, int infos, const char* name) {
  constexpr std::string_view kMemory = "/memfd:", kSocket = "socket:[",
                             kEventfd = "anon_inode:[eventfd]";
  std::array<char, 64> room{};
  const ssize_t length = ::readlinkat(fds, name, room.data(), room.size() - 1);
  if (length <= 0) return;
  const std::string_view target(room.data(), static_cast<size_t>(length));
  const int number = std::atoi(name);
  if (target.starts_with(kMemory)) {
    // A process has those of its peers, perhaps itself, for reading.
    if (const FdInfo info = FdInfo::of(infos, name); info.writable)
      numbers_.emplace(std::pair(WantedFile::kMemory, info.inode), number);
  } else if (target.starts_with(kSocket)) {
    numbers_.emplace(
        std::pair(WantedFile::kSocket, std::strtoull(room.data() + kSocket.size(), nullptr, 10)),
        number);
  } else if (target == kEventfd) {
    numbers_.emplace(std::pair(WantedFile::kEventfd, FdInfo::of(infos, name).eventfd), number);
  }
}

Result<Fd> HeldFiles::take(int pidfd, WantedFile kind, uint64_t id) const {
  const auto it = numbers_.find({kind, id});
  if (it == numbers_.end() || id == 0)
    return fail(ended_early_ ? EMFILE : ENOENT, "the process has no such descriptor");
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd, it->second, 0)));
  if (!fd.valid() && errno == EBADF) return fail(ENOENT, "the process has closed it by now");
  if (!fd.valid()) return fail_errno("take a descriptor");
  if (!is(fd, kind, id)) return fail(ENOENT, "the process has another file there by now");
  return fd;
}

}  // namespace vrdma::vrdmad
