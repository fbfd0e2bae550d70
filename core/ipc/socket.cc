#include "core/ipc/socket.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "core/base/linger.h"

namespace vrdma::ipc {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

namespace {
// The most that the kernel permits in one message (SCM_MAX_FD). With less room the kernel would
// close the rest itself, which could take as long as the sender likes.
constexpr size_t kMostFds = 253;
union Control {
  char buffer[CMSG_SPACE(sizeof(int) * kMostFds) + CMSG_SPACE(sizeof(ucred))];
  cmsghdr align;
};
}  // namespace

Result<std::pair<Fd, Fd>> make_socket_pair(int flags) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0, ends.data()) != 0)
    return fail_errno("create a pair of sockets");
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

Result<void> send_message(int socket, const void* data, size_t size, const std::vector<int>& fds) {
  return send_message(socket, data, size, fds.data(), fds.size());
}

Result<void> send_message(int socket, const void* data, size_t size, const int* fds, size_t count) {
  iovec piece{const_cast<void*>(data), size};
  Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (count > 0) {
    if (count > kMostFds) return fail(E2BIG, "too many file descriptors for one message");
    message.msg_control = control.buffer;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(size)) return {};
    if (sent < 0 && errno == EINTR) continue;
    return fail_errno("send a session message", sent < 0 ? errno : EMSGSIZE);
  }
}

Received receive_any(int socket, void* data, size_t size, int flags, std::vector<Fd> fds) {
  iovec piece{data, size};
  Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.buffer;
  Received received;
  received.fds = std::move(fds);
  do {
    message.msg_controllen = sizeof control.buffer;
    received.length = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_TRUNC | flags);
  } while (received.length < 0 && errno == EINTR);
  if (received.length < 0) {
    received.error = errno;
    return received;
  }
  received.alone = message.msg_controllen == 0;
  received.truncated = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_CREDENTIALS) {
      ucred credentials{};
      std::memcpy(&credentials, CMSG_DATA(header), sizeof credentials);
      received.sender = {credentials.pid, credentials.uid, credentials.gid};
    }
    if (header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      received.fds.emplace_back(fd);
    }
  }
  return received;
}

namespace {

// Returns the length of the message; stores at most `size` bytes.
Result<size_t> receive_some(int socket, void* data, size_t size, std::vector<Fd>* fds,
                            Sender* sender, base::Linger* linger) {
  const bool linger_wanted = linger != nullptr;  // a reply; missing descriptors are accepted
  const size_t had = fds->size();
  Received received;
  for (;;) {
    received =
        receive_any(socket, data, size, linger != nullptr ? MSG_DONTWAIT : 0, std::move(*fds));
    *fds = std::move(received.fds);
    if (received.length >= 0 || received.error != EAGAIN || linger == nullptr) break;
    if (!linger->again()) linger = nullptr;
  }
  if (received.length < 0) return fail_errno("receive a session message", received.error);
  if (sender != nullptr) *sender = received.sender;
  const bool too_many = fds->size() - had > kMaxFds;
  if (received.length == 0) return fail(ECONNRESET, "the session was closed by its peer");
  if (received.truncated ? !linger_wanted : too_many)
    return fail(EBADMSG, "a session message has too many file descriptors");
  return static_cast<size_t>(received.length);
}

// More than any version of a message will have.
constexpr size_t kMostBytes = 1024;

// The common start of all messages with a size.
struct Frame {
  uint32_t magic, version, word, another, size;
};
static_assert(offsetof(Request, size) == offsetof(Frame, size) &&
              offsetof(Reply, size) == offsetof(Frame, size) &&
              offsetof(CmRequest, size) == offsetof(Frame, size) &&
              offsetof(CmReply, size) == offsetof(Frame, size));

Result<void> take(int socket, void* data, size_t size, Sized versions, std::vector<Fd>* fds,
                  Sender* sender, base::Linger* linger) {
  std::array<uint8_t, kMostBytes> bytes;
  auto length = receive_some(socket, bytes.data(), bytes.size(), fds, sender, linger);
  if (!length) return base::pass(std::move(length).error());
  return decode_sized(bytes.data(), bytes.size(), *length, data, size, versions);
}

}  // namespace

Result<void> decode_sized(const uint8_t* bytes, size_t size_of_bytes, size_t length, void* data,
                          size_t size, Sized versions) {
  const auto bad = [] { return fail(EBADMSG, "a session message has the wrong size"); };
  constexpr size_t kLeast = offsetof(Frame, size);  // of messages without a size
  if (length < kLeast || length > size_of_bytes) return bad();
  Frame frame{};
  std::memcpy(&frame, bytes, std::min(length, sizeof frame));
  if (frame.version >= versions.oldest && frame.version <= versions.newest &&
      (length < sizeof frame || frame.size != length ||
       std::any_of(bytes + static_cast<ptrdiff_t>(std::min(size, length)),
                   bytes + static_cast<ptrdiff_t>(length), [](uint8_t byte) { return byte != 0; })))
    return bad();
  std::memset(data, 0, size);
  std::memcpy(data, bytes, std::min(size, length));
  return {};
}

Result<void> receive_message(int socket, void* data, size_t size, std::vector<Fd>* fds) {
  auto length = receive_some(socket, data, size, fds, nullptr, nullptr);
  if (!length) return base::pass(std::move(length).error());
  if (*length != size) return fail(EBADMSG, "a session message has the wrong size");
  return {};
}

Result<void> receive_sized(int socket, void* data, size_t size, Sized versions,
                           std::vector<Fd>* fds, Sender* sender) {
  return take(socket, data, size, versions, fds, sender, nullptr);
}

Result<void> receive_reply(int socket, void* data, size_t size, Sized versions,
                           std::vector<Fd>* fds) {
  constexpr std::chrono::microseconds kPatience{50};  // about five times what the daemon takes
  base::Linger linger(kPatience);
  linger.begin();
  return take(socket, data, size, versions, fds, nullptr, &linger);
}

}  // namespace vrdma::ipc
