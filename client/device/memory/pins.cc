#include "client/device/memory/pins.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
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

constexpr std::array<std::string_view, 8> kPinners{"anon_inode:[io_uring]",
                                                   "anon_inode:[userfaultfd]",
                                                   "/dev/vfio/",
                                                   "anon_inode:[vfio",
                                                   "/dev/nvidia",
                                                   "/dev/kfd",
                                                   "/dev/dri/",
                                                   "/dev/vhost-"};

// `text` is a descriptor's target.
bool pins(std::string_view text, int fd) {
  for (const std::string_view one : kPinners)
    if (text.substr(0, one.size()) == one) return true;
  if (text.substr(0, 7) != "socket:") return false;
  int domain = 0;
  socklen_t length = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == kXdp;
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
    char target[64];
    const ssize_t length =
        ::readlinkat(::dirfd(folder.get()), entry->d_name, target, sizeof target);
    if (length > 0 && std::find(own.begin(), own.end(), fd) == own.end() &&
        pins({target, static_cast<size_t>(length)}, fd))
      return true;
  }
  return false;
}

}  // namespace vrdma::client
