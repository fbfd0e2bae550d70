// What carries events to a program: the daemon, and perhaps others, write at one end, and the
// program reads at the other.
//
// A pair of sockets, not a pipe: who reads a pipe into a page that never comes holds its lock, and
// all writers wait for that, whatever O_NONBLOCK says. The queue of a socket is locked for moments.
#pragma once

#include <sys/socket.h>

#include <cstddef>

#include "core/base/fd.h"

namespace vrdma::ipc {

struct EventEnds {
  base::Fd read, write;
};
// With room for `messages` small ones, as far as the kernel lets this process have it.
[[nodiscard]] base::Result<EventEnds> make_event_ends(unsigned messages);

// Any thread; does not wait. False: there is no room, or nobody reads any more.
inline bool put_event(int write_end, const void* message, size_t size) {
  return ::send(write_end, message, size, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(size);
}

}  // namespace vrdma::ipc
