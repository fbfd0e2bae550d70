// Whole messages with file descriptors over a SOCK_SEQPACKET socket.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/fd.h"
#include "core/ipc/cm_messages.h"
#include "core/ipc/messages.h"

namespace vrdma::ipc {

// Sends `size` bytes and duplicates of `fds` (at most kMaxFds) as one message, without SIGPIPE.
// Errors: EAGAIN when a non-blocking socket is full, EPIPE/ECONNRESET when the peer has gone.
[[nodiscard]] base::Result<void> send_message(int socket, const void* data, size_t size,
                                              const std::vector<int>& fds = {});

// Receives one message of exactly `size` bytes; a shorter or longer one is EBADMSG. The fds that
// came with it are appended to `fds` (close-on-exec), also if it is refused, so that the caller
// chooses where to close them; more than kMaxFds is EBADMSG.
// Errors: EAGAIN when a non-blocking socket is empty, ECONNRESET at end of file.
[[nodiscard]] base::Result<void> receive_message(int socket, void* data, size_t size,
                                                 std::vector<base::Fd>* fds);

// Who sent a message, by the kernel's word at the time of sending (SCM_CREDENTIALS): the process
// and its real ids. Only on a socket with SO_PASSCRED; otherwise, pid 0.
struct Sender {
  pid_t pid = 0;
  uid_t uid = ~uid_t{0};
  gid_t gid = ~gid_t{0};
};

// One message with whatever came beside it; its reader says whether that may be. All descriptors
// are close-on-exec.
struct Received {
  ssize_t length = -1;     // of the whole message, of which the beginning was stored; -1: see error
  int error = 0;           // of recvmsg(2), never EINTR
  bool alone = true;       // nothing was beside it
  bool truncated = false;  // there was no room in this process for all that was beside it
  std::vector<base::Fd> fds;
  Sender sender;
};
// `flags` as of recvmsg(2), beside MSG_CMSG_CLOEXEC and MSG_TRUNC. The descriptors are added to
// `fds`; nothing is thrown while its capacity suffices.
[[nodiscard]] Received receive_any(int socket, void* data, size_t size, int flags,
                                   std::vector<base::Fd> fds = {});

// A range of versions whose messages say their size at the place of Request::size, and which are
// served. Messages of others are taken at whatever length, so that they can be refused in words.
struct Sized {
  uint32_t oldest, newest;
};

// The rule of core/ipc/messages.h for a message that somebody else has received: `length` bytes of
// which the first `size_of_bytes` are there. As receive_sized().
[[nodiscard]] base::Result<void> decode_sized(const uint8_t* bytes, size_t size_of_bytes,
                                              size_t length, void* data, size_t size,
                                              Sized versions);

// Receives one message by the rule of core/ipc/messages.h into `data`, which is `size` bytes long:
// what is missing is zero. EBADMSG as above, if the message says another size than it has, or if
// anything but zeros is beyond `size`. `sender` may be null.
[[nodiscard]] base::Result<void> receive_sized(int socket, void* data, size_t size, Sized versions,
                                               std::vector<base::Fd>* fds, Sender* sender);
// The same for one that is expected soon, on a socket that blocks. A reply without the descriptors
// for which this process has no room is one, and its reader looks at what it needs.
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
