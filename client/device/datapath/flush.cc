// Flushes posted work when its queue pair is in an error state, or when no daemon takes over.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "client/device/datapath/direct.h"
#include "client/device/objects.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {

// When the token is free or held here, or the daemon is dead, no worker publishes results any more.
// This flushes the rest of the queue by writing the missing results.
void flush_sends(Qp& qp) {
  const std::lock_guard lock(qp.send_mutex);
  const bool worker = ipc::is_workers(qp.block->token.load(std::memory_order_acquire));
  if (worker && !qp.has_failed()) return;
  uint32_t tail = qp.block->sq_tail.load(std::memory_order_acquire);
  for (; tail != qp.sq_head; ++tail)
    qp.results[tail & (qp.sq_depth - 1)] = {IBV_WC_WR_FLUSH_ERR, 0};
  qp.block->sq_tail.store(tail, std::memory_order_release);
}

int flush_receives(Qp& qp, int count, ibv_wc* wc) {
  const std::lock_guard lock(qp.recv_mutex);
  int got = 0;
  uint32_t index = qp.rq_polled.load(std::memory_order_relaxed);
  for (; index != qp.rq_head && got < count; ++index) {
    ibv_wc& out = wc[got++];
    out = {};
    out.wr_id = qp.recv_wr_ids[index & (qp.rq_depth - 1)];
    out.status = IBV_WC_WR_FLUSH_ERR;
    out.opcode = IBV_WC_RECV;
    out.qp_num = qp.ibv.qp_base.qp_num;
  }
  qp.rq_polled.store(index, std::memory_order_release);
  return got;
}

namespace {
int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}
// See Context::pause(); in ms.
int64_t pause_after(int64_t gone) {
  constexpr int64_t kShortest = 2, kLongest = 50;
  return std::clamp(gone / 8, kShortest, kLongest);
}
}  // namespace

std::chrono::milliseconds Context::pause() const {
  return std::chrono::milliseconds(
      pause_after(now_ms() - died_at_ms.load(std::memory_order_relaxed)));
}

void Context::check_daemon() {
  const int64_t died = died_at_ms.load(std::memory_order_relaxed);
  if (died == 0) {
    // Read first, because another thread may replace the daemon in between.
    const uint32_t epoch = session.epoch();
    if (session.hung_up()) daemon_died(epoch);
    return go_on();
  }
  const int64_t now = now_ms();
  if (given_up.load(std::memory_order_relaxed) ||
      (now - tried_at_ms.load(std::memory_order_relaxed) < pause_after(now - died) &&
       now - died < grace_ms))
    return;
  tried_at_ms.store(now, std::memory_order_relaxed);
  const Session::Resumed found = session.resume();
  if (found == Session::Resumed::kYes) {
    died_at_ms.store(0);
    resumed.store(true);  // even if another thread did the same before this one noticed the death
  }
  if (found == Session::Resumed::kNever) give_up(true);
  if (found == Session::Resumed::kNotYet && now - died >= grace_ms) give_up(false);
  go_on();
}

// Hands the work that waited for a daemon to the new one.
void Context::go_on() {
  if (!resumed.load(std::memory_order_relaxed) || !resumed.exchange(false)) return;
  const std::lock_guard lock(mutex);
  for (const auto& [handle, qp] : qps) {
    const std::lock_guard send_lock(qp->send_mutex);
    pump(*qp);
  }
}

void Context::replace_socket(base::Fd socket) {
  const std::lock_guard lock(channels_mutex);
  for (Channel* channel : channels) channel->forget_socket(*this);
  ::dup3(socket.get(), session.fd(), O_CLOEXEC);
  for (Channel* channel : channels) {
    channel->watch_socket(*this);
    channel->look_after({});
  }
  MemoryTable::instance().look_again();
  resumed.store(true);
  died_at_ms.store(0);
}

// Direct links continue: this process reclaims the tokens that the worker held. The worker's
// threads have ended, because the last of them closed the socket.
void Context::daemon_died(uint32_t epoch) {
  int64_t alive = 0;
  if (!died_at_ms.compare_exchange_strong(alive, std::max<int64_t>(now_ms(), 1))) return;
  const std::lock_guard lock(mutex);
  for (const auto& [handle, qp] : qps) {
    const std::lock_guard send_lock(qp->send_mutex);
    reclaim(*qp, epoch);
  }
}

namespace {
// A link is direct in both directions, or one direction is unused: only the daemon makes links, and
// a queue pair in RTR no longer sends. What a dead worker still has (reclaim()) nobody can do.
bool goes_on(const Qp& qp, verbs::QpState state) {
  if (ipc::is_workers(qp.block->token.load(std::memory_order_acquire)) && !ring_is_empty(qp))
    return false;
  if (qp.block->link.load(std::memory_order_acquire) == static_cast<uint32_t>(ipc::Link::kDirect))
    return true;
  return state == verbs::QpState::kRtr &&
         qp.block->inbox_direct.load(std::memory_order_acquire) != 0;
}
}  // namespace

void Context::give_up(bool refused) {
  // A daemon that takes the session over now serves it. If it does not answer, this process waits
  // for it for another grace period.
  uint32_t serving = daemon_epoch().load();
  while (!refused && serving != 0) {
    if (serving != session.epoch() && serving != silent_epoch.load()) {
      silent_epoch.store(serving);
      silent_since_ms.store(now_ms());
    }
    if (serving == silent_epoch.load() && now_ms() - silent_since_ms.load() < grace_ms) return;
    if (daemon_epoch().compare_exchange_strong(serving, 0)) break;
  }
  if (refused) daemon_epoch().store(0);
  if (given_up.exchange(true)) return;
  const ipc::EventMessage fatal{static_cast<uint32_t>(verbs::Event::kDeviceFatal), 0};
  (void)ipc::put_event(events_wake.get(), &fatal, sizeof fatal);
  const std::lock_guard lock(mutex);
  for (const auto& [handle, qp] : qps) {
    const verbs::QpState state = qp->state();
    if (state == verbs::QpState::kReset || goes_on(*qp, state)) continue;
    qp->own.store(Qp::Own::kFailed, std::memory_order_release);
    // Threads that sleep look for what they lost: see get_cq_event().
    for (const Cq* cq : {qp->send_cq(), qp->recv_cq()})
      ipc::announce(*cq->bell, qp->ibv.qp_base.qp_num);
  }
}

}  // namespace vrdma::client
