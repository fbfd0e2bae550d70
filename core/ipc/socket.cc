#include "core/ipc/socket.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <chrono>
#include <cstring>

#include "core/base/linger.h"
#include "core/ipc/messages.h"

namespace vrdma::ipc {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

namespace {
// As many as the kernel lets one message have (SCM_MAX_FD), so that it never has to close any
// itself, which could take as long as their sender likes.
constexpr size_t kMostFds = 253;
union Control {
  char buffer[CMSG_SPACE(sizeof(int) * kMostFds)];
  cmsghdr align;
};
}  // namespace

Result<void> send_message(int socket, const void* data, size_t size, const std::vector<int>& fds) {
  iovec piece{const_cast<void*>(data), size};
  Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    if (fds.size() > kMaxFds) return fail(E2BIG, "too many file descriptors for one message");
    message.msg_control = control.buffer;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(size)) return {};
    if (sent < 0 && errno == EINTR) continue;
    return fail_errno("send a session message", sent < 0 ? errno : EMSGSIZE);
  }
}

namespace {

Result<void> receive(int socket, void* data, size_t size, std::vector<Fd>* fds,
                     base::Linger* linger) {
  iovec piece{data, size};
  Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.buffer;
  ssize_t received;
  for (;;) {
    message.msg_controllen = sizeof control.buffer;
    received = ::recvmsg(socket, &message,
                         MSG_CMSG_CLOEXEC | MSG_TRUNC | (linger != nullptr ? MSG_DONTWAIT : 0));
    if (received < 0 && errno == EINTR) continue;
    if (received >= 0 || errno != EAGAIN || linger == nullptr) break;
    if (!linger->again()) linger = nullptr;
  }
  if (received < 0) return fail_errno("receive a session message");
  const size_t before = fds->size();
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      fds->emplace_back(fd);
    }
  }
  if (received == 0) return fail(ECONNRESET, "the session was closed by its peer");
  if (received != static_cast<ssize_t>(size) || (message.msg_flags & MSG_CTRUNC) != 0 ||
      fds->size() - before > kMaxFds)
    return fail(EBADMSG, "a session message has the wrong size");
  return {};
}

}  // namespace

Result<void> receive_message(int socket, void* data, size_t size, std::vector<Fd>* fds) {
  return receive(socket, data, size, fds, nullptr);
}

Result<void> receive_reply(int socket, void* data, size_t size, std::vector<Fd>* fds) {
  constexpr std::chrono::microseconds kPatience{50};  // some five times what the daemon takes
  base::Linger linger(kPatience);
  linger.begin();
  auto got = receive(socket, data, size, fds, &linger);
  if (!got && got.error().code() == EBADMSG) return {};
  return got;
}

}  // namespace vrdma::ipc
