// Asynchronous events: what the daemon writes into the session's event pipe.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "client/device/objects.h"
#include "client/verbs/virtual.h"

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

}  // namespace

int get_async_event(ibv_context* ibv, ibv_async_event* event) {
  Context& context = *Context::of(ibv);
  for (;;) {
    ipc::EventMessage message{};
    const ssize_t count = ::read(ibv->async_fd, &message, sizeof message);
    if (count < 0) return -1;
    if (count == 0) {
      // The daemon has died: said once. What follows is silence, not a descriptor that is ready
      // for ever.
      const base::Fd silence(::eventfd(0, EFD_CLOEXEC));
      if (!silence.valid() || ::dup3(silence.get(), ibv->async_fd, O_CLOEXEC) < 0) return -1;
      context.daemon_died();
      *event = {};
      event->event_type = IBV_EVENT_DEVICE_FATAL;
      return 0;
    }
    if (translate(context, message, event)) return 0;
  }
}

}  // namespace vrdma::client
