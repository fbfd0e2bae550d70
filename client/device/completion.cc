// Completion queues: polling the queue pairs that complete there, and being told.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <ctime>

#include "client/device/objects.h"
#include "client/verbs/events.h"
#include "client/verbs/virtual.h"
#include "core/ipc/bell.h"

namespace vrdma::client {

namespace {

ibv_wc_opcode send_opcode(uint8_t opcode) {
  switch (static_cast<verbs::Opcode>(opcode)) {
    case verbs::Opcode::kRdmaWrite:
    case verbs::Opcode::kRdmaWriteWithImm:
      return IBV_WC_RDMA_WRITE;
    case verbs::Opcode::kAtomicWrite:
      return IBV_WC_ATOMIC_WRITE;
    case verbs::Opcode::kRdmaRead:
      return IBV_WC_RDMA_READ;
    case verbs::Opcode::kCompareSwap:
      return IBV_WC_COMP_SWAP;
    case verbs::Opcode::kFetchAdd:
      return IBV_WC_FETCH_ADD;
    case verbs::Opcode::kLocalInvalidate:
      return IBV_WC_LOCAL_INV;
    case verbs::Opcode::kBindWindow:
      return IBV_WC_BIND_MW;
    default:
      return IBV_WC_SEND;
  }
}

// The results of requests that were executed, in order; unsignaled successes are passed over.
int drain_sends(Qp& qp, int count, ibv_wc* wc) {
  const std::lock_guard lock(qp.poll_mutex);
  const uint32_t tail = qp.block->sq_tail.load(std::memory_order_acquire);
  uint32_t polled = qp.polled.load(std::memory_order_relaxed);
  int got = 0;
  if (tail - polled > qp.sq_depth) return 0;  // the daemon has taken the ring away
  while (polled != tail && got < count) {
    const uint32_t slot = polled & (qp.sq_depth - 1);
    const PostedSend& posted = qp.posted[slot];
    const ipc::SendResult result = qp.results[slot];
    ++polled;
    if (!posted.signaled && result.status == IBV_WC_SUCCESS) continue;
    ibv_wc& out = wc[got++];
    out = {};
    out.wr_id = posted.wr_id;
    out.status = static_cast<ibv_wc_status>(result.status);
    out.opcode = send_opcode(posted.opcode);
    out.byte_len = result.byte_len;
    out.qp_num = qp.ibv.qp_base.qp_num;
  }
  qp.polled.store(polled, std::memory_order_release);
  return got;
}

void describe(const ipc::RecvEntry& entry, ibv_wc* out) {
  const auto opcode = static_cast<verbs::Opcode>(entry.opcode);
  out->status = static_cast<ibv_wc_status>(entry.status);
  out->opcode =
      opcode == verbs::Opcode::kRdmaWriteWithImm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  out->byte_len = entry.byte_len;
  out->src_qp = entry.src_qpn;
  out->sl = entry.sl;
  if (verbs::has_immediate(opcode)) {
    out->imm_data = entry.imm;
    out->wc_flags |= IBV_WC_WITH_IMM;
  }
  if (opcode == verbs::Opcode::kSendWithInvalidate && out->status == IBV_WC_SUCCESS) {
    out->invalidated_rkey = entry.imm;
    out->wc_flags |= IBV_WC_WITH_INV;
  }
  if ((entry.flags & ipc::kRecvGrh) != 0) out->wc_flags |= IBV_WC_GRH;
}

// False: a peer named a receive that was not posted.
bool take_receive(Qp& qp, const ipc::RecvEntry& entry, ibv_wc* out) {
  *out = {};
  if (qp.ibv.qp_base.srq != nullptr) {
    if (!Srq::of(qp.ibv.qp_base.srq)->take(entry.slot, &out->wr_id)) return false;
  } else {
    const uint32_t index = qp.rq_polled.load(std::memory_order_relaxed);
    if (index == qp.block->rq_head.load(std::memory_order_relaxed)) return false;
    out->wr_id = qp.recv_wr_ids[index & (qp.rq_depth - 1)];
    qp.rq_polled.store(index + 1, std::memory_order_release);
  }
  describe(entry, out);
  out->qp_num = qp.ibv.qp_base.qp_num;
  return true;
}

// The receives of an XRC SRQ.
int drain_shared(Srq& srq, int count, ibv_wc* wc) {
  int got = 0;
  for (; got < count && ipc::stands(*srq.inbox, srq.depth, srq.inbox_seen); ++srq.inbox_seen) {
    const ipc::RecvEntry& entry = srq.inbox->entries()[srq.inbox_seen & (srq.depth - 1)];
    ibv_wc& out = wc[got];
    out = {};
    if (!srq.take(entry.slot, &out.wr_id)) continue;
    ++got;
    describe(entry, &out);
    out.qp_num = entry.qpn;
  }
  return got;
}

// Takes at most `count` of at most `entries` entries.
int drain_ring(Qp& qp, const ipc::RecvRing& ring, uint32_t entries, uint32_t* seen, int count,
               ibv_wc* wc) {
  int got = 0;
  for (; entries > 0 && got < count && ipc::stands(ring, qp.inbox_depth, *seen); --entries, ++*seen)
    if (take_receive(qp, ring.entries()[*seen & (qp.inbox_depth - 1)], &wc[got])) ++got;
  return got;
}

// The ring that the peer of a direct link writes, if there is one.
const ipc::RecvRing* inbox_of_peer(const Qp& qp) {
  if (qp.block->inbox_direct.load(std::memory_order_acquire) == 0 || qp.direct == nullptr)
    return nullptr;
  return qp.direct->inbox;
}

// What the worker delivered comes before what the peer did: the token passed from one to the other
// in between, so whoever first looks at what the peer delivered sees all of the worker's entries
// afterwards.
int drain_receives(Qp& qp, int count, ibv_wc* wc) {
  const ipc::RecvRing* const from_peer = inbox_of_peer(qp);
  uint32_t delivered = 0;
  while (from_peer != nullptr && delivered < static_cast<uint32_t>(count) &&
         ipc::stands(*from_peer, qp.inbox_depth, qp.outbox_seen + delivered))
    ++delivered;
  int got = drain_ring(qp, *qp.inbox, UINT32_MAX, &qp.inbox_seen, count, wc);
  if (delivered > 0)
    got += drain_ring(qp, *from_peer, delivered, &qp.outbox_seen, count - got, wc + got);
  return got;
}

void discard(Qp& qp, const ipc::RecvRing& ring, uint32_t* seen) {
  ibv_wc ignored[16];
  while (drain_ring(qp, ring, UINT32_MAX, seen, 16, ignored) > 0) continue;
}

bool in_error(verbs::QpState state) {
  return state == verbs::QpState::kErr || state == verbs::QpState::kSqe;
}

// What is left of a queue pair in an error state. The completion that says what went wrong comes
// before those that were flushed because of it.
int flush(Qp& qp, const Cq& cq, int count, ibv_wc* wc) {
  const verbs::QpState state = qp.state();
  int got = 0;
  if (in_error(state) && qp.send_cq() == &cq) {
    got = drain_sends(qp, count, wc);
    flush_sends(qp);
    got += drain_sends(qp, count - got, wc + got);
  }
  if (state == verbs::QpState::kErr && qp.recv_cq() == &cq) {
    wait_for_initiator(qp);
    got += drain_receives(qp, count - got, wc + got);
    got += flush_receives(qp, count - got, wc + got);
  }
  return got;
}

// Whether a poll would find something of the queue pair now, at times when only unsignaled
// successes are left; also what is still to be flushed.
bool has_news(const Cq& cq, const Qp& qp) {
  const auto published = [](const ipc::Word& head) { return head.load(std::memory_order_acquire); };
  if (qp.send_cq() == &cq) {
    const uint32_t polled = qp.polled.load(std::memory_order_relaxed);
    if (published(qp.block->sq_tail) != polled) return true;
    if (in_error(qp.state()) && published(qp.block->sq_head) != polled) return true;
  }
  if (qp.recv_cq() != &cq) return false;
  const ipc::RecvRing* const from_peer = inbox_of_peer(qp);
  return ipc::stands(*qp.inbox, qp.inbox_depth, qp.inbox_seen) ||
         (from_peer != nullptr && ipc::stands(*from_peer, qp.inbox_depth, qp.outbox_seen)) ||
         (qp.state() == verbs::QpState::kErr && qp.ibv.qp_base.srq == nullptr &&
          published(qp.block->rq_head) != qp.rq_polled.load(std::memory_order_relaxed));
}

bool holds_more(const Cq& cq) {
  for (const Srq* srq : cq.shared)
    if (ipc::stands(*srq->inbox, srq->depth, srq->inbox_seen)) return true;
  if (cq.has_many()) return cq.bell->groups.load(std::memory_order_acquire) != 0;
  const auto is_ready = [&](const Qp* qp) { return has_news(cq, *qp); };
  return std::any_of(cq.senders.begin(), cq.senders.end(), is_ready) ||
         std::any_of(cq.receivers.begin(), cq.receivers.end(), is_ready);
}

// A clock that costs next to nothing to read, and how much of it is some milliseconds.
#if defined(__x86_64__)
uint64_t ticks() { return __builtin_ia32_rdtsc(); }
constexpr uint64_t kCheckTicks = 40'000'000;
#else
uint64_t ticks() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
constexpr uint64_t kCheckTicks = 20'000'000;
#endif

}  // namespace

void discard_receives(Qp& qp) {
  if (qp.ibv.qp_base.srq == nullptr) return;
  discard(qp, *qp.inbox, &qp.inbox_seen);
  const std::lock_guard lock(qp.send_mutex);
  if (qp.direct != nullptr) discard(qp, *qp.direct->inbox, &qp.outbox_seen);
}

namespace {

// All that one queue pair has in the CQ, up to `count`; sends and receives take turns in being
// first.
int drain(Cq& cq, Qp& qp, int count, ibv_wc* wc) {
  const auto sends = [&](int got) {
    return qp.send_cq() == &cq ? drain_sends(qp, count - got, wc + got) : 0;
  };
  const auto receives = [&](int got) {
    return qp.recv_cq() == &cq ? drain_receives(qp, count - got, wc + got) : 0;
  };
  int got = 0;
  if (++cq.next % 2 == 0) {
    got = sends(0);
    got += receives(got);
  } else {
    got = receives(0);
    got += sends(got);
  }
  if (got < count && in_error(qp.state())) got += flush(qp, cq, count - got, wc + got);
  return got;
}

// The queue pairs that have news, beginning at another group each time.
int poll_news(Cq& cq, int count, ibv_wc* wc) {
  ipc::CqBell& bell = *cq.bell;
  const unsigned first = static_cast<unsigned>(cq.next / 2 % ipc::kNewsWords);
  uint64_t groups = std::rotr(bell.groups.load(std::memory_order_acquire), static_cast<int>(first));
  int got = 0;
  for (; groups != 0 && got < count; groups &= groups - 1) {
    const unsigned group =
        (first + static_cast<unsigned>(std::countr_zero(groups))) % ipc::kNewsWords;
    bell.groups.fetch_and(~(1ull << group));
    uint64_t bits = bell.news[group].exchange(0);
    for (; bits != 0; bits &= bits - 1) {
      for (Qp* qp : cq.by_news[group * 64 + static_cast<unsigned>(std::countr_zero(bits))]) {
        if (got < count) got += drain(cq, *qp, count - got, wc + got);
        if (has_news(cq, *qp)) ipc::announce(bell, qp->ibv.qp_base.qp_num);
      }
    }
  }
  for (Srq* srq : cq.shared)
    if (got < count) got += drain_shared(*srq, count - got, wc + got);
  return got;
}

// All queue pairs, beginning at another one each time.
int poll_all(Cq& cq, int count, ibv_wc* wc) {
  const size_t senders = cq.senders.size();
  const size_t queue_pairs = senders + cq.receivers.size();
  const size_t all = queue_pairs + cq.shared.size();
  int got = 0;
  const auto at = [&](size_t i) -> Qp& {
    return i < senders ? *cq.senders[i] : *cq.receivers[i - senders];
  };
  bool errors = false;
  const auto after = [&](size_t index) { return index + 1 < all ? index + 1 : 0; };
  size_t index = cq.next < all ? cq.next : 0;
  for (size_t i = 0; i < all && got < count; ++i, index = after(index)) {
    if (index >= queue_pairs) {
      got += drain_shared(*cq.shared[index - queue_pairs], count - got, wc + got);
    } else {
      Qp& qp = at(index);
      got += index < senders ? drain_sends(qp, count - got, wc + got)
                             : drain_receives(qp, count - got, wc + got);
      errors = errors || in_error(qp.state());
    }
    // Whoever polls one at a time sees all of them in turn: receives that never end do not keep
    // the completions of sends, and with them the send queue's room, from the program.
    if (got == count) cq.next = after(index);
  }
  for (size_t i = 0; errors && i < queue_pairs && got < count; ++i)
    got += flush(at(i), cq, count - got, wc + got);
  if (got < count) cq.next = after(cq.next);
  return got;
}

}  // namespace

int poll_cq(ibv_cq* ibv, int count, ibv_wc* wc) {
  Cq& cq = *Cq::of(ibv);
  const std::lock_guard lock(cq.mutex);
  if (cq.sweep_until != 0) {
    cq.announce_all();
    if (ticks() > cq.sweep_until) cq.sweep_until = 0;
  }
  const int got = cq.has_many() ? poll_news(cq, count, wc) : poll_all(cq, count, wc);
  // Adapters tell of what was there already when the program asked to be told. Programs that take
  // a few completions an event depend on it (perftest); for others the next poll is soon enough.
  if (got == count && ibv->channel != nullptr &&
      cq.bell->arm.load(std::memory_order_relaxed) == static_cast<uint32_t>(ipc::Arm::kNext) &&
      holds_more(cq))
    cq.wake(false);
  if (got == 0) {
    Context& context = *Context::of(ibv->context);
    const uint64_t now = ticks();
    if (now - context.checked_at.load(std::memory_order_relaxed) >= kCheckTicks) {
      context.checked_at.store(now, std::memory_order_relaxed);
      context.check_daemon();
      cq.announce_all();  // nothing is lost that a producer could not announce
    }
    // Without a daemon, work that could not finish goes on when the program calls.
    if (context.died_at_ms.load(std::memory_order_relaxed) != 0)
      for (Qp* qp : cq.senders) {
        const std::lock_guard send_lock(qp->send_mutex);
        pump(*qp);
      }
  }
  return got;
}

void Cq::joined(Qp* qp) {
  constexpr size_t kFew = 16;
  const auto add = [this](Qp* its) {
    auto& here = by_news[its->ibv.qp_base.qp_num % ipc::kNewsBits];
    if (std::find(here.begin(), here.end(), its) == here.end()) here.push_back(its);
  };
  if (has_many()) {
    add(qp);
  } else if (senders.size() + receivers.size() > kFew) {
    by_news.resize(ipc::kNewsBits);
    for (const auto* list : {&senders, &receivers})
      for (Qp* its : *list) add(its);
    bell->many.store(1);
    sweep_until = ticks() + kCheckTicks;
  }
  ipc::announce(*bell, qp->ibv.qp_base.qp_num);
}

void Cq::leaves(Qp* qp) {
  if (has_many()) std::erase(by_news[qp->ibv.qp_base.qp_num % ipc::kNewsBits], qp);
}

void Cq::announce_all() {
  for (size_t i = 0; i < by_news.size(); ++i)
    if (!by_news[i].empty()) ipc::announce(*bell, static_cast<uint32_t>(i));
}

void Cq::notify(const Qp& qp, bool solicited) {
  ipc::announce(*bell, qp.ibv.qp_base.qp_num);
  wake(solicited);
}

void Cq::wake(bool solicited) {
  if (ibv.channel != nullptr)
    ipc::tell(*bell, Channel::of(ibv.channel)->wake.get(), slot, solicited);
}

int req_notify_cq(ibv_cq* ibv, int solicited_only) {
  const auto arm = solicited_only != 0 ? ipc::Arm::kSolicited : ipc::Arm::kNext;
  ipc::Word& word = Cq::of(ibv)->bell->arm;
  // A wider request is not narrowed (ibv_req_notify_cq(3)).
  if (arm == ipc::Arm::kNext || word.load() == static_cast<uint32_t>(ipc::Arm::kNone))
    word.store(static_cast<uint32_t>(arm));
  // Pairs with the fence of whoever publishes a completion: the poll that the program now does
  // sees it, or the publisher sees the arm.
  std::atomic_thread_fence(std::memory_order_seq_cst);
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
  if (const int error = context.session.call(request, &reply); error != 0) {
    errno = error;
    return nullptr;
  }
  auto* cq = new Cq{};
  if (has_parent) cq->pd = Use(&Pd::of(attr->parent_domain)->users);
  cq->handle = reply.create_cq.handle;
  cq->slot = reply.create_cq.slot;
  cq->bell = context.bells.at<ipc::CqBell>(uint64_t{cq->slot} * sizeof(ipc::CqBell));
  auto* base = ibv_cq_ex_to_cq(&cq->ibv);
  init_cq(base, ibv, attr->channel, attr->cq_context);
  set_extended_ops(*cq, attr->wc_flags);
  base->handle = cq->handle;
  base->cqe = static_cast<int>(reply.create_cq.cqe);
  const std::lock_guard lock(context.mutex);
  context.cqs.emplace(cq->slot, cq);
  return &cq->ibv;
}

namespace {

// Completions that wait to be polled, or will when what was posted is done.
uint32_t waiting(Cq& cq) {
  const std::lock_guard lock(cq.mutex);
  uint32_t count = 0;
  for (const Qp* qp : cq.senders)
    count += qp->block->sq_head.load(std::memory_order_relaxed) - qp->polled.load();
  for (const Qp* qp : cq.receivers) {
    count += ipc::head_of(*qp->inbox, qp->inbox_depth) - qp->inbox_seen;
    if (const ipc::RecvRing* const from_peer = inbox_of_peer(*qp); from_peer != nullptr)
      count += ipc::head_of(*from_peer, qp->inbox_depth) - qp->outbox_seen;
  }
  for (const Srq* srq : cq.shared) count += ipc::head_of(*srq->inbox, srq->depth) - srq->inbox_seen;
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

int destroy_cq(ibv_cq* ibv) {
  Context& context = *Context::of(ibv->context);
  Cq* cq = Cq::of(ibv);
  const int error = context.session.call(ipc::Call::kDestroyCq, cq->handle);
  if (error != 0 && error != EIO) return error;
  {
    const std::lock_guard lock(context.mutex);
    context.cqs.erase(cq->slot);
  }
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
  int error = context.session.call(request, &reply, {}, &fds);
  if (error == 0 && fds.size() != 2) error = EPROTO;
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  auto channel = std::make_unique<Channel>();
  channel->handle = reply.create_channel.handle;
  channel->pipe = std::move(fds[0]);
  channel->wake = std::move(fds[1]);
  ::fcntl(channel->pipe.get(), F_SETFL, O_NONBLOCK);
  channel->epoll = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event pipe_event{};
  pipe_event.events = EPOLLIN;
  pipe_event.data.fd = channel->pipe.get();
  epoll_event death_event{};
  death_event.events = EPOLLRDHUP;  // and EPOLLHUP, which is always told
  death_event.data.fd = context.session.fd();
  if (!channel->epoll.valid() ||
      ::epoll_ctl(channel->epoll.get(), EPOLL_CTL_ADD, channel->pipe.get(), &pipe_event) != 0 ||
      ::epoll_ctl(channel->epoll.get(), EPOLL_CTL_ADD, context.session.fd(), &death_event) != 0) {
    const int reason = errno;
    (void)context.session.call(ipc::Call::kDestroyChannel, channel->handle);
    errno = reason;
    return nullptr;
  }
  channel->ibv.context = ibv;
  channel->ibv.fd = channel->epoll.get();
  return &channel.release()->ibv;
}

int destroy_comp_channel(ibv_comp_channel* ibv) {
  if (!channel_is_unused(ibv)) return EBUSY;
  Channel* channel = Channel::of(ibv);
  const int error =
      Context::of(ibv->context)->session.call(ipc::Call::kDestroyChannel, channel->handle);
  if (error != 0 && error != EIO) return error;
  delete channel;
  return 0;
}

namespace {

// The daemon has died: the socket would be ready for ever, so it leaves the set, and a timer that
// ends the waiting takes its place.
void learn_of_death(Context& context, Channel& channel) {
  context.daemon_died();
  if (channel.knows_death.exchange(true)) return;
  ::epoll_ctl(channel.epoll.get(), EPOLL_CTL_DEL, context.session.fd(), nullptr);
  channel.timer = base::Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  itimerspec when{};
  when.it_value.tv_sec = context.grace_ms / 1000;
  when.it_value.tv_nsec = long{context.grace_ms % 1000} * 1'000'000 + 1;
  ::timerfd_settime(channel.timer.get(), 0, &when, nullptr);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = channel.timer.get();
  ::epoll_ctl(channel.epoll.get(), EPOLL_CTL_ADD, channel.timer.get(), &event);
}

// The next message of the pipe that names a CQ of this channel.
Cq* next_event(Context& context, Channel& channel) {
  ipc::ChannelMessage message{};
  while (::read(channel.pipe.get(), &message, sizeof message) == sizeof message) {
    const std::lock_guard lock(context.mutex);
    const auto it = context.cqs.find(message.cq);
    if (it != context.cqs.end() && it->second->ibv.channel == &channel.ibv) {
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
  for (;;) {
    if (Cq* found = next_event(context, channel); found != nullptr) {
      *cq = ibv_cq_ex_to_cq(&found->ibv);
      *cq_context = (*cq)->cq_context;
      return 0;
    }
    const bool blocking = (::fcntl(ibv->fd, F_GETFL) & O_NONBLOCK) == 0;
    // A stop or a debugger does not end poll(2), as it would not end the read(2) of a real device;
    // epoll_wait(2) it would.
    pollfd wait{ibv->fd, POLLIN, 0};
    if (blocking && ::poll(&wait, 1, -1) < 0) return -1;
    epoll_event ready{};
    const int count = ::epoll_wait(channel.epoll.get(), &ready, 1, 0);
    if (count < 0) return -1;
    if (count > 0 && ready.data.fd == context.session.fd()) {
      learn_of_death(context, channel);
    } else if (count > 0 && ready.data.fd == channel.timer.get()) {
      ::epoll_ctl(channel.epoll.get(), EPOLL_CTL_DEL, channel.timer.get(), nullptr);
      context.give_up();
    } else if (count == 0 && !blocking) {
      errno = EAGAIN;
      return -1;
    }
  }
}

}  // namespace vrdma::client
