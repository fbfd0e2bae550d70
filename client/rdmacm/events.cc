// Event channels, and the effect of an event on its id before the program gets it.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <new>

#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/rdmacm/newer.h"
#include "client/rdmacm/objects.h"

namespace vrdma::client {

namespace {

// In static memory, which a forked child has for its own from the first on, and never destroyed. A
// child inherits the tables as no thread was changing them.
struct Shared {
  std::mutex mutex;
  std::condition_variable acknowledgement;

  static Shared& instance() {
    alignas(Shared) static std::byte room[sizeof(Shared)];
    static Shared* const all = [] {
      ::pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                       [] { new (room) Shared; });
      return new (room) Shared;
    }();
    return *all;
  }
};

}  // namespace

std::mutex& objects_mutex() { return Shared::instance().mutex; }
std::condition_variable& acknowledgement() { return Shared::instance().acknowledgement; }

namespace {

constexpr std::chrono::milliseconds kLook(100);  // interval of attempts to reach a daemon

bool add_to(EventSource& source, const base::Fd& fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  return ::epoll_ctl(source.ready.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
}

void take_out(EventSource& source, const base::Fd& fd) {
  ::epoll_ctl(source.ready.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
}

// The daemon has closed the socket; unread messages may remain.
bool is_hung_up(const EventSource& source) {
  pollfd state{source.socket.get(), 0, 0};
  return ::poll(&state, 1, 0) > 0;
}

// The daemon has closed the socket, and no message remains.
bool has_ended(const EventSource& source) {
  char first = 0;
  return ::recv(source.socket.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

bool blocks(const EventSource& source) {
  return (::fcntl(source.ready.get(), F_GETFL) & O_NONBLOCK) == 0;
}

int ask_for_socket(EventSource& source, bool wait, base::Fd* socket) {
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kCreateChannel;
  request.handle = source.handle;
  const int error = source.link->call(request, &reply, socket, wait);
  if (error != 0) return error;
  if (source.handle == 0) source.handle = reply.handle;  // it never changes
  return socket->valid() ? 0 : EMFILE;
}

// Replaces a socket that has ended. 0; EAGAIN if `wait` is false and there is no daemon yet;
// ENODEV.
int renew(EventSource& source, bool wait) {
  const std::lock_guard lock(source.renewal);
  if (!has_ended(source)) return 0;  // another thread has renewed it
  base::Fd socket;
  const int error = source.link->is_own() ? ask_for_socket(source, wait, &socket) : EIO;
  if (error == EAGAIN) {
    if (!source.timer.valid()) {
      source.timer = base::Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
      if (!source.timer.valid() || !add_to(source, source.timer)) return EAGAIN;
      take_out(source, source.socket);
    }
    itimerspec when{};
    when.it_value.tv_nsec = std::chrono::nanoseconds(kLook).count();
    ::timerfd_settime(source.timer.get(), 0, &when, nullptr);
    return EAGAIN;
  }
  // Removed explicitly: a forked child may hold descriptors of them, which would keep them in the
  // set.
  take_out(source, source.socket);
  if (source.timer.valid()) take_out(source, source.timer);
  source.timer.reset();
  if (error == 0) ::dup3(socket.get(), source.socket.get(), O_CLOEXEC);
  (void)add_to(source, source.socket);
  return error == 0 ? 0 : ENODEV;
}

}  // namespace

EventSource::~EventSource() {
  // A daemon notices the end of a socket only if it created it. If the socket is a dead daemon's,
  // or a daemon may have missed a one-way request, this call informs the present one.
  if (socket.valid() && link->is_own() && (is_hung_up(*this) || link->is_unanswered()))
    (void)link->call(ipc::CmCall::kDestroyChannel, handle);
}

ssize_t receive(EventSource& source, ipc::CmEventMessage* message) {
  for (;;) {
    *message = {};
    message->size = 0;
    ssize_t got = ::recv(source.socket.get(), message, sizeof *message, MSG_DONTWAIT | MSG_TRUNC);
    if (got <= 0 || static_cast<size_t>(got) != message->size) return got;
    got = sizeof *message;  // a shorter message is padded with zeros
    const auto it = source.link->ids.find(message->handle);
    if (it == source.link->ids.end()) return got;
    // The successor cannot know whether the dead daemon delivered the last event of an id, so it
    // sends that one again. (The test is for equality because the events of a migrating id may
    // arrive out of order.)
    uint32_t& last = it->second->last_event;
    if (last != 0 && message->sequence == last) continue;
    last = message->sequence;
    return got;
  }
}

rdma_event_channel* create_channel() {
  const auto link = CmLink::current();
  if (link == nullptr) return nullptr;
  const auto source = std::make_shared<EventSource>();
  source->link = link;
  source->ready = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!source->ready.valid()) return nullptr;
  if (const int error = ask_for_socket(*source, true, &source->socket); error != 0) {
    errno = error;
    return nullptr;
  }
  if (!add_to(*source, source->socket)) return nullptr;
  auto* channel = new Channel;
  channel->base.fd = source->ready.get();
  channel->source = source;
  return &channel->base;
}

void destroy_channel(rdma_event_channel* base) { delete Channel::of(base); }

namespace {

void fill_connection(const ipc::CmParam& from, CmEvent* event) {
  rdma_conn_param& to = event->base.param.conn;
  std::memcpy(event->data, from.data, sizeof event->data);
  to.private_data = from.length != 0 ? event->data : nullptr;
  to.private_data_len = from.length;
  to.responder_resources = from.responder_resources;
  to.initiator_depth = from.initiator_depth;
  to.flow_control = from.flow_control;
  to.retry_count = from.retry_count;
  to.rnr_retry_count = from.rnr_retry_count;
  to.srq = from.srq;
  to.qp_num = from.qpn;
}

void fill_datagram(const ipc::CmEventMessage& message, CmEvent* event) {
  const ipc::CmParam& from = message.param;
  rdma_ud_param& to = event->base.param.ud;
  std::memcpy(event->data, from.data, sizeof event->data);
  to.private_data = from.length != 0 ? event->data : nullptr;
  to.private_data_len = from.length;
  to.qp_num = from.qpn;
  to.qkey = from.qkey;
  to.ah_attr.is_global = 1;
  to.ah_attr.port_num = 1;
  std::memcpy(&to.ah_attr.grh.dgid, message.where.remote.gid, 16);
  to.ah_attr.grh.sgid_index = message.where.sgid_index;
  to.ah_attr.grh.hop_limit = message.where.hop_limit;
  to.ah_attr.grh.traffic_class = message.where.traffic_class;
}

void fill_path(Id* id) {
  ibv_sa_path_rec& path = id->path;
  std::memcpy(&path.dgid, id->where.remote.gid, 16);
  std::memcpy(&path.sgid, id->where.local.gid, 16);
  path.hop_limit = id->where.hop_limit;
  path.traffic_class = id->where.traffic_class;
  path.reversible = 1;
  path.numb_path = 1;
  path.pkey = 0xffff;
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = 2;  // exactly
  path.mtu = id->where.path_mtu;
  path.rate = IBV_RATE_40_GBPS;
  path.packet_life_time = static_cast<uint8_t>(id->where.packet_life);
  id->base.route.path_rec = &path;
  id->base.route.num_paths = 1;
}

void on_request(Id* listener, const ipc::CmEventMessage& message, CmEvent* event) {
  Id* id = make_id(listener->link, message.request, listener->base.channel, listener->base.context,
                   listener->base.ps, listener->base.qp_type);
  id->initiator_depth = message.param.initiator_depth;
  id->responder_resources = message.param.responder_resources;
  event->base.listen_id = &listener->base;
  event->base.id = &id->base;
  id->known = message.attributes;
  if (const int error = settle(id, message.where); error != 0) event->base.status = -error;
  if (listener->sync && migrate(id, nullptr) != 0) event->base.status = -errno;
}

// The active side received the response: moves its queue pair to RTS and confirms to the peer. If
// the program made the queue pair without rdma_cm, it does both itself (rdma_establish).
void on_response(Id* id, CmEvent* event) {
  if (id->base.qp == nullptr) return;
  event->base.event = RDMA_CM_EVENT_ESTABLISHED;
  int error = 0;
  if (connect_queue_pair(id, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH) != 0)
    error = errno;
  else
    error = id->link->call(ipc::CmCall::kConfirm, id->handle);
  id->established = error == 0;
  if (error == 0) return;
  (void)fail_queue_pair(id);
  event->base.event = RDMA_CM_EVENT_CONNECT_ERROR;
  event->base.status = -error;
}

// Takes the next message and finds its id, which is null if the id no longer exists. Waits if the
// channel blocks, also if it was readable only because a daemon died. From then on rdma_destroy_id
// waits for the acknowledgement. -1 and errno, or 0.
int take_message(EventSource& source, ipc::CmEventMessage* message, Id** id) {
  for (bool wait = false;;) {
    char first = 0;
    if (wait && !blocks(source)) return answer(EAGAIN);
    if (wait && ::recv(source.socket.get(), &first, 1, MSG_PEEK) < 0) return -1;
    const Uncancelled taking;
    std::unique_lock lock(objects_mutex());
    const ssize_t got = receive(source, message);
    wait = got < 0 && errno == EAGAIN;  // none, or another thread has taken it
    if (wait) continue;
    if (got < 0) return -1;
    if (got == 0) {
      lock.unlock();
      if (const int error = renew(source, blocks(source)); error != 0) return answer(error);
      continue;
    }
    const bool nobodys = message->type == ipc::kCmNudge;
    if (nobodys) source.nudged = false;
    if (!source.kept.empty()) {
      if (!nobodys) source.kept.push_back(*message);
      *message = source.kept.front();
      source.kept.pop_front();
    } else if (nobodys) {
      continue;
    }
    const auto it = source.link->ids.find(message->handle);
    *id = it != source.link->ids.end() ? it->second : nullptr;
    if (*id != nullptr) ++(*id)->reported;
    return 0;
  }
}

void process(Id* id, const ipc::CmEventMessage& message, CmEvent* event) {
  event->counted = id;
  event->base.id = &id->base;
  event->base.status = message.status;
  if (fill_own(message, &event->base)) return;
  event->base.event = static_cast<rdma_cm_event_type>(message.type);
  if (id->is_datagram())
    fill_datagram(message, event);
  else
    fill_connection(message.param, event);
  switch (event->base.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (const int error = settle(id, message.where); error != 0) {
        event->base.event = RDMA_CM_EVENT_ADDR_ERROR;
        event->base.status = -error;
      }
      id->resolved = event->base.event == RDMA_CM_EVENT_ADDR_RESOLVED;
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      fill_path(id);
      break;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      on_request(id, message, event);
      break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      id->known = message.attributes;
      on_response(id, event);
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      id->established = !id->is_datagram();
      break;
    case RDMA_CM_EVENT_REJECTED:
      (void)fail_queue_pair(id);
      break;
    case RDMA_CM_EVENT_MULTICAST_JOIN:
      on_joined(id, message, event);
      break;
    default:
      break;
  }
}

// There was no memory for what the message brings. rdma_destroy_id does not wait for an event that
// the program does not get, and a connection request is refused.
void give_up(EventSource& source, Id* id, const ipc::CmEventMessage& message) {
  std::unique_ptr<Id> unseen;
  {
    const std::lock_guard lock(objects_mutex());
    if (id != nullptr) --id->reported;
    acknowledgement().notify_all();
    const auto made = source.link->ids.find(message.request);
    if (message.request != 0 && made != source.link->ids.end()) {
      unseen.reset(made->second);
      source.link->ids.erase(made);
    }
  }
  if (unseen != nullptr) leave_device(unseen.get());
  if (message.request != 0) (void)source.link->call(ipc::CmCall::kDestroyId, message.request);
}

}  // namespace

int next_event(rdma_event_channel* base, rdma_cm_event** event) {
  const auto source = Channel::of(base)->source;
  for (;;) {
    ipc::CmEventMessage message;
    Id* id = nullptr;
    auto made = std::make_unique<CmEvent>();
    if (take_message(*source, &message, &id) != 0) return -1;
    const Uncancelled rest;  // of what is no wait
    if (id == nullptr) {
      nudge(*source);
      if (message.request != 0) (void)source->link->call(ipc::CmCall::kDestroyId, message.request);
      continue;
    }
    try {
      nudge(*source);
      process(id, message, made.get());
    } catch (const std::exception&) {
      give_up(*source, id, message);
      throw;
    }
    *event = &made.release()->base;
    return 0;
  }
}

void acknowledge(rdma_cm_event* base) {
  auto* event = reinterpret_cast<CmEvent*>(base);
  {
    const std::lock_guard lock(objects_mutex());
    ++event->counted->acknowledged;
    acknowledgement().notify_all();
  }
  delete event;
}

int complete(Id* id) {
  if (!id->sync) return 0;
  if (id->base.event != nullptr) {
    acknowledge(id->base.event);
    id->base.event = nullptr;
  }
  if (next_event(id->base.channel, &id->base.event) != 0) return -1;
  const rdma_cm_event& event = *id->base.event;
  if (event.status == 0) return 0;
  if (event.event == RDMA_CM_EVENT_REJECTED) return answer(ECONNREFUSED);
  return answer(event.status < 0 ? -event.status : event.status);
}

}  // namespace vrdma::client

using namespace vrdma::client;  // NOLINT: this part is nothing but the way from C

VRDMA_EXPORT rdma_event_channel* rdma_create_event_channel() try {
  VRDMA_PASS_ON(nullptr, rdma_create_event_channel)
  return create_channel();
}
VRDMA_OR_ENOMEM(nullptr)

VRDMA_EXPORT void rdma_destroy_event_channel(rdma_event_channel* channel) try {
  VRDMA_PASS_ON(, rdma_destroy_event_channel, channel)
  destroy_channel(channel);
}
VRDMA_OR_ENOMEM()

VRDMA_EXPORT int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) try {
  VRDMA_PASS_ON(-1, rdma_get_cm_event, channel, event)
  if (event == nullptr) return answer(EINVAL);
  return next_event(channel, event);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_ack_cm_event(rdma_cm_event* event) try {
  VRDMA_PASS_ON(-1, rdma_ack_cm_event, event)
  if (event == nullptr) return answer(EINVAL);
  acknowledge(event);
  return 0;
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT const char* rdma_event_str(rdma_cm_event_type event) try {
  static constexpr const char* kNames[] = {"RDMA_CM_EVENT_ADDR_RESOLVED",
                                           "RDMA_CM_EVENT_ADDR_ERROR",
                                           "RDMA_CM_EVENT_ROUTE_RESOLVED",
                                           "RDMA_CM_EVENT_ROUTE_ERROR",
                                           "RDMA_CM_EVENT_CONNECT_REQUEST",
                                           "RDMA_CM_EVENT_CONNECT_RESPONSE",
                                           "RDMA_CM_EVENT_CONNECT_ERROR",
                                           "RDMA_CM_EVENT_UNREACHABLE",
                                           "RDMA_CM_EVENT_REJECTED",
                                           "RDMA_CM_EVENT_ESTABLISHED",
                                           "RDMA_CM_EVENT_DISCONNECTED",
                                           "RDMA_CM_EVENT_DEVICE_REMOVAL",
                                           "RDMA_CM_EVENT_MULTICAST_JOIN",
                                           "RDMA_CM_EVENT_MULTICAST_ERROR",
                                           "RDMA_CM_EVENT_ADDR_CHANGE",
                                           "RDMA_CM_EVENT_TIMEWAIT_EXIT",
                                           "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
                                           "RDMA_CM_EVENT_ADDRINFO_ERROR",
                                           "RDMA_CM_EVENT_USER"};
  const auto index = static_cast<size_t>(event);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN EVENT";
}
VRDMA_OR_ENOMEM(nullptr)
