#include "vrdmad/broker/child_process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace vrdma::vrdmad {

using base::Fd;

namespace {

void keep_capabilities(uint64_t kept) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  (void)::syscall(SYS_capget, &header, data);
  for (int word = 0; word < 2; ++word) {
    const auto mask = static_cast<uint32_t>(kept >> (32 * word));
    data[word].permitted &= mask;
    data[word].effective = data[word].permitted;
    data[word].inheritable = 0;
  }
  (void)::syscall(SYS_capset, &header, data);
  (void)::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  (void)::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

}  // namespace

Fd open_parent() { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0))); }

bool wait_for_message(const Fd& socket, const Fd& parent) {
  std::array<pollfd, 2> either{{{socket.get(), POLLIN, 0}, {parent.get(), POLLIN, 0}}};
  while (::poll(either.data(), either.size(), -1) < 0)
    if (errno != EINTR) return false;
  return either[1].revents == 0;
}

Fd become_child(const char* name, Fd socket, uint64_t capabilities) {
  (void)::prctl(PR_SET_NAME, name, 0, 0, 0);
  const int kept = ::fcntl(socket.release(), F_DUPFD_CLOEXEC, 3);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int stream = 0; stream <= 2; ++stream) ::dup2(null, stream);
  if (kept > 3) (void)::syscall(SYS_close_range, 3u, static_cast<unsigned>(kept - 1), 0);
  (void)::syscall(SYS_close_range, static_cast<unsigned>(kept + 1), ~0u, 0);
  keep_capabilities(capabilities);
  return Fd(kept);
}

}  // namespace vrdma::vrdmad
