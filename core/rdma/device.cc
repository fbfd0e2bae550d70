#include "core/rdma/device.h"

#include <unistd.h>

#include <algorithm>
#include <bit>

#include "core/base/random.h"
#include "core/ipc/bell.h"
#include "core/rdma/window.h"
#include "core/rdma/xrc.h"
#include "core/verbs/mtu.h"

namespace vrdma::rdma {

using verbs::QpState;

void Cq::begin_telling() {
  if (untold++ == 0 && channel != nullptr)
    bell->untold.store(context->epoch, std::memory_order_relaxed);
}

void Cq::end_telling() {
  if (--untold == 0 && channel != nullptr) bell->untold.store(0, std::memory_order_release);
}

void Cq::notify(bool solicited) {
  if (channel == nullptr) return;
  if (context->parked)
    missed = true;
  else
    ipc::tell(*bell, channel->write_end.get(), slot, solicited, context->epoch);
}

void Cq::notify(uint32_t qpn, bool solicited) {
  ipc::announce(*bell, qpn);
  notify(solicited);
}

void Cq::notify_untold(uint32_t qpn) {
  notify(qpn, true);
  const uint32_t arm = bell->arm.load();
  if (channel != nullptr && arm == ipc::arm_word(ipc::Arm::kTelling, ipc::kProgram))
    ipc::tell_instead(*bell, arm, channel->write_end.get(), slot, context->epoch);
}

base::Result<void> Srq::make(Context& owner, Pd& in, bool with_inbox, Places at) {
  max_sge = std::max(max_sge, 1u);
  depth = std::max(std::bit_ceil(max_wr), ipc::kMinSrqDepth);
  const uint64_t wqes_end = ipc::srq_wqes_at(depth) + uint64_t{depth} * ipc::recv_stride(max_sge);
  const uint64_t inbox_at = (wqes_end + 63) / 64 * 64;
  auto rings = owner.heap->allocate(with_inbox ? inbox_at + ipc::recv_ring_bytes(depth) : wqes_end,
                                    at.block);
  if (!rings) return base::pass(std::move(rings.error()));
  auto claims = owner.claims_heap->allocate(ipc::srq_claims_bytes(depth), at.claims);
  if (!claims) return base::pass(std::move(claims.error()));
  range = std::move(*rings);
  claims_range = std::move(*claims);
  block = owner.arena->at<ipc::SrqBlock>(range.offset());
  returned_head = block->returned_head.load();
  if (with_inbox) inbox = owner.arena->at<ipc::RecvRing>(range.offset() + inbox_at);
  receives = SharedReceives::at(block, owner.bells.at<ipc::SrqClaims>(claims_range.offset()), depth,
                                max_sge);
  context = &owner;
  pd = &in;
  ++pd->users;
  return {};
}

Outcome Srq::claim(Receive* receive, const Qp* receiver) {
  // Each failure is another's success. Only the owner of the queue can make it fail without end.
  constexpr int kAttempts = 1000;
  for (int i = 0; i < kAttempts; ++i) {
    Candidate candidate;
    const Outcome found = find_receive(receives, &candidate);
    if (found != Outcome::kDone) return found;
    if (context->on_claim) context->on_claim(*this, candidate.receive.slot, receiver);
    if (!rdma::claim(receives, candidate, ipc::kClaimedByWorker)) {
      completed(candidate.receive.slot);
      continue;
    }
    *receive = candidate.receive;
    check_limit();
    return Outcome::kDone;
  }
  return Outcome::kPeerBroken;
}

void Srq::completed(uint32_t slot) const {
  if (context->on_claim_over) context->on_claim_over(*this, slot);
}

void Srq::give_back(uint32_t slot) {
  if (context->parked) return kept_back.push_back(slot);
  // The owner's numbers are below: see post_srq_recv.
  const uint32_t number = ipc::kReturned | returned_head;
  receives.claims->words()[slot].store(number, std::memory_order_release);
  const_cast<uint32_t*>(receives.returned())[returned_head & (depth - 1)] = slot;
  block->returned_head.store(++returned_head, std::memory_order_release);
  completed(slot);
  for (Sender* waiter : std::list(waiters)) waiter->receive_posted();
}

bool Srq::is_half_returned(uint32_t slot) const {
  return receives.claims->words()[slot].load() == (ipc::kReturned | returned_head);
}

void Srq::set_limit(uint32_t fewer_than) {
  limit = fewer_than;
  block->limit.store(limit);
}

void Srq::check_limit() {
  if (limit == 0 || count_waiting(receives) >= limit) return;
  context->raise(verbs::Event::kSrqLimitReached, handle);
  limit = 0;
  block->limit.store(0);
}

namespace {
bool is_solicited(const ipc::RecvEntry& entry) {
  return (entry.flags & ipc::kRecvSolicited) != 0 ||
         entry.status != static_cast<uint8_t>(verbs::WcStatus::kSuccess);
}
}  // namespace

void Srq::publish(const ipc::RecvEntry& entry) {
  cq->begin_telling();
  ipc::publish(inbox, depth, inbox_head++, entry);
}

void Srq::tell(const ipc::RecvEntry& entry) {
  cq->notify(is_solicited(entry));
  cq->end_telling();
}

void Qp::set_state(QpState state) {
  attributes.state = static_cast<uint32_t>(state);
  count_again();
  changed();
  block->state.store(attributes.state, std::memory_order_release);
}

void Qp::changed() {
  const auto tell = [this](const Context* owner, uint32_t number) {
    if (owner != nullptr && number != 0 && owner->on_qp_changed)
      owner->on_qp_changed(*this, number);
  };
  if (domain == nullptr) return tell(context, handle);
  ++changes;
  for (const Opener& opener : openers) tell(opener.context, opener.handle);
}

void Qp::count_again() {
  if (counted.state == nullptr) return;
  const auto move = [](base::Counter** from, base::Counter* to) {
    if (*from == to) return;
    if (*from != nullptr) --**from;
    if (to != nullptr) ++*to;
    *from = to;
  };
  DeviceCounters& counters = context->device->counters;
  move(&counted.state, &counters.of(state()));
  move(&counted.link, link.out == nullptr ? nullptr
                      : runs_direct()     ? &counters.links_direct
                                          : &counters.links_mediated);
}

Memory Qp::memory() const { return context->memory(); }

verbs::Gid Qp::dgid() const { return verbs::Gid::of(attributes.av.dgid); }

void Qp::choose_sender() {
  if (const auto& choose = context->device->choose_sender; choose && domain == nullptr)
    sender = choose(*this);
}

void Qp::publish(const ipc::RecvEntry& entry) {
  recv_cq->begin_telling();
  if (link.in_direct)
    ipc::publish(link.peer_outbox->ring, link.peer_outbox->depth, completed_receives(), entry);
  else
    ipc::publish(inbox, inbox_depth, inbox_head++, entry);
}

void Qp::tell(const ipc::RecvEntry& entry) {
  recv_cq->notify(qpn, is_solicited(entry));
  recv_cq->end_telling();
}

void Qp::collect_direct() {
  const auto [all, reads] = direct_count.collect(*block, DirectCount::Clock::now());
  TrafficCounters& traffic = context->device->counters.traffic;
  traffic.direct.requests += all.requests;
  traffic.direct.bytes += all.bytes;
  by_program.requests += all.requests;
  by_program.bytes += all.bytes;
  count_exchange(all, reads);
}

void Qp::note_drained() {
  if (state() != QpState::kSqd || attributes.sq_draining == 0) return;
  attributes.sq_draining = 0;
  if (attributes.en_sqd_async_notify != 0) raise(verbs::Event::kSqDrained);
  changed();
}

void Qp::settle_claim() {
  const auto srq_of_peer = std::exchange(link.claims, {}).lock();
  if (srq_of_peer == nullptr) return;
  const uint32_t slot = block->claiming.load(std::memory_order_acquire) - 1;
  if (slot >= srq_of_peer->depth) return;
  const uint64_t in_progress =
      ipc::claimed_by(link.number, ipc::head_of(*link.outbox->ring, link.outbox->depth));
  if (srq_of_peer->receives.claims->words()[slot].load() == in_progress ||
      srq_of_peer->is_half_returned(slot))
    srq_of_peer->give_back(slot);
}

namespace {
template <class Do>
void for_each_cq(const Qp& qp, Do what) {
  for (Cq* cq : {qp.send_cq, qp.recv_cq})
    if (cq != nullptr) what(*cq);
}
}  // namespace

Telling::Telling(const Qp& qp) : qp_(qp) {
  for_each_cq(qp_, [](Cq& cq) { cq.begin_telling(); });
}

Telling::~Telling() {
  for_each_cq(qp_, [](Cq& cq) { cq.end_telling(); });
}

Arrivals::Arrivals(Qp& qp) : qp_(qp), alive_(qp.alive) {
  qp.block->arriving.store(1, std::memory_order_relaxed);
}

Arrivals::~Arrivals() {
  if (!alive_.expired()) {
    const Telling both(qp_);
    qp_.block->arriving.store(0, std::memory_order_release);
    if (qp_.is_in_error()) qp_.tell_flush();
  }
  // A message that waited for one may begin to arrive at once.
  for (const auto& [srq, slot] : receives_)
    if (const auto live = srq.lock()) live->give_back(slot);
}

std::shared_ptr<Arrivals> Qp::arrival() {
  auto all = arrivals.lock();
  if (all == nullptr) arrivals = all = std::make_shared<Arrivals>(*this);
  return all;
}

void Qp::give_back(Srq& from, uint32_t slot) {
  if (const auto still = arrivals.lock())
    still->give_back_after(from, slot);
  else
    from.give_back(slot);
}

void Qp::tell_flush() {
  if (!arrivals.expired()) return;  // nothing can be polled before the last of them tells
  const bool sends =
      std::exchange(failed_send, false) || block->sq_head.load(std::memory_order_acquire) !=
                                               block->sq_tail.load(std::memory_order_relaxed);
  const bool flushes = state() == QpState::kErr && srq == nullptr &&
                       block->rq_head.load(std::memory_order_acquire) != completed_receives();
  if (sends && send_cq != nullptr) send_cq->notify(qpn, true);
  if (flushes && recv_cq != nullptr) recv_cq->notify(qpn, true);
}

void Qp::tell_failed_send() {
  if (!arrivals.expired()) return;
  if (std::exchange(failed_send, false) && send_cq != nullptr) send_cq->notify(qpn, true);
}

void Qp::fail() {
  if (state() == QpState::kErr) return;
  const Telling both(*this);
  set_state(QpState::kErr);
  context->device->fabric->cut(*this);
  if (sender) sender->link_changed();
  if (srq != nullptr) raise(verbs::Event::kQpLastWqeReached);
  tell_flush();
}

void Qp::raise(verbs::Event event) {
  if (domain == nullptr) return context->raise(event, handle);
  for (const Opener& opener : openers) opener.context->raise(event, opener.handle);
}

Context::~Context() {
  qps.each([&](Qp& qp) { destroy_qp(qp); });
  targets.each([&](Target& target) { close_target(*this, target); });
  srqs.each([&](Srq& srq) { destroy_srq(srq); });
  if (device == nullptr) return;
  if (device->fabric != nullptr) device->fabric->note_end(*this);
  device->remove(this);
}

NotDirect Context::why_not_trusted(const Context& other) const {
  if (device->tenant != other.device->tenant) return NotDirect::kTenant;
  return process->why_not_shared_with(*other.process);
}

void Context::raise(verbs::Event event, uint32_t object) {
  unsent_events.push_back({static_cast<uint32_t>(event), object});
  send_events();
}

void Context::send_events() {
  while (!parked && !unsent_events.empty() &&
         ipc::put_event(events.get(), &unsent_events.front(), sizeof(ipc::EventMessage)))
    unsent_events.pop_front();
  // A program that does not read them loses the newest.
  while (unsent_events.size() > kMostUnsentEvents) unsent_events.pop_back();
  if (!parked && !unsent_events.empty() && on_unsent_events) on_unsent_events();
}

uint32_t Context::take_key(KeyRecord::Object object) { return key_record.take(object); }

uint32_t Context::take_key(KeyRecord::Object object, uint32_t wanted) {
  return key_record.take(object, wanted) ? wanted : take_key(object);
}

void Context::set_key(uint32_t key, const Region* region) {
  if (process != nullptr && process->reach() != nullptr && key_record.find(key) != nullptr)
    process->reach()->interrupt_relays();
  key_record.set(key, region);
  write_key(keys(), key, region);
  arena->at<ipc::ArenaHeader>(0)->key_changes.fetch_add(1, std::memory_order_release);
}

Context* Context::find_exporter() const {
  if (exporter == 0) return const_cast<Context*>(this);
  for (Context* context : device->contexts)
    if (context->id == exporter) return context;
  return nullptr;
}

bool Context::resolve(uint32_t key, Region* region, Memory* owner) const {
  const Mr* mr = key_record.object(key).mr;
  if (mr == nullptr || mr->key != key || mr->origin.context == 0) return false;
  const Context* exporting = find_exporter();
  if (exporting == nullptr || exporting->id != mr->origin.context) return false;
  const Mr* origin = exporting->mrs.find(mr->origin.handle);
  if (origin == nullptr || origin->key != mr->origin.key ||
      !shares_domain(*origin, exporting->id, *mr->pd) || origin->origin.context != 0)
    return false;
  *region = origin->region;
  region->pd = mr->pd->handle;
  *owner = exporting->memory();
  return true;
}

Qp* Context::find_qp(uint32_t handle) const {
  if ((handle & ipc::kTargetHandle) == 0) return qps.find(handle);
  const Target* target = targets.find(handle & ~ipc::kTargetHandle);
  return target != nullptr ? target->qp : nullptr;
}

void Context::destroy_srq(Srq& srq) {
  if (srq.xrcd != nullptr) {
    srq.xrcd->domain->remove(srq);
    --srq.xrcd->users;
    --srq.cq->users;
  }
  --srq.pd->users;
  srqs.remove(srq.handle);
}

bool Flow::matches(const uint8_t* frame, size_t length) const {
  for (size_t i = 0; i < ipc::kFlowBytes; ++i)
    if (match.mask[i] != 0 && (i >= length || ((frame[i] ^ match.value[i]) & match.mask[i]) != 0))
      return false;
  return true;
}

void Context::destroy_qp(Qp& qp) {
  qp.collect_direct();
  qp.sender.reset();
  qp.frames.reset();
  std::erase(device->raw_qps, &qp);
  if (qp.windows > 0)
    mws.each([&](Mw& mw) {
      if (mw.qp == &qp) unbind_window(*this, mw);
    });
  device->fabric->cut(qp);
  qp.settle_claim();
  for (const auto& group : std::vector(qp.groups)) (void)device->fabric->detach(qp, group);
  device->free_qpn(qp.qpn);
  --qp.pd->users;
  --qp.send_cq->users;
  --qp.recv_cq->users;
  if (qp.srq != nullptr) --qp.srq->users;
  qps.remove(qp.handle);
}

void Context::reset_qp(Qp& qp) {
  qp.set_state(QpState::kReset);
  device->fabric->cut(qp);
  if (qp.sender) qp.sender->link_changed();
  qp.settle_claim();
  qp.attributes = {};
  qp.link = {};
  if (qp.srq == nullptr) {  // else its entries are still to be read: they name slots of the SRQ
    qp.inbox_head = 0;
    if (qp.inbox != nullptr) ipc::clear(qp.inbox, qp.inbox_depth);
  }
  qp.receiving = 0;
  qp.failed_send = false;
  qp.arrivals.reset();
  qp.alive = std::make_shared<int>(0);
  qp.changed();
  qp.block->mark.store(0, std::memory_order_relaxed);
  qp.block->inbox_direct.store(0, std::memory_order_relaxed);
  qp.block->arriving.store(0, std::memory_order_relaxed);
  qp.block->sq_head.store(0, std::memory_order_relaxed);
  qp.block->rq_head.store(0, std::memory_order_relaxed);
  qp.block->sq_tail.store(0, std::memory_order_relaxed);
  qp.block->token.store(static_cast<uint32_t>(ipc::Token::kFree), std::memory_order_release);
}

uint32_t Device::roce_mtu() const { return verbs::roce_mtu(mtu); }

uint32_t Device::take_qpn(Qp* qp) {
  const uint32_t qpn = qp_numbers->take();
  (void)add(qp, qpn);
  return qpn;
}

bool Device::take_qpn(Qp* qp, uint32_t qpn) { return qp_numbers->keep(qpn) && add(qp, qpn); }

bool Device::add(Qp* qp, uint32_t qpn) {
  if (!qps.emplace(qpn, qp).second) return false;
  qp->counted.state = &counters.of(qp->state());
  ++*qp->counted.state;
  return true;
}

void Device::free_qpn(uint32_t qpn) {
  qp_numbers->remove(qpn);
  const auto it = qps.find(qpn);
  if (it == qps.end()) return;
  const auto counted = std::exchange(it->second->counted, {});
  --*counted.state;
  if (counted.link != nullptr) --*counted.link;
  qps.erase(it);
}

void Device::add(Context* context) {
  contexts.push_back(context);
  counters.contexts = contexts.size();
}

void Device::remove(Context* context) {
  contexts.remove(context);
  counters.contexts = contexts.size();
}

bool Device::has_gid(size_t index) const {
  return index < gids.size() && !gids[index].is_unspecified();
}

Qp* Device::find_qp(uint32_t qpn) const {
  const auto it = qps.find(qpn);
  return it != qps.end() ? it->second : nullptr;
}

bool Device::owns(const verbs::Gid& gid) const {
  return !gid.is_unspecified() && std::find(gids.begin(), gids.end(), gid) != gids.end();
}

}  // namespace vrdma::rdma
