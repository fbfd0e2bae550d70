// What was given back is not touched again: the end of stores by peers on direct links.
//
// A peer that executes on a direct link stores by itself. When the link, or a key, ends, the daemon
// tells by a word that the peer reads after it has said where it is about to store
// (QpBlock::aim). So who ends it finds one of three: the peer does not execute, or it executes
// elsewhere and will see the end before its next store, or it may be storing there. The last is
// waited for. A peer that does not come to an end soon has been stopped: by a signal, a debugger, a
// frozen control group. Then its pages are taken back: the daemon makes the memory reached,
// whatever keys name it, every other user of it goes on, and the pages are exchanged for private
// ones. What the peer stores when it runs again goes to pages that nobody has.
#include <algorithm>
#include <chrono>
#include <thread>

#include "client/device/memory/raw_memory.h"
#include "client/device/objects.h"
#include "client/device/open_contexts.h"

namespace vrdma::client {

namespace {

struct Stretch {
  uint64_t start = 0, end = 0;
  [[nodiscard]] bool meets(const Stretch& other) const {
    return start < other.end && other.start < end;
  }
};
constexpr Stretch kAll{0, UINT64_MAX};

// What a peer executes.
struct Execution {
  std::shared_ptr<Peer> peer;
  const ipc::QpBlock* block;  // in the peer's arena
  uint32_t mark;

  [[nodiscard]] bool goes_on() const { return block->busy.load(std::memory_order_acquire) == mark; }
  [[nodiscard]] Stretch aim() const {
    const uint64_t start = block->aim.load(std::memory_order_relaxed);
    return {start, start + block->aim_length.load(std::memory_order_relaxed)};
  }
};
using Executions = std::vector<Execution>;

// Those whose pages were taken back.
class Outlasted {
 public:
  static Outlasted& instance() {
    static auto* all = new Outlasted;
    return *all;
  }
  void add(const Execution& one) {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const Execution& each) { return !each.goes_on(); });
    all_.push_back(one);
  }
  [[nodiscard]] bool has(const Execution& one) {
    const std::lock_guard lock(mutex_);
    return std::any_of(all_.begin(), all_.end(), [&](const Execution& each) {
      return each.block == one.block && each.mark == one.mark;
    });
  }

 private:
  std::mutex mutex_;
  Executions all_;
};

// The execution by the peer of `qp` that may store in `where`. By one of the locks of Qp::direct.
void add_execution(const Qp& qp, const Stretch& where, Executions* all) {
  const Direct* direct = qp.direct.get();
  if (direct == nullptr) return;
  Execution now{direct->peer, direct->block, direct->block->busy.load(std::memory_order_acquire)};
  if ((now.mark & 1) == 0 || Outlasted::instance().has(now)) return;
  const Stretch aim = now.aim();
  // A library that does not say leaves it empty.
  if (aim.start == aim.end || aim.meets(where)) all->push_back(std::move(now));
}

Executions executions_into(Context& context, const Stretch& where) {
  Executions all;
  const std::lock_guard lock(context.mutex);
  for (const auto& [handle, qp] : context.qps) add_execution(*qp, where, &all);
  return all;
}

// Leaves those that do not end.
void wait_for(Executions* all) {
  // A peer that has the processor needs microseconds; one of many on a busy host, some
  // milliseconds.
  constexpr auto kPatience = std::chrono::milliseconds(200);
  constexpr auto kSpin = std::chrono::milliseconds(1);
  constexpr auto kNap = std::chrono::microseconds(200);
  const auto begun = std::chrono::steady_clock::now();
  for (;;) {
    std::erase_if(*all, [](const Execution& one) { return !one.goes_on(); });
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (all->empty() || waited > kPatience) return;
    if (waited < kSpin)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kNap);
  }
}

// Takes pages back from peers that were stopped. In between no other thread asks the daemon.
class TakingBack {
 public:
  explicit TakingBack(Context& caller)
      : caller_(caller),
        open_(OpenContexts::instance().mutex),
        memory_(MemoryTable::instance().lock()) {
    for (Context* context : OpenContexts::instance().contexts)
      alone_.push_back(context->session.alone());
  }
  ~TakingBack() {
    if (asked_) tell({});
  }
  TakingBack(const TakingBack&) = delete;
  TakingBack& operator=(const TakingBack&) = delete;

  // False: a peer may still store.
  bool run(Executions stuck) {
    Executions others;
    do {
      for (const Execution& one : stuck) begin(one);
      std::move(stuck.begin(), stuck.end(), std::back_inserter(all_));
      // They may have found the pages by the keys as they were.
      others = find_others();
      wait_for(&others);
      stuck = std::move(others);
    } while (!stuck.empty());
    bool done = true;
    for (const Stretch& each : ranges_)
      done = MemoryTable::instance().take_back(each.start, each.end, caller_.asker()) && done;
    if (!done) return false;
    for (const Execution& one : all_) Outlasted::instance().add(one);
    return true;
  }

 private:
  void begin(const Execution& one) {
    const Stretch aim = one.aim();
    const Stretch pages{page_down(aim.start), page_up(aim.end)};
    if (pages.start >= pages.end || pages.end > ipc::kMemoryArenaSize || !one.goes_on()) return;
    ipc::ReachRequest wanted{};
    wanted.addr = pages.start;
    wanted.length = pages.end - pages.start;
    wanted.peer = one.peer->id;
    if (tell(wanted)) ranges_.push_back(pages);
  }

  // False: the peer has died, and stores no more.
  bool tell(const ipc::ReachRequest& wanted) {
    asked_ = true;
    for (Context* context : OpenContexts::instance().contexts) {
      ipc::Request request;
      ipc::Reply reply;
      request.call = ipc::Call::kReach;
      request.reach = wanted;
      // A dead daemon accesses nothing.
      if (context->session.call(request, &reply) == 0 && reply.reach.peer_died != 0) return false;
    }
    return true;
  }

  Executions find_others() const {
    Executions others;
    for (const Stretch& range : ranges_)
      for (Context* context : OpenContexts::instance().contexts)
        for (Execution& one : executions_into(*context, range))
          if (std::none_of(all_.begin(), all_.end(),
                           [&](const Execution& known) { return known.block == one.block; }))
            others.push_back(std::move(one));
    return others;
  }

  Context& caller_;
  const std::lock_guard<std::mutex> open_;
  const std::unique_lock<std::mutex> memory_;
  std::vector<std::unique_lock<std::recursive_mutex>> alone_;
  Executions all_;
  std::vector<Stretch> ranges_;
  bool asked_ = false;
};

// False: one may still store.
bool try_to_outlast(Context& context, Executions* all) {
  wait_for(all);
  // Without a daemon nobody can hold this program's threads, or knows whether the peer has died.
  return all->empty() || context.session.is_lost() || TakingBack(context).run(*all);
}

void outlast(Context& context, Executions all) {
  while (!try_to_outlast(context, &all)) continue;
}

}  // namespace

void wait_for_initiator(Qp& qp) {
  Executions all;
  add_execution(qp, kAll, &all);
  outlast(*qp.context, std::move(all));
}

bool try_to_outlast_initiator(Qp& qp) {
  Executions all;
  add_execution(qp, kAll, &all);
  return try_to_outlast(*qp.context, &all);
}

void wait_for_initiators(Context& context, uint64_t addr, uint64_t length) {
  outlast(context, executions_into(context, {addr, addr + length}));
  // Those of this program's other threads.
  const std::lock_guard lock(context.mutex);
  for (const auto& [handle, qp] : context.qps) const std::lock_guard ended(qp->send_mutex);
}

}  // namespace vrdma::client
