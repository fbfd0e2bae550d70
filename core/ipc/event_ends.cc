#include "core/ipc/event_ends.h"

#include <array>

namespace vrdma::ipc {

base::Result<EventEnds> make_event_ends(unsigned messages) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return base::fail_errno("create sockets for events");
  EventEnds made{base::Fd(ends[0]), base::Fd(ends[1])};
  constexpr int kEach = 1024;  // the kernel's accounting for a small message, rounded up
  // The kernel doubles the value (socket(7)).
  const int room = static_cast<int>(messages) * kEach / 2;
  if (::setsockopt(made.write.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0)
    (void)::setsockopt(made.write.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  return made;
}

}  // namespace vrdma::ipc
