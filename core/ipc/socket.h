// Whole messages with file descriptors over a SOCK_SEQPACKET socket.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/fd.h"
#include "core/ipc/cm_messages.h"
#include "core/ipc/messages.h"

namespace vrdma::ipc {

// Two connected SOCK_SEQPACKET sockets, close-on-exec. `flags`: in addition, SOCK_NONBLOCK.
[[nodiscard]] base::Result<std::pair<base::Fd, base::Fd>> make_socket_pair(int flags = 0);

// Sends `size` bytes and duplicates of `fds` (at most 253, SCM_MAX_FD) as one message, without
// SIGPIPE. Errors: EAGAIN if a non-blocking socket is full, EPIPE or ECONNRESET if the peer is
// gone.
[[nodiscard]] base::Result<void> send_message(int socket, const void* data, size_t size,
                                              const std::vector<int>& fds = {});

// The same with `count` descriptors; allocates nothing unless it fails.
[[nodiscard]] base::Result<void> send_message(int socket, const void* data, size_t size,
                                              const int* fds, size_t count);

// Receives one message of exactly `size` bytes; any other length is EBADMSG. Appends the fds of the
// message to `fds` (close-on-exec), even if it is refused, so that the caller chooses where to
// close them; more than kMaxFds is EBADMSG. Errors: EAGAIN if a non-blocking socket is empty,
// ECONNRESET at end of file.
[[nodiscard]] base::Result<void> receive_message(int socket, void* data, size_t size,
                                                 std::vector<base::Fd>* fds);

// The sender of a message, as reported by the kernel for the time of sending (SCM_CREDENTIALS): the
// process and its real ids. Only on a socket with SO_PASSCRED; otherwise pid is 0.
struct Sender {
  pid_t pid = 0;
  uid_t uid = ~uid_t{0};
  gid_t gid = ~gid_t{0};
};

// One message with all its ancillary data; the caller decides whether that is permitted. All
// descriptors are close-on-exec.
struct Received {
  ssize_t length = -1;     // of the whole message, whose beginning was stored; -1: see error
  int error = 0;           // of recvmsg(2), never EINTR
  bool alone = true;       // no ancillary data
  bool truncated = false;  // this process had no room for all descriptors
  std::vector<base::Fd> fds;
  Sender sender;
};
// `flags` as of recvmsg(2), in addition to MSG_CMSG_CLOEXEC and MSG_TRUNC. Appends the descriptors
// to `fds`; throws nothing while its capacity suffices.
[[nodiscard]] Received receive_any(int socket, void* data, size_t size, int flags,
                                   std::vector<base::Fd> fds = {});

// A range of served versions, whose messages contain their size where Request has it. Messages of
// other versions are accepted at any length, so that they can be answered with an error.
struct Sized {
  uint32_t oldest, newest;
};

// Applies the rule of core/ipc/messages.h to a message that was received elsewhere: `length` bytes,
// of which the first `size_of_bytes` are present. Errors as receive_sized().
[[nodiscard]] base::Result<void> decode_sized(const uint8_t* bytes, size_t size_of_bytes,
                                              size_t length, void* data, size_t size,
                                              Sized versions);

// Receives one message by the rule of core/ipc/messages.h into `data` of `size` bytes; missing
// bytes become zero. EBADMSG as above, if the message's size field is wrong, or if it has nonzero
// bytes beyond `size`. `sender` may be null.
[[nodiscard]] base::Result<void> receive_sized(int socket, void* data, size_t size, Sized versions,
                                               std::vector<base::Fd>* fds, Sender* sender);
// The same for a message that is expected soon, on a blocking socket. Accepts a reply that lacks
// descriptors for which this process has no room; the caller checks for those that it needs.
[[nodiscard]] base::Result<void> receive_reply(int socket, void* data, size_t size, Sized versions,
                                               std::vector<base::Fd>* fds);

[[nodiscard]] constexpr Sized versions_of(const Request*) { return {kOldestVersion, kVersion}; }
[[nodiscard]] constexpr Sized versions_of(const Reply*) { return {kOldestVersion, kVersion}; }
[[nodiscard]] constexpr Sized versions_of(const CmRequest*) {
  return {kCmOldestVersion, kCmVersion};
}
[[nodiscard]] constexpr Sized versions_of(const CmReply*) { return {kCmOldestVersion, kCmVersion}; }

template <class Message>
[[nodiscard]] base::Result<void> receive(int socket, Message* message, std::vector<base::Fd>* fds,
                                         Sender* sender = nullptr) {
  return receive_sized(socket, message, sizeof *message, versions_of(message), fds, sender);
}
template <class Message>
[[nodiscard]] base::Result<void> receive_reply(int socket, Message* message,
                                               std::vector<base::Fd>* fds) {
  return receive_reply(socket, message, sizeof *message, versions_of(message), fds);
}

}  // namespace vrdma::ipc
