// Completion queues and their events. Polling: poll.cc.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <vector>

#include "client/device/objects.h"
#include "client/device/unread_events.h"
#include "client/verbs/events.h"
#include "client/verbs/virtual.h"
#include "core/base/signals.h"
#include "core/ipc/bell.h"

namespace vrdma::client {

int req_notify_cq(ibv_cq* ibv, int solicited_only) {
  const auto arm = solicited_only != 0 ? ipc::Arm::kSolicited : ipc::Arm::kNext;
  Cq& cq = *Cq::of(ibv);
  ipc::Word& word = cq.bell->arm;
  cq.requested.store(true);
  // A later request never narrows an earlier one (ibv_req_notify_cq(3)).
  if (arm == ipc::Arm::kNext || !ipc::is_armed(word.load())) word.store(ipc::arm_word(arm));
  // Pairs with the fence of the publisher of a completion: either the program's next poll sees the
  // completion, or the publisher sees that the CQ is armed.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Adapters also report completions that arrived between the last poll and this call, and programs
  // that do not poll again rely on it (UCX). Skipped if the program got an event since its last
  // poll, because then it will poll.
  if (arm == ipc::Arm::kNext && ibv->channel != nullptr) {
    const std::lock_guard lock(cq.mutex);
    if (cq.turn_of_event != cq.turn && would_find(cq)) cq.wake(false);
  }
  return 0;
}

ibv_cq_ex* create_cq_ex(ibv_context* ibv, ibv_cq_init_attr_ex* attr) {
  Context& context = *Context::of(ibv);
  if (attr->cqe < 1 || attr->comp_vector >= 1 || attr->cqe > INT32_MAX) {
    errno = EINVAL;
    return nullptr;
  }
  if (!extended_flags_known(*attr)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  const bool has_parent = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
  if (has_parent && (attr->parent_domain == nullptr || !Pd::of(attr->parent_domain)->is_parent())) {
    errno = EINVAL;
    return nullptr;
  }
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kCreateCq;
  request.create_cq.cqe = attr->cqe;
  request.create_cq.channel =
      attr->channel != nullptr ? Channel::of(attr->channel)->handle : ipc::kNoObject;
  const std::lock_guard creating(context.numbers_mutex);
  if (const int error = context.session.call(request, &reply); error != 0) {
    errno = error;
    return nullptr;
  }
  Made theirs(context.session, ipc::Call::kDestroyCq, reply.create_cq.handle);
  auto cq = std::make_unique<Cq>();
  cq->active.reserve(Cq::kMostActive);
  if (has_parent) cq->pd = Use(&Pd::of(attr->parent_domain)->users);
  cq->context = Within(ibv);
  cq->handle = reply.create_cq.handle;
  cq->slot = reply.create_cq.slot;
  cq->bell = context.bells.at<ipc::CqBell>(uint64_t{cq->slot} * sizeof(ipc::CqBell));
  auto* base = ibv_cq_ex_to_cq(&cq->ibv);
  set_extended_ops(*cq, *attr);
  base->handle = cq->handle;
  base->cqe = static_cast<int>(reply.create_cq.cqe);
  {
    const std::lock_guard lock(context.mutex);
    context.cqs.emplace(cq->slot, cq.get());
  }
  theirs.keep();
  if (attr->channel != nullptr) {
    Channel& channel = *Channel::of(attr->channel);
    channel.room = ipc::room_of(channel.wake.get());
  }
  init_cq(base, ibv, attr->channel, attr->cq_context);
  return &cq.release()->ibv;
}

namespace {

// The number of completions that the program has not polled, including those of outstanding sends.
uint32_t waiting(Cq& cq) {
  const std::lock_guard lock(cq.mutex);
  uint32_t count = 0;
  for (const Qp* qp : cq.queue_pairs) {
    if (qp->send_cq() == &cq) {
      // Another thread posts meanwhile: it completes a request before it moves sq_head.
      const uint32_t outstanding = qp->block->sq_head.load() - qp->polled.load();
      if (outstanding <= qp->sq_depth) count += outstanding;
    }
    if (qp->recv_cq() == &cq) count += qp->inbox.waiting() + qp->from_peer.waiting();
  }
  for (const Srq* srq : cq.shared) count += srq->inbox.waiting();
  return count;
}

}  // namespace

int resize_cq(ibv_cq* cq, int cqe) {
  if (cqe < 1 || static_cast<uint32_t>(cqe) < waiting(*Cq::of(cq))) return EINVAL;
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kResizeCq;
  request.resize_cq = {Cq::of(cq)->handle, static_cast<uint32_t>(cqe)};
  if (const int error = Context::of(cq->context)->session.call(request, &reply); error != 0)
    return error;
  cq->cqe = static_cast<int>(reply.create_cq.cqe);
  return 0;
}

namespace {
// Calls drop() for each unread message of the channel, and drops those for which it is true.
// Under numbers_mutex.
template <class Drop>
void drop_unread_of(const Context& context, Channel& channel, Drop drop) {
  const auto lost = drop_unread<ipc::ChannelMessage>(
      [&](ipc::ChannelMessage* message) {
        return ::read(channel.read_end.get(), message, sizeof *message);
      },
      channel.wake.get(), drop);
  for (const ipc::ChannelMessage& message : lost) {  // as if there had been no room at first
    const auto its = context.cqs.find(message.cq);
    if (its == context.cqs.end()) continue;
    uint32_t told = ipc::arm_word(ipc::Arm::kNone);
    (void)its->second->bell->arm.compare_exchange_strong(told, ipc::arm_word(ipc::Arm::kNext));
    channel.was_full = true;
  }
}

// There was no room for messages of CQs in which completions stand.
void tell_again(Context& context, const Channel& channel) {
  const std::lock_guard unchanged(context.numbers_mutex);
  for (const auto& [slot, cq] : context.cqs) {
    if (cq->ibv.channel != &channel.ibv) continue;
    const std::lock_guard lock(cq->mutex);
    if (ipc::is_armed(cq->bell->arm.load()) && would_find(*cq)) cq->wake(false);
  }
}
}  // namespace

int destroy_cq(ibv_cq* ibv) {
  Context& context = *Context::of(ibv->context);
  Cq* cq = Cq::of(ibv);
  {
    const std::lock_guard lock(cq->mutex);
    if (!cq->queue_pairs.empty() || !cq->shared.empty()) return EBUSY;
  }
  std::unique_lock destroying(context.numbers_mutex);
  const int error = context.session.call(ipc::Call::kDestroyCq, cq->handle);
  if (error != 0 && error != EIO) return error;
  {
    const std::lock_guard lock(context.mutex);
    context.cqs.erase(cq->slot);
  }
  if (ibv->channel != nullptr) {
    drop_unread_of(
        context, *Channel::of(ibv->channel),
        [slot = cq->slot](const ipc::ChannelMessage& message) { return message.cq == slot; });
  }
  destroying.unlock();
  if (ibv->channel != nullptr && Channel::of(ibv->channel)->has_drained())
    tell_again(context, *Channel::of(ibv->channel));
  finish_cq(ibv, cq->events_given.load(), 0);
  delete cq;
  return 0;
}

ibv_comp_channel* create_comp_channel(ibv_context* ibv) {
  Context& context = *Context::of(ibv);
  ipc::Request request;
  ipc::Reply reply;
  std::vector<base::Fd> fds;
  request.call = ipc::Call::kCreateChannel;
  if (const int error = context.session.call(request, &reply, {}, &fds); error != 0) {
    errno = error;
    return nullptr;
  }
  Made theirs(context.session, ipc::Call::kDestroyChannel, reply.create_channel.handle);
  if (fds.size() != 2) {
    errno = EMFILE;
    return nullptr;
  }
  auto channel = std::make_unique<Channel>();
  channel->handle = reply.create_channel.handle;
  channel->read_end = std::move(fds[0]);
  channel->wake = std::move(fds[1]);
  ::fcntl(channel->read_end.get(), F_SETFL, O_NONBLOCK);
  channel->epoll = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event readable{};
  readable.events = EPOLLIN;
  readable.data.fd = channel->read_end.get();
  if (!channel->epoll.valid() ||
      ::epoll_ctl(channel->epoll.get(), EPOLL_CTL_ADD, channel->read_end.get(), &readable) != 0) {
    return nullptr;
  }
  channel->ibv.context = ibv;
  channel->alive = Within(ibv);
  channel->ibv.fd = channel->epoll.get();
  const std::lock_guard lock(context.channels_mutex);
  context.channels.push_back(channel.get());
  channel->watch_socket(context);
  theirs.keep();
  return &channel.release()->ibv;
}

int destroy_comp_channel(ibv_comp_channel* ibv) {
  if (!channel_is_unused(ibv)) return EBUSY;
  Channel* channel = Channel::of(ibv);
  const int error =
      Context::of(ibv->context)->session.call(ipc::Call::kDestroyChannel, channel->handle);
  if (error != 0 && error != EIO) return error;
  {
    Context& context = *Context::of(ibv->context);
    const std::lock_guard lock(context.channels_mutex);
    std::erase(context.channels, channel);
  }
  delete channel;
  return 0;
}

void Channel::watch_socket(Context& context) {
  epoll_event event{};
  event.events = EPOLLRDHUP;  // EPOLLHUP is always reported
  event.data.fd = context.session.fd();
  ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, context.session.fd(), &event);
  knows_death = false;
}

void Channel::forget_socket(Context& context) {
  ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, context.session.fd(), nullptr);
}

// The room is limited only where a worker may not exceed the limit of socket buffers.
bool Channel::has_drained() {
  if (static_cast<unsigned>(ibv.refcnt) <= room && !was_full) return false;
  int bytes = 0;
  if (::ioctl(read_end.get(), FIONREAD, &bytes) != 0) return false;
  if (static_cast<unsigned>(bytes) / sizeof(ipc::ChannelMessage) >= room / 2) was_full = true;
  return bytes == 0 && was_full.exchange(false);
}

void Channel::look_after(std::chrono::nanoseconds delay) {
  if (!timer.valid()) {
    timer = base::Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = timer.get();
    ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, timer.get(), &event);
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(delay);
  itimerspec when{};
  when.it_value.tv_sec = seconds.count();
  when.it_value.tv_nsec = (delay - seconds).count() + 1;  // a zero time would disarm the timer
  ::timerfd_settime(timer.get(), 0, &when, nullptr);
}

namespace {

// Threads that wait look for a daemon less often than those that poll: each look wakes one.
constexpr int kWaiting = 4;

// After the daemon's death the socket stays ready (level-triggered), so it leaves the set. A timer
// takes its place, so that waiting threads look for the next daemon.
void learn_of_death(Context& context, Channel& channel) {
  context.check_daemon();
  const std::lock_guard lock(context.channels_mutex);
  if (context.died_at_ms.load() == 0 || channel.knows_death.exchange(true)) return;
  ::epoll_ctl(channel.epoll.get(), EPOLL_CTL_DEL, context.session.fd(), nullptr);
  channel.look_after(kWaiting * context.pause());
}

// The daemon has gone, or another one goes on. The dead one may have published a completion, or
// taken a program's request for an event, and told nobody. False: look again in a moment.
bool find_lost_events(Context& context, Channel& channel) {
  const std::lock_guard unchanged(context.numbers_mutex);
  const uint32_t living = context.given_up.load() ? 0 : context.session.epoch();
  bool all = true;
  std::vector<uint32_t> unread;  // the slots of CQs
  drop_unread_of(context, channel, [&](const ipc::ChannelMessage& message) {
    unread.push_back(message.cq);
    return false;
  });
  for (const auto& [slot, cq] : context.cqs) {
    if (cq->ibv.channel != &channel.ibv || !cq->requested.load()) continue;
    const std::lock_guard lock(cq->mutex);
    cq->announce_all();
    // The program may have polled what the dead one was about to tell of.
    const uint32_t arm = cq->bell->arm.load();
    const bool lives = arm == ipc::arm_word(ipc::Arm::kTelling, ipc::kProgram) ||
                       (living != 0 && arm == ipc::arm_word(ipc::Arm::kTelling, living));
    const bool half_told = ipc::arm_in(arm) == ipc::Arm::kTelling && !lives &&
                           std::find(unread.begin(), unread.end(), slot) == unread.end();
    const bool has_completions = would_find(*cq);
    if (!half_told && !has_completions) continue;
    // What stands may be what the living daemon is about to tell: it says so before it publishes.
    if (living != 0 && cq->bell->untold.load() == living) {
      all = false;
      continue;
    }
    if (has_completions) cq->wake(true);
    if (half_told) ipc::tell_instead(*cq->bell, arm, channel.wake.get(), slot, ipc::kProgram);
  }
  return all;
}

// The next message that names a CQ of this channel.
Cq* next_event(Context& context, Channel& channel) {
  ipc::ChannelMessage message{};
  while (::read(channel.read_end.get(), &message, sizeof message) == sizeof message) {
    const std::lock_guard lock(context.mutex);
    const auto it = context.cqs.find(message.cq);
    if (it != context.cqs.end() && it->second->ibv.channel == &channel.ibv) {
      it->second->requested.store(false);
      it->second->events_given.fetch_add(1);
      return it->second;
    }
  }
  return nullptr;
}

}  // namespace

int get_cq_event(ibv_comp_channel* ibv, ibv_cq** cq, void** cq_context) {
  Context& context = *Context::of(ibv->context);
  Channel& channel = *Channel::of(ibv);
  for (bool waited = false;;) {
    if (Cq* found = next_event(context, channel); found != nullptr) {
      {
        const std::lock_guard lock(found->mutex);
        found->turn_of_event = found->turn;
      }
      if (channel.has_drained()) tell_again(context, channel);
      *cq = ibv_cq_ex_to_cq(&found->ibv);
      *cq_context = (*cq)->cq_context;
      return 0;
    }
    const bool blocking = (::fcntl(ibv->fd, F_GETFL) & O_NONBLOCK) == 0;
    // As for read(2) of a real device, a stop or a debugger must not interrupt the wait. It would
    // interrupt epoll_wait(2), but not poll(2).
    if (blocking && !waited) {
      pollfd wait{ibv->fd, POLLIN, 0};
      if (::poll(&wait, 1, -1) >= 0)
        waited = true;  // most likely for a completion
      else if (errno != EINTR || !base::handlers_restart())
        return -1;
      continue;
    }
    waited = false;
    epoll_event ready{};
    const int count = ::epoll_wait(channel.epoll.get(), &ready, 1, 0);
    if (count < 0) return -1;
    if (count > 0 && ready.data.fd == context.session.fd()) {
      learn_of_death(context, channel);
    } else if (count > 0) {
      // Another daemon took over, or none will, or one took over and has not answered yet.
      context.check_daemon();
      const bool over = context.given_up.load() || context.died_at_ms.load() == 0;
      const bool found = over && find_lost_events(context, channel);
      const std::lock_guard lock(context.channels_mutex);
      if (found)
        channel.timer.reset();
      else if (channel.timer.valid())
        channel.look_after(over ? std::chrono::milliseconds(1) : kWaiting * context.pause());
    } else if (count == 0 && !blocking) {
      errno = EAGAIN;
      return -1;
    }
  }
}

}  // namespace vrdma::client
