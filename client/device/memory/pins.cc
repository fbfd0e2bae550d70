#include "client/device/memory/pins.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "client/device/memory/maps.h"
#include "core/base/fd.h"

namespace vrdma::client {

namespace {

constexpr int kXdp = 44;  // AF_XDP

constexpr std::array<std::string_view, 9> kPinners{"anon_inode:[io_uring]",
                                                   "anon_inode:[userfaultfd]",
                                                   "/dev/vfio/",
                                                   "anon_inode:[vfio",
                                                   "/dev/nvidia",
                                                   "/dev/kfd",
                                                   "/dev/dri/",
                                                   "/dev/vhost-",
                                                   "/dev/infiniband/uverbs"};  // an adapter

// Of descriptor `fd`. Programs have thousands of sockets, and each registration asks for all, so
// the target's name, which takes the kernel longest, is read only where its type does not decide.
bool pins(int fd, int folder, const char* name) {
  struct stat what {};
  if (::fstat(fd, &what) != 0) return false;  // it was closed meanwhile
  if (S_ISSOCK(what.st_mode)) {
    int domain = 0;
    socklen_t length = sizeof domain;
    return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == kXdp;
  }
  const bool is_anonymous =
      (what.st_mode & S_IFMT) == 0;  // anon_inode_getattr() of fs/anon_inodes.c
  if (!is_anonymous && !S_ISCHR(what.st_mode)) return false;
  char target[64];
  const ssize_t length = ::readlinkat(folder, name, target, sizeof target);
  const std::string_view text(target, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return std::any_of(kPinners.begin(), kPinners.end(),
                     [&](std::string_view one) { return text.substr(0, one.size()) == one; });
}

// Requests of io_setup(2) in flight have pins.
bool has_asynchronous_io() {
  // All requests of the host; it is usually 0, and cheaper than a look at all mappings.
  const base::Fd total(::open("/proc/sys/fs/aio-nr", O_RDONLY | O_CLOEXEC));
  char text[2];
  if (total.valid() && ::read(total.get(), text, sizeof text) == 2 && text[0] == '0') return false;
  const SeeMapped see = [](const Mapped& one, void* found) {
    if (one.asynchronous_io) *static_cast<bool*>(found) = true;
  };
  bool found = false;
  return !visit_shared_files(see, &found) || found;
}

}  // namespace

bool may_have_pinned_pages(std::initializer_list<int> own) {
  if (has_asynchronous_io()) return true;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (folder == nullptr) return true;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    const int fd = std::atoi(entry->d_name);
    if (std::find(own.begin(), own.end(), fd) == own.end() &&
        pins(fd, ::dirfd(folder.get()), entry->d_name))
      return true;
  }
  return false;
}

}  // namespace vrdma::client
