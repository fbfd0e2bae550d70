// Asynchronous events, which the daemon writes for the session.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "client/device/objects.h"
#include "client/device/unread_events.h"
#include "client/verbs/virtual.h"
#include "core/base/signals.h"

namespace vrdma::client {

namespace {

template <class Table>
auto find(const Table& table, uint32_t handle) {
  const auto it = table.find(handle);
  return it == table.end() ? nullptr : it->second;
}

bool is_of_srq(verbs::Event event) { return event == verbs::Event::kSrqLimitReached; }
bool is_of_qp(verbs::Event event) {
  switch (event) {
    case verbs::Event::kQpFatal:
    case verbs::Event::kQpRequestError:
    case verbs::Event::kQpAccessError:
    case verbs::Event::kSqDrained:
    case verbs::Event::kQpLastWqeReached:
      return true;
    default:
      return false;
  }
}

// Reads one event, as read(2); EAGAIN: none. Never blocks, because the caller holds events_mutex.
ssize_t read_event(Context& context, ipc::EventMessage* message) {
  pollfd ready{context.ibv()->async_fd, POLLIN, 0};
  if (::poll(&ready, 1, 0) <= 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::read(context.ibv()->async_fd, message, sizeof *message);
}

void drop_events(Context& context, uint32_t object, bool (*concerned)(verbs::Event)) {
  const std::lock_guard reading(context.events_mutex);
  (void)drop_unread<ipc::EventMessage>(
      [&](ipc::EventMessage* message) { return read_event(context, message); },
      context.events_wake.get(),
      [&](const ipc::EventMessage& message) {
        return message.object == object && concerned(static_cast<verbs::Event>(message.event));
      });
}

// Fills `event`; false if its object no longer exists.
bool translate(Context& context, const ipc::EventMessage& message, ibv_async_event* event) {
  *event = {};
  event->event_type = static_cast<ibv_event_type>(message.event);
  const std::lock_guard lock(context.mutex);
  const auto type = static_cast<verbs::Event>(message.event);
  if (is_of_qp(type)) {
    Qp* qp = find(context.qps, message.object);
    if (qp == nullptr) return false;
    qp->events_given.fetch_add(1);
    event->element.qp = &qp->ibv.qp_base;
  } else if (is_of_srq(type)) {
    Srq* srq = find(context.srqs, message.object);
    if (srq == nullptr) return false;
    srq->events_given.fetch_add(1);
    event->element.srq = &srq->ibv;
  } else {
    event->element.port_num = static_cast<int>(message.object);
  }
  return true;
}

// Sleeps until there is an event. A thread that only waits for events notices the daemon's end too:
// if no daemon takes over, give_up() creates an event.
bool wait_for_event(Context& context) {
  constexpr int kLook = 100;  // ms; interval of checks while there is no daemon
  for (;;) {
    const bool dead = context.died_at_ms.load() != 0 && !context.given_up.load();
    std::array<pollfd, 2> wait{
        {{context.ibv()->async_fd, POLLIN, 0}, {context.session.fd(), POLLRDHUP, 0}}};
    const bool look = dead || context.given_up.load();
    if (::poll(wait.data(), look ? 1 : 2, dead ? kLook : -1) < 0 &&
        (errno != EINTR || !base::handlers_restart()))
      return false;
    if (wait[0].revents != 0) return true;
    context.check_daemon();  // also if signals arrive more often than every kLook
  }
}

}  // namespace

void drop_events_of_qp(Context& context, uint32_t handle) {
  drop_events(context, handle, is_of_qp);
}
void drop_events_of_srq(Context& context, uint32_t handle) {
  drop_events(context, handle, is_of_srq);
}

int get_async_event(ibv_context* ibv, ibv_async_event* event) {
  Context& context = *Context::of(ibv);
  for (;;) {
    const bool blocking = (::fcntl(ibv->async_fd, F_GETFL) & O_NONBLOCK) == 0;
    if (blocking && !wait_for_event(context)) return -1;
    ipc::EventMessage message{};
    ssize_t got = 0;
    {
      const std::lock_guard reading(context.events_mutex);
      got = read_event(context, &message);
    }
    if (got < 0 && errno == EAGAIN && blocking) continue;  // another thread took it
    if (got != sizeof message) return -1;
    if (translate(context, message, event)) return 0;
  }
}

}  // namespace vrdma::client
