// Two ends: the daemon, and perhaps peers, write events; the program reads them.
//
// A socket pair, not a pipe: a reader whose page fault is never resolved would hold the pipe's
// lock, and all writers would wait for it, regardless of O_NONBLOCK. A socket's queue is locked
// only briefly.
#pragma once

#include <sys/socket.h>

#include <cstddef>

#include "core/base/fd.h"

namespace vrdma::ipc {

struct EventEnds {
  base::Fd read, write;
};
// With room for `messages` small messages, as far as the kernel permits this process.
[[nodiscard]] base::Result<EventEnds> make_event_ends(unsigned messages);

// For so many small messages there is room in any case.
[[nodiscard]] unsigned room_of(int write_end);

// Any thread; does not block. False: there is no room, or the reading end is closed.
inline bool put_event(int write_end, const void* message, size_t size) {
  return ::send(write_end, message, size, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(size);
}

}  // namespace vrdma::ipc
