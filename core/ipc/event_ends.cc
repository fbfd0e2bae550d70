#include "core/ipc/event_ends.h"

#include <utility>

#include "core/ipc/socket.h"

namespace vrdma::ipc {

namespace {
constexpr int kEach = 1024;  // the kernel's accounting for a small message, rounded up
}  // namespace

base::Result<EventEnds> make_event_ends(unsigned messages) {
  auto ends = make_socket_pair();
  if (!ends) return base::pass(std::move(ends).error(), "create sockets for events");
  EventEnds made{std::move(ends->first), std::move(ends->second)};
  // The kernel doubles the value (socket(7)).
  const int room = static_cast<int>(messages) * kEach / 2;
  if (::setsockopt(made.write.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0)
    (void)::setsockopt(made.write.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  return made;
}

unsigned room_of(int write_end) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  (void)::getsockopt(write_end, SOL_SOCKET, SO_SNDBUF, &bytes, &size);
  return static_cast<unsigned>(bytes) / kEach;
}

}  // namespace vrdma::ipc
