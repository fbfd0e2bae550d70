// Asynchronous events: what the daemon writes into the session's event pipe.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "client/device/objects.h"
#include "client/verbs/virtual.h"
#include "core/base/signals.h"

namespace vrdma::client {

namespace {

template <class Table>
auto find(const Table& table, uint32_t handle) {
  const auto it = table.find(handle);
  return it == table.end() ? nullptr : it->second;
}

// Fills `event`; false if its object is no more.
bool translate(Context& context, const ipc::EventMessage& message, ibv_async_event* event) {
  *event = {};
  event->event_type = static_cast<ibv_event_type>(message.event);
  const std::lock_guard lock(context.mutex);
  switch (static_cast<verbs::Event>(message.event)) {
    case verbs::Event::kQpFatal:
    case verbs::Event::kQpRequestError:
    case verbs::Event::kQpAccessError:
    case verbs::Event::kSqDrained:
    case verbs::Event::kQpLastWqeReached: {
      Qp* qp = find(context.qps, message.object);
      if (qp == nullptr) return false;
      qp->events_given.fetch_add(1);
      event->element.qp = &qp->ibv.qp_base;
      return true;
    }
    case verbs::Event::kSrqLimitReached: {
      Srq* srq = find(context.srqs, message.object);
      if (srq == nullptr) return false;
      srq->events_given.fetch_add(1);
      event->element.srq = &srq->ibv;
      return true;
    }
    default:
      event->element.port_num = static_cast<int>(message.object);
      return true;
  }
}

// Sleeps until there is an event. Whoever does nothing but wait for one learns of the daemon's end
// too: if no other takes over, give_up() makes an event.
bool wait_for_event(Context& context) {
  constexpr int kLook = 100;  // ms, while there is no daemon
  for (;;) {
    const bool dead = context.died_at_ms.load() != 0 && !context.given_up.load();
    std::array<pollfd, 2> wait{
        {{context.ibv()->async_fd, POLLIN, 0}, {context.session.fd(), POLLRDHUP, 0}}};
    const bool look = dead || context.given_up.load();
    if (::poll(wait.data(), look ? 1 : 2, dead ? kLook : -1) < 0 &&
        (errno != EINTR || !base::handlers_restart()))
      return false;
    if (wait[0].revents != 0) return true;
    context.check_daemon();  // also where signals come more often than kLook
  }
}

}  // namespace

int get_async_event(ibv_context* ibv, ibv_async_event* event) {
  Context& context = *Context::of(ibv);
  for (;;) {
    const bool blocking = (::fcntl(ibv->async_fd, F_GETFL) & O_NONBLOCK) == 0;
    if (blocking && !wait_for_event(context)) return -1;
    ipc::EventMessage message{};
    if (::read(ibv->async_fd, &message, sizeof message) != sizeof message) return -1;
    if (translate(context, message, event)) return 0;
  }
}

}  // namespace vrdma::client
