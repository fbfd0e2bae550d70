#include "vrdmad/records/process_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/cpu_meter.h"
#include "core/base/mapping.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

namespace {

constexpr std::string_view kInode = "ino:", kEventfdId = "eventfd-id:", kFlags = "flags:";

// What fdinfo (proc(5)) has about one descriptor.
class Info {
 public:
  // `name`: of the file in the directory `fdinfo`.
  Info(int fdinfo, const char* name) {
    const Fd file(::openat(fdinfo, name, O_RDONLY | O_CLOEXEC));
    const ssize_t got = file.valid() ? ::read(file.get(), text_.data(), text_.size() - 1) : -1;
    length_ = got > 0 ? static_cast<size_t>(got) : 0;
  }
  // 0: there is none.
  [[nodiscard]] uint64_t value(std::string_view key, uint64_t plus = 0, int base = 10) const {
    const std::string_view all(text_.data(), length_);
    for (size_t at = 0; at < all.size();) {
      if (all.substr(at, key.size()) == key)
        return std::strtoull(text_.data() + at + key.size(), nullptr, base) + plus;
      const size_t end = all.find('\n', at);
      at = end == std::string_view::npos ? all.size() : end + 1;
    }
    return 0;
  }
  [[nodiscard]] uint64_t inode() const { return value(kInode); }
  [[nodiscard]] uint64_t eventfd() const { return value(kEventfdId, 1); }
  [[nodiscard]] bool is_writable() const {
    constexpr int kOctal = 8;
    return (value(kFlags, 0, kOctal) & O_ACCMODE) == O_RDWR;
  }

 private:
  std::array<char, 512> text_{};
  size_t length_ = 0;
};

Info own_info_of(const Fd& fd) {
  const Fd fdinfo(::open("/proc/self/fdinfo", O_PATH | O_DIRECTORY | O_CLOEXEC));
  return {fdinfo.get(), std::to_string(fd.get()).c_str()};
}

// The device number of all memory files.
uint64_t memory_device() {
  struct stat status {};
  const auto file = base::make_memfd("vrdma-none", 0);
  if (!file || ::fstat(file->get(), &status) != 0) return 0;
  return uint64_t{major(status.st_dev)} << 32 | minor(status.st_dev);
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
  return {device, own_info_of(fd).inode()};
}

uint64_t eventfd_id(const Fd& fd) { return own_info_of(fd).eventfd(); }

class ProcessFiles::Search {
 public:
  Search(pid_t pid, WantedFiles wanted)
      : fds_("/proc/" + std::to_string(pid) + "/fd"),
        infos_("/proc/" + std::to_string(pid) + "/fdinfo"),
        wanted_(std::move(wanted)) {}
  [[nodiscard]] bool valid() const { return fds_.valid() && infos_.valid(); }

  void run(base::Duration time, ProcessFiles* files) {
    constexpr unsigned kAtOnce = 64;  // between two looks at the clock
    const base::Duration begun = base::thread_cpu_time();
    const auto used = [&] { return base::thread_cpu_time() - begun; };
    unsigned count = 0;
    for (const char* name = ""; !is_complete() && name != nullptr;) {
      if (++count % kAtOnce == 0 && used() > time) {
        files->ended_early_ = true;
        break;
      }
      if (name = fds_.next(); name != nullptr && name[0] != '.') look_at(name, files);
    }
    files->time_used_ = used();
  }

 private:
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
  using Found = std::unordered_map<uint64_t, int>;

  [[nodiscard]] bool is_complete() const {
    return wanted_.memory_files.empty() && wanted_.eventfds.empty() && wanted_.sockets.empty();
  }
  static void note(uint64_t id, const char* name, std::unordered_set<uint64_t>* wanted,
                   Found* found) {
    if (wanted->erase(id) > 0) found->emplace(id, std::atoi(name));
  }
  void look_at(const char* name, ProcessFiles* files) {
    constexpr std::string_view kMemory = "/memfd:vrdma-", kSocket = "socket:[",
                               kEventfd = "anon_inode:[eventfd]";
    std::array<char, 64> room{};
    const ssize_t length = ::readlinkat(fds_.fd(), name, room.data(), room.size() - 1);
    if (length <= 0) return;
    const std::string_view target(room.data(), static_cast<size_t>(length));
    if (target.starts_with(kMemory)) {
      // A process has those of its peers, perhaps itself, for reading.
      if (const Info info(infos_.fd(), name); info.is_writable())
        note(info.inode(), name, &wanted_.memory_files, &files->memory_files_);
    } else if (target.starts_with(kSocket)) {
      note(std::strtoull(room.data() + kSocket.size(), nullptr, 10), name, &wanted_.sockets,
           &files->sockets_);
    } else if (target == kEventfd) {
      note(Info(infos_.fd(), name).eventfd(), name, &wanted_.eventfds, &files->eventfds_);
    }
  }

  Directory fds_, infos_;
  WantedFiles wanted_;
};

Result<ProcessFiles> ProcessFiles::of(pid_t pid, int pidfd, Intake::AccountRef account,
                                      WantedFiles wanted, base::Duration time) {
  ProcessFiles files;
  files.account_ = std::move(account);
  files.pidfd_ = Fd(::fcntl(pidfd, F_DUPFD_CLOEXEC, 0));
  Search search(pid, std::move(wanted));
  if (!files.pidfd_.valid() || !search.valid())
    return fail_errno("inspect process " + std::to_string(pid));
  search.run(time, &files);
  return files;
}

base::Error ProcessFiles::missing(const char* what) const {
  if (ended_early_) return {EMFILE, "its process has too many descriptors to search them all"};
  return {ENOENT, std::string("its process no longer has ") + what};
}

Fd ProcessFiles::take(int number) const {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd_.get(), number, 0)));
}

Result<Fd> ProcessFiles::memory_file(const FileId& id, uint64_t size) const {
  if (const auto it = memory_files_.find(id.inode); it != memory_files_.end()) {
    // Its name proves nothing, and reading fdinfo does not block on a lock of the file.
    Taken taken(account_, take(it->second));
    const auto own = file_id(taken.fd) == id ? taken.fd.reopen(O_RDWR) : base::Result<Fd>(Fd());
    if (own &&
        ::fcntl(taken.fd.get(), F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) &&
        ::lseek(own->get(), 0, SEEK_END) == static_cast<off_t>(size) &&
        (::fcntl(taken.fd.get(), F_GETFL) & O_ACCMODE) == O_RDWR)
      return std::move(taken.fd);
  }
  return base::pass(missing("a memory file"));
}

Result<Fd> ProcessFiles::eventfd(uint64_t id) const {
  if (const auto it = eventfds_.find(id); id != 0 && it != eventfds_.end()) {
    Taken taken(account_, take(it->second));
    if (eventfd_id(taken.fd) == id) return std::move(taken.fd);
  }
  return base::pass(missing("its doorbell"));
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
  return base::pass(missing("an end of its events"));
}

}  // namespace vrdma::vrdmad
