// Polling a completion queue: which of its queue pairs are looked at, and what is returned first.
// standing.h takes the completions of one queue pair.
#include <algorithm>
#include <bit>
#include <ctime>
#include <utility>

#include "client/device/datapath/standing.h"
#include "client/device/objects.h"
#include "client/verbs/virtual.h"
#include "core/ipc/bell.h"

namespace vrdma::client {

namespace {

// A clock that is cheap to read, and a few milliseconds in its units.
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

bool would_find(Cq& cq) {
  for (const Srq* srq : cq.shared)
    if (srq->inbox.stands()) return true;
  bool found = false;
  const auto look_at = [&](const std::vector<Qp*>& queue_pairs) {
    found = found || std::any_of(queue_pairs.begin(), queue_pairs.end(),
                                 [&](Qp* qp) { return stands(cq, *qp); });
  };
  if (!cq.has_many() || cq.sweep_until != 0) {
    look_at(cq.queue_pairs);
    return found;
  }
  look_at(cq.visited);
  look_at(cq.active);
  ipc::look_at_news(*cq.bell, [&](uint32_t place) { look_at(cq.by_news[place]); });
  return found;
}

namespace {

// With many queue pairs, a poll does not look at all of them. It finds one with completions by its
// mark, by its being recently active, or by its visit in the last round. One that leaves these
// lists is marked.

// The queue pairs of a round.
const std::vector<Qp*>& queues_of(const Cq& cq) {
  return cq.has_many() ? cq.visited : cq.queue_pairs;
}

void mark(const Cq& cq, const Qp& qp) { ipc::announce(*cq.bell, qp.ibv.qp_base.qp_num); }

bool is_active(const Cq& cq, const Qp* qp) {
  return std::find(cq.active.begin(), cq.active.end(), qp) != cq.active.end();
}

void visit(Cq& cq, Qp& qp) {
  uint32_t& last = qp.send_cq() == &cq ? qp.sends_round : qp.receives_round;
  if (std::exchange(last, cq.round) == cq.round) return;
  if (qp.recv_cq() == &cq) qp.receives_due = 0;
  cq.visited.push_back(&qp);
}

// Those that share the mark.
void visit_place(Cq& cq, uint32_t place) {
  for (Qp* qp : cq.by_news[place])
    if (may_stand(cq, *qp)) visit(cq, *qp);
}

void visit_marked(Cq& cq) {
  if (!ipc::has_news(*cq.bell)) return;
  for (uint32_t group = 0; group < ipc::kNewsGroups; ++group) {
    if (__atomic_load_n(&cq.bell->groups[group], __ATOMIC_ACQUIRE) == 0) continue;
    ipc::take_news(*cq.bell, group, [&](uint32_t place) { visit_place(cq, place); });
  }
}

// The others that are marked have sends that may have to come before the receives of this round.
void visit_senders(Cq& cq) {
  ipc::look_at_news(*cq.bell, [&](uint32_t place) { visit_place(cq, place); });
}

// A recently active queue pair is likely to have completions, so the marks are read only when these
// have none or not enough, and in every eighth poll. False: they were not.
bool gather(Cq& cq, bool again) {
  for (const Qp* qp : cq.visited)
    if (!is_active(cq, qp)) mark(cq, *qp);
  cq.visited.clear();
  bool enough = false;
  for (Qp* qp : cq.active) {
    visit(cq, *qp);
    enough = enough || may_stand(cq, *qp);
  }
  if (enough && !again && cq.turn % 8 != 0) return false;
  visit_marked(cq);
  return true;
}

// Begins a round: see standing.h. False: it is one of the recently active queue pairs only.
bool look(Cq& cq, uint32_t most, bool again) {
  ++cq.round;
  const bool everywhere = !cq.has_many() || gather(cq, again);
  if (cq.shared.empty() && queues_of(cq).empty()) return everywhere;
  uint32_t receives = 0;
  for (Qp* qp : queues_of(cq)) receives += look_for_receives(cq, *qp, most);
  for (Srq* srq : cq.shared) receives += look_for_receives(*srq, most);
  if (receives > 0) {
    if (cq.has_many()) visit_senders(cq);
    for (Qp* qp : queues_of(cq)) wait_until_settled(cq, *qp);
  }
  for (Qp* qp : queues_of(cq)) look_for_sends(cq, *qp);
  cq.stage = Cq::Stage::kSends;
  cq.cursor = 0;
  return everywhere;
}

void remember(Cq& cq, Qp* qp) {
  if (is_active(cq, qp)) return;
  if (cq.active.size() == Cq::kMostActive) {
    mark(cq, *cq.active.front());
    cq.active.erase(cq.active.begin());
  }
  cq.active.push_back(qp);
}

// Goes on with one stage of a round. When it returns less than `count`, the stage is over.
template <class Take>
int pass(Cq& cq, int count, ibv_wc* wc, Take take) {
  const std::vector<Qp*>& queues = queues_of(cq);
  int got = 0;
  while (cq.cursor < queues.size()) {
    Qp& qp = *queues[cq.cursor];
    const int its = take(cq, qp, count - got, wc + got);
    if (its > 0 && cq.has_many()) remember(cq, &qp);
    got += its;
    if (got == count) return got;
    ++cq.cursor;
  }
  cq.cursor = 0;
  return got;
}

// Goes on with a round, to its end or until there are `count` completions.
int go_on(Cq& cq, int count, ibv_wc* wc) {
  int got = 0;
  if (cq.stage == Cq::Stage::kSends) {
    got = pass(cq, count, wc, take_sends);
    if (got == count) return got;
    cq.stage = Cq::Stage::kReceives;
  }
  got += pass(cq, count - got, wc + got, [](const Cq& its, Qp& qp, int most, ibv_wc* to) {
    return take_receives(its, qp, most, to);
  });
  for (Srq* srq : cq.shared)
    if (got < count) got += take_receives(*srq, count - got, wc + got);
  if (got < count) cq.stage = Cq::Stage::kOver;
  return got;
}

// The queue pairs that every poll looks at.
const std::vector<Qp*>& likely(const Cq& cq) { return cq.has_many() ? cq.active : cq.queue_pairs; }

// If no receive has arrived, the order of the sends does not matter, and the poll returns them
// without a round. The start rotates, so that polls of few completions reach all queue pairs.
// False: the poll must begin a round.
bool take_only_sends(Cq& cq, int count, ibv_wc* wc, int* got) {
  const std::vector<Qp*>& queues = likely(cq);
  if (!cq.shared.empty() || (cq.has_many() && cq.turn % 8 == 0)) return false;
  for (const Qp* qp : queues)
    if ((qp->recv_cq() == &cq && qp->has_receives()) || has_to_flush(cq, *qp)) return false;
  const size_t all = queues.size();
  size_t index = cq.next < all ? cq.next : 0;
  for (size_t left = all; left > 0 && *got < count; --left) {
    Qp& qp = *queues[index];
    if (++index == all) index = 0;
    if (qp.send_cq() != &cq || !qp.has_results()) continue;
    qp.errors_due = false;
    qp.sends_due = qp.block->sq_tail.load(std::memory_order_acquire);
    *got += take_sends(cq, qp, count - *got, wc + *got);
  }
  cq.next = index;
  return !cq.has_many() || *got == count;
}

// Housekeeping when a poll finds nothing. Reading the clock takes as long as the poll, so a
// spinning program does it only in every 16th poll, a slow one in each.
void look_around(Cq& cq) {
  constexpr unsigned kSpinning = 15;
  Context& context = *Context::of(cq.ibv.context);
  const bool dead = context.died_at_ms.load(std::memory_order_relaxed) != 0;
  if (cq.skips > 0 && !dead) {
    --cq.skips;
    return;
  }
  const uint64_t now = ticks();
  cq.skips = now - std::exchange(cq.clock, now) < kCheckTicks ? kSpinning : 0;
  const uint64_t pause = dead ? kCheckTicks / 16 : kCheckTicks;
  if (now - context.checked_at.load(std::memory_order_relaxed) >= pause) {
    context.checked_at.store(now, std::memory_order_relaxed);
    context.check_daemon();
    cq.announce_all();  // in case a producer could not announce its completion
  }
  // Without a daemon, a waiting request is retried when the program calls.
  if (context.died_at_ms.load(std::memory_order_relaxed) != 0)
    for (Qp* qp : cq.queue_pairs) {
      const std::lock_guard send_lock(qp->send_mutex);
      pump(*qp);
    }
}

}  // namespace

int poll_cq(ibv_cq* ibv, int count, ibv_wc* wc) {
  Cq& cq = *Cq::of(ibv);
  const std::lock_guard lock(cq.mutex);
  if (cq.sweep_until != 0) {
    cq.announce_all();
    if (ticks() > cq.sweep_until) cq.sweep_until = 0;
  }
  ++cq.turn;
  int got = cq.stage != Cq::Stage::kOver ? go_on(cq, count, wc) : 0;
  bool everywhere =
      cq.stage == Cq::Stage::kOver && got < count && take_only_sends(cq, count, wc, &got);
  for (bool again = false; got < count && !everywhere; again = true) {
    everywhere = look(cq, static_cast<uint32_t>(count - got), again);
    got += go_on(cq, count - got, wc + got);
  }
  if (std::exchange(cq.keys_ended, false)) wait_for_initiators(*Context::of(ibv->context));
  // Adapters also report completions that existed when the program armed the CQ. Programs that take
  // a few completions per event depend on it (perftest); for others the next poll is soon enough.
  if (got == count && ibv->channel != nullptr &&
      cq.bell->arm.load(std::memory_order_relaxed) == ipc::arm_word(ipc::Arm::kNext) &&
      would_find(cq))
    cq.wake(false);
  if (got == 0) look_around(cq);
  return got;
}

void Cq::join(Qp* qp) {
  constexpr size_t kFew = 8;
  const auto add = [](std::vector<std::vector<Qp*>>* to, Qp* its) {
    (*to)[its->ibv.qp_base.qp_num % ipc::kNews].push_back(its);
  };
  queue_pairs.push_back(qp);
  stage = Stage::kOver;
  if (has_many()) {
    add(&by_news, qp);
  } else if (queue_pairs.size() > kFew) {
    std::vector<std::vector<Qp*>> sorted(ipc::kNews);
    for (Qp* its : queue_pairs) add(&sorted, its);
    by_news = std::move(sorted);
    bell->many.store(1);
    sweep_until = ticks() + kCheckTicks;
  }
  ipc::announce(*bell, qp->ibv.qp_base.qp_num);
}

void Cq::leave(Qp* qp) {
  std::erase(queue_pairs, qp);
  stage = Stage::kOver;
  std::erase(active, qp);
  std::erase(visited, qp);
  if (has_many()) std::erase(by_news[qp->ibv.qp_base.qp_num % ipc::kNews], qp);
}

void Cq::announce_all() {
  for (size_t i = 0; i < by_news.size(); ++i)
    if (!by_news[i].empty()) ipc::announce(*bell, static_cast<uint32_t>(i));
}

void Cq::wake(bool solicited) {
  ipc::tell(*bell, Channel::of(ibv.channel)->wake.get(), slot, solicited, ipc::kProgram);
}

}  // namespace vrdma::client
