// Whole messages with file descriptors over a SOCK_SEQPACKET socket.
#pragma once

#include <cstddef>
#include <vector>

#include "core/base/fd.h"

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

// The same for one that is expected soon, on a socket that blocks. Never EBADMSG: a reply without
// the descriptors for which this process has no room is one, and its reader looks at what it needs.
[[nodiscard]] base::Result<void> receive_reply(int socket, void* data, size_t size,
                                               std::vector<base::Fd>* fds);

}  // namespace vrdma::ipc
