#include "transport/runner.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "core/base/asymmetric_fence.h"

namespace vrdma::transport {

namespace {

constexpr auto kQuantum = static_cast<int64_t>(kTurnBytes);
// What one turn costs at most by the time that it took. Other threads may have had the processor
// meanwhile, which must not delay the others for long.
constexpr uint64_t kMaxTimeCost = 16 * kTurnBytes;
// Of a runnable that found nothing to do.
constexpr uint64_t kLeastCost = 128;  // bytes

uint64_t cost_of(base::Duration time) {
  const auto nanoseconds = static_cast<uint64_t>(std::max<int64_t>(time.count(), 0));
  constexpr auto kTurn = static_cast<uint64_t>(base::Duration(kTurnTime).count());
  return std::min(nanoseconds * kTurnBytes / kTurn, kMaxTimeCost);
}

}  // namespace

void Turn::spend_time(base::Duration time) { spend(cost_of(time)); }

bool Turn::over() {
  if (late_ || static_cast<int64_t>(spent_) >= left_) return true;
  if (unseen_ + spent_ - looked_ < kLook) return false;
  unseen_ = 0;
  looked_ = spent_;
  return late_ = clock_.now() >= end_;
}

void Runner::Round::link_last(Flow& flow) {
  flow.before_ = last_;
  flow.after_ = nullptr;
  (last_ != nullptr ? last_->after_ : first_) = &flow;
  last_ = &flow;
}

void Runner::Round::unlink(Flow& flow) {
  (flow.before_ != nullptr ? flow.before_->after_ : first_) = flow.after_;
  (flow.after_ != nullptr ? flow.after_->before_ : last_) = flow.before_;
}

void Runner::Round::enter(Flow& flow) {
  if (flow.active_) return;
  flow.active_ = true;
  flow.deficit_ = std::min<int64_t>(flow.deficit_, 0) + kQuantum;
  link_last(flow);
}

void Runner::Round::leave(Flow& flow) {
  if (!flow.active_) return;
  flow.active_ = false;
  unlink(flow);
}

void Runner::Round::to_end(Flow& flow) {
  if (!flow.active_ || last_ == &flow) return;
  unlink(flow);
  link_last(flow);
}

Runner::Flow& Runner::Round::next() {
  while (first_->deficit_ <= 0) {
    if (first_ == last_) {  // nobody else waits, so nobody is owed anything
      first_->deficit_ = kQuantum;
      break;
    }
    first_->deficit_ += kQuantum;
    to_end(*first_);
  }
  return *first_;
}

Runner::Runner(base::EventLoop& loop, const base::Clock& clock, base::CpuStopwatch::Used used)
    : loop_(loop),
      clock_(clock),
      stopwatch_(used),
      spin_(std::thread::hardware_concurrency() > 2 ? std::chrono::microseconds(20)
                                                    : base::Duration(0)) {
  loop_.set_poller([this](base::TimePoint& now) { return pass(now); });
}

Runner::~Runner() { loop_.set_poller(nullptr); }

void Runner::activate(Runnable* runnable) {
  runnable->again_ = true;
  if (runnable->active_) return;
  Lane& lane = runnable->lane_;
  lane.runnables_.enter(*runnable);
  ++lane.members_active_;
  if (lane.rests()) return;
  ++active_;
  enter(lane);
}

void Runner::enter(Lane& lane) {
  lane.tenant_->second.lanes.enter(lane);
  round_.enter(lane.tenant_->second);
}

void Runner::leave(Lane& lane) {
  Tenant& tenant = lane.tenant_->second;
  tenant.lanes.leave(lane);
  if (tenant.lanes.empty()) round_.leave(tenant);
}

void Runner::remove(Runnable* runnable) {
  if (running_ == runnable) running_ = nullptr;
  if (runnable->active_) deactivate(*runnable);
}

void Runner::deactivate(Runnable& runnable) {
  Lane& lane = runnable.lane_;
  lane.runnables_.leave(runnable);
  --lane.members_active_;
  if (!lane.rests()) --active_;
  if (lane.runnables_.empty()) leave(lane);
}

std::vector<uint32_t> Runner::take_worked() {
  ++look_;
  return std::exchange(worked_, {});
}

void Runner::note_work(Runnable& runnable) {
  runnable.noted_ = look_;
  if (worked_.empty() && on_work_) on_work_();
  worked_.push_back(runnable.session_);
}

// A lane that looks for work pays for that too.
void Runner::pay(Lane& lane, base::TimePoint begun, base::TimePoint now) {
  if (lane.meter_ == nullptr) return;
  lane.meter_->spend(stopwatch_.used(begun, now));
  const base::Duration wait = lane.meter_->wait(now);
  if (wait.count() == 0 || lane.rests()) return;
  leave(lane);
  active_ -= lane.members_active_;
  rest(lane, wait);
}

void Runner::rest(Lane& lane, base::Duration time) {
  lane.rest_ = loop_.after(time, [this, &lane] {
    const base::Duration more = lane.meter_->wait(clock_.now());
    if (more.count() > 0) return rest(lane, more);
    lane.rest_.reset();
    if (lane.runnables_.empty()) return;
    active_ += lane.members_active_;
    enter(lane);
  });
}

bool Runner::pass(base::TimePoint& now) {
  const base::TimePoint end = now + kTurnTime;
  if (!round_.empty()) stopwatch_.look(now);
  for (size_t looks = 0; !round_.empty() && now < end && looks < active_;) {
    auto& tenant = static_cast<Tenant&>(round_.next());
    auto& lane = static_cast<Lane&>(tenant.lanes.next());
    const base::TimePoint begun = now;
    const uint64_t spent = take_turn(lane, begun);
    now = clock_.now();
    pay(lane, begun, now);
    if (spent == 0 && lane.active_) {  // let others look in between
      ++looks;
      tenant.lanes.to_end(lane);
      round_.to_end(tenant);
      continue;
    }
    const uint64_t cost = std::max(spent, cost_of(now - begun));
    lane.charge(cost);
    tenant.charge(cost);
  }
  return !round_.empty();
}

uint64_t Runner::take_turn(Lane& lane, base::TimePoint now) {
  Turn turn(0, now + kTurnTime, clock_);
  uint64_t spent = 0;
  while (lane.active_ && spent < kTurnBytes && !turn.late_) {
    auto& runnable = static_cast<Runnable&>(lane.runnables_.next());
    turn.left_ = std::min(runnable.deficit_, static_cast<int64_t>(kTurnBytes - spent));
    turn.unseen_ += std::exchange(turn.spent_, 0) - std::exchange(turn.looked_, 0);
    running_ = &runnable;
    runnable.again_ = false;
    Runnable::session_in_hand_.store(runnable.session_, std::memory_order_relaxed);
    const bool more = runnable.run(turn);
    Runnable::session_in_hand_.store(0, std::memory_order_relaxed);
    const bool worked = turn.spent_ > 0, looked = more && !worked;
    if (!looked) turn.spent_ = std::max(turn.spent_, kLeastCost);
    spent += turn.spent_;
    if (std::exchange(running_, nullptr) == nullptr) continue;
    if (worked && runnable.noted_ != look_ && runnable.session_ != 0) note_work(runnable);
    runnable.charge(turn.spent_);
    if (!more && !runnable.again_) deactivate(runnable);
    if (!looked) continue;
    lane.runnables_.to_end(runnable);
    break;
  }
  return spent;
}

Lane::Lane(Runner& runner, const std::string& tenant)
    : runner_(runner), tenant_(runner.tenants_.try_emplace(tenant).first) {
  ++tenant_->second.members;
}

Lane::~Lane() {
  if (members_active_ > 0) std::abort();
  if (--tenant_->second.members == 0) runner_.tenants_.erase(tenant_);
}

bool Lane::fence_since(base::TimePoint since) {
  if (fenced_ > since) return true;
  const base::TimePoint now = runner_.clock_.now();
  if (now - fenced_ < fence_interval_) return false;
  base::AsymmetricFence::heavy();
  fenced_ = now;
  return true;
}

}  // namespace vrdma::transport
