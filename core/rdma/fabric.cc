#include <algorithm>

#include "core/base/asymmetric_fence.h"
#include "core/rdma/device.h"

namespace vrdma::rdma {

using verbs::QpState;
using verbs::QpType;

namespace {

// An XRC initiator sends to a target, every other queue pair to one of its own type.
bool reaches(QpType initiator, QpType responder) {
  if (initiator == QpType::kXrcInitiator) return responder == QpType::kXrcTarget;
  return initiator == responder && initiator != QpType::kXrcTarget;
}

}  // namespace

base::Result<std::shared_ptr<Outbox>> restore_outbox(Context& initiator, uint64_t offset,
                                                     uint32_t depth) {
  auto range = initiator.heap->allocate(ipc::recv_ring_bytes(depth), offset);
  if (!range) return base::pass(std::move(range.error()));
  auto outbox = std::make_shared<Outbox>();
  outbox->range = std::move(*range);
  outbox->ring = initiator.arena->at<ipc::RecvRing>(outbox->range.offset());
  outbox->depth = depth;
  outbox->arena = initiator.arena;
  return outbox;
}

namespace {
base::Result<std::shared_ptr<Outbox>> make_outbox(Qp& initiator, uint32_t depth) {
  return restore_outbox(*initiator.context, 0, depth);  // anywhere
}
}  // namespace

void Fabric::add(Device* device) {
  device->fabric = this;
  for (const auto& gid : device->gids)
    if (!gid.is_unspecified()) devices_.emplace(gid, device);
}

void Fabric::remove(Device* device) {
  for (const auto& gid : device->gids) devices_.erase(gid);
}

void Fabric::remove_parked(Device* device) {
  remove(device);
  for (const auto& gid : device->gids)
    if (!gid.is_unspecified()) parked_.emplace(gid, device);
}

void Fabric::forget_parked(const Device* device) {
  std::erase_if(parked_, [device](const auto& entry) { return entry.second == device; });
}

size_t Fabric::set_gids(Device* device, std::vector<verbs::Gid> gids) {
  remove(device);
  device->gids = std::move(gids);
  add(device);
  std::vector<Qp*> orphaned;
  for (const auto& [qpn, qp] : device->qps)
    if (qp->state() >= QpState::kRtr && verbs::is_connected(qp->type) && !device->owns(qp->sgid))
      orphaned.push_back(qp);
  for (Qp* qp : orphaned) qp->fail();
  return orphaned.size();
}

Device* Fabric::find(const verbs::Gid& gid) const {
  const auto it = devices_.find(gid);
  return it == devices_.end() ? nullptr : it->second;
}

Qp* Fabric::find(const verbs::Gid& gid, uint32_t qpn) const {
  const Device* const device = find(gid);
  return device != nullptr ? device->find_qp(qpn) : nullptr;
}

Device* Fabric::near(const Device& device, const verbs::Gid& gid) const {
  Device* const there = find(gid);
  return there != nullptr && there->is_near(device) ? there : nullptr;
}

Qp* Fabric::named_peer(const Qp& qp) const {
  if (!verbs::is_connected(qp.type) || !qp.can_receive()) return nullptr;
  Qp* peer = find(qp.dgid(), qp.attributes.dest_qpn);
  const auto [first, last] = parked_.equal_range(qp.dgid());
  for (auto it = first; it != last && peer == nullptr; ++it)
    peer = it->second->find_qp(qp.attributes.dest_qpn);
  return peer != nullptr && (reaches(qp.type, peer->type) || reaches(peer->type, qp.type))
             ? peer
             : nullptr;
}

bool Fabric::names(const Qp& qp, const Qp& peer) const {
  return qp.can_receive() && qp.attributes.dest_qpn == peer.qpn &&
         peer.context->device->owns(qp.dgid());
}

Qp* Fabric::pair(Qp& qp) {
  Qp* peer = named_peer(qp);
  if (peer == nullptr || peer == &qp || verbs::is_xrc(qp.type)) return nullptr;
  if (!qp.context->device->is_near(*peer->context->device)) return nullptr;
  if (!qp.context->trusts(*peer->context)) return nullptr;
  for (const Qp* end : {&qp, peer})
    if (end->context->parked || end->context->device->mediated_because.lasts()) return nullptr;
  const bool paired = qp.link.outbox != nullptr && peer->link.outbox != nullptr &&
                      peer->link.peer_outbox == qp.link.outbox &&
                      qp.link.peer_outbox == peer->link.outbox;
  if (!paired) {
    // The peer learns of its side at its own RTR; if that has been, it is too late.
    if (peer->can_receive()) return nullptr;
    auto ours = make_outbox(qp, peer->inbox_depth);
    auto theirs = make_outbox(*peer, qp.inbox_depth);
    if (!ours || !theirs) return nullptr;
    qp.link.outbox = peer->link.peer_outbox = *ours;
    peer->link.outbox = qp.link.peer_outbox = *theirs;
    peer->changed();
  }
  qp.link.maps_peer = peer->context->id;
  if (peer->srq != nullptr) {
    if (++next_link_ < ipc::kFirstLink) next_link_ = ipc::kFirstLink;
    qp.link.number = next_link_;
    qp.link.claims = peer->srq->weak();
  }
  return peer;
}

NotDirect Fabric::why_mediated(const Qp& qp) const {
  const Qp* const linked = qp.link.out != nullptr ? qp.link.out : qp.link.in;
  const Qp* const peer = linked != nullptr ? linked : named_peer(qp);
  if (peer == nullptr || peer == &qp) return NotDirect::kNone;
  if (verbs::is_xrc(qp.type)) return NotDirect::kType;
  if (const NotDirect why = qp.context->why_not_trusted(*peer->context); why != NotDirect::kNone)
    return why;
  for (const Context* const of : {qp.context, peer->context}) {
    const MediatedBecause& because = of->device->mediated_because;
    if (of->parked || because.has(Mediated::kMigration)) return NotDirect::kParked;
    if (because.has(Mediated::kNotDirect)) return NotDirect::kOperator;
    if (because.has(Mediated::kRate)) return NotDirect::kRate;
    if (because.has(Mediated::kPortDown)) return NotDirect::kPortDown;
  }
  return NotDirect::kEarlier;
}

void Fabric::connect(Qp& initiator, Qp& responder) {
  if (!reaches(initiator.type, responder.type)) return;
  if (initiator.link.out_made || responder.link.in_made) return;
  for (const Qp* end : {&initiator, &responder})
    if (end->link.remote && end->sender && !end->sender->may_begin_anew()) return;
  if (initiator.attributes.sq_psn != responder.attributes.rq_psn) return;
  initiator.link.out_made = responder.link.in_made = true;
  make_link(initiator, responder);
  if (initiator.sender) initiator.sender->link_changed();
}

void Fabric::make_link(Qp& initiator, Qp& responder) {
  initiator.link.out = &responder;
  responder.link.in = &initiator;
  for (Qp* end : {&initiator, &responder})
    if (std::exchange(end->link.remote, std::nullopt)) end->choose_sender();
  initiator.link.out_direct = initiator.link.outbox != nullptr &&
                              initiator.link.outbox == responder.link.peer_outbox &&
                              initiator.link.maps_peer == responder.context->id &&
                              responder.link.maps_peer == initiator.context->id;
  if (initiator.link.out_direct) {
    responder.link.in_direct = true;
    responder.block->inbox_direct.store(1, std::memory_order_release);
  }
  initiator.changed();
  responder.changed();
  tell_link(initiator);
}

Context* Fabric::context(uint32_t id) const {
  for (const auto& [gid, device] : devices_)
    for (Context* its : device->contexts)
      if (its->id == id) return its;
  return nullptr;
}

void Fabric::note_end(const Context& context) {
  if (context.process == nullptr) return;
  auto pidfd = context.process->duplicate_pidfd();
  if (!pidfd) return;
  ended_.emplace_back(context.id, std::move(*pidfd));
  if (ended_.size() > kMostEnded) ended_.pop_front();
}

bool Fabric::has_died(uint32_t id) const {
  const Context* const living = context(id);
  const auto ended =
      std::find_if(ended_.begin(), ended_.end(), [id](const auto& one) { return one.first == id; });
  if (living != nullptr) return living->process->has_died();
  return ended != ended_.end() && !is_alive(ended->second);
}

// What a peer delivered stays until it is polled, whatever has become of its queue pair.
void Fabric::restore_pair(Qp& qp, uint64_t peer_outbox_at) {
  if (qp.link.maps_peer == 0) return;
  Context* const mapped = context(qp.link.maps_peer);
  if (mapped == nullptr || peer_outbox_at == 0 || !qp.context->trusts(*mapped)) return;
  const auto is_it = [&](const Qp& peer) {
    return peer.link.outbox != nullptr && peer.link.outbox->range.offset() == peer_outbox_at;
  };
  Qp* const named = named_peer(qp);
  if (qp.link.number != 0 && named != nullptr && named->context == mapped && named->srq != nullptr)
    qp.link.claims = named->srq->weak();
  next_link_ = std::max(next_link_, qp.link.number);
  if (named != nullptr && named->context == mapped && is_it(*named)) {
    qp.link.peer_outbox = named->link.outbox;
    // One that has not come to RTR yet learns of its peer there: see pair(). Another one may have
    // lived on, and had the one that was before.
    if (named->link.maps_peer == 0 || named->link.maps_peer == qp.context->id)
      named->link.peer_outbox = qp.link.outbox;
  } else {
    mapped->qps.each([&](const Qp& peer) {
      if (is_it(peer)) qp.link.peer_outbox = peer.link.outbox;
    });
  }
  if (qp.link.peer_outbox == nullptr)
    qp.link.peer_outbox = restore_outbox(*mapped, peer_outbox_at, qp.inbox_depth).value_or(nullptr);
}

// Of the two who wrote a link down, the dead daemon may have got only to the first.
bool Fabric::restore_link(Qp& qp, bool linked_out, bool linked_in) {
  if (qp.link.remote) {
    tell_link(qp);
    return true;
  }
  Qp* peer = named_peer(qp);
  const auto restore = [this](Qp& initiator, Qp& responder) {
    if (initiator.link.out != nullptr) return;
    initiator.link.out_made = responder.link.in_made = true;
    make_link(initiator, responder);
  };
  const bool stands = peer != nullptr && names(*peer, qp);
  if (stands && linked_out) restore(qp, *peer);
  if (stands && linked_in) restore(*peer, qp);
  if (qp.link.out == nullptr && qp.type != QpType::kXrcTarget)
    qp.block->link.store(static_cast<uint32_t>(ipc::Link::kNone), std::memory_order_release);
  return peer != nullptr || !(linked_out || linked_in);
}

bool Qp::runs_direct() const {
  if (!link.out_direct || link.out == nullptr) return false;
  for (const Context* const end : {context, link.out->context})
    if (end->parked || end->device->mediated_because.any()) return false;
  return true;
}

bool Qp::carries() const {
  if (!context->device->port_active()) return false;
  return link.out != nullptr ? link.out->context->device->port_active() : link.remote.has_value();
}

void Fabric::tell_link(Qp& initiator) {
  const auto link = initiator.runs_direct() ? ipc::Link::kDirect : ipc::Link::kMediated;
  initiator.block->link.store(static_cast<uint32_t>(link), std::memory_order_release);
  initiator.count_again();
}

// A program looks at its link before each request; the ring keeps the order.
void Fabric::mediate(Device* device, Mediated reason, bool holds) {
  if (!device->mediated_because.set(reason, holds)) return;
  for (const auto& [qpn, qp] : device->qps)
    for (Qp* initiator : {qp, qp->link.in}) {
      if (initiator == nullptr || (initiator->link.out == nullptr && !initiator->link.remote))
        continue;
      if (initiator->link.out_direct) tell_link(*initiator);
      if (reason == Mediated::kPortDown && initiator->sender) initiator->sender->port_changed();
    }
}

void Fabric::tell_links(const Context& context) {
  context.qps.each([this](Qp& qp) {
    if (qp.link.out != nullptr || qp.link.remote) tell_link(qp);
    if (qp.link.in != nullptr) tell_link(*qp.link.in);
  });
}

void Fabric::relink(Qp& qp) {
  Qp* peer = named_peer(qp);
  if (peer == nullptr || !names(*peer, qp)) return;
  // What was begun in memory is brought to its end there.
  const bool begun = qp.link.out != nullptr || qp.link.in != nullptr;
  if (!begun && !qp.context->device->is_near(*peer->context->device)) return;
  if (qp.can_send() && qp.link.out == nullptr) connect(qp, *peer);
  if (peer != &qp && peer->can_send() && peer->link.out == nullptr) connect(*peer, qp);
}

void Fabric::cut_out(Qp& qp) {
  if (qp.link.out == nullptr) return;
  if (qp.link.out_direct && qp.context != nullptr) qp.collect_direct();
  Qp* responder = std::exchange(qp.link.out, nullptr);
  responder->link.in = nullptr;
  qp.count_again();
  responder->changed();
  qp.changed();
  qp.block->link.store(static_cast<uint32_t>(ipc::Link::kNone), std::memory_order_release);
  // After this, an initiator that executes by itself is either marked busy or sees that the link
  // has gone (pairs with AsymmetricFence::light in client/verbs/direct.cc).
  if (qp.link.out_direct) base::AsymmetricFence::heavy();
  if (qp.sender) qp.sender->link_changed();
}

void Fabric::cut(Qp& qp) {
  if (std::exchange(qp.link.remote, std::nullopt)) {
    qp.changed();
    qp.block->link.store(static_cast<uint32_t>(ipc::Link::kNone), std::memory_order_release);
    if (qp.sender) qp.sender->link_changed();
  }
  cut_out(qp);
  if (qp.link.in != nullptr) cut_out(*qp.link.in);
}

bool Fabric::move_to(Qp& qp, const RemoteEnd& end) {
  if (qp.sender && !qp.sender->may_begin_anew()) return false;
  Qp* const peer = qp.link.out != nullptr ? qp.link.out : qp.link.in;
  cut(qp);
  for (Qp* end_of_local : {&qp, peer})
    if (end_of_local != nullptr) end_of_local->link.out_made = end_of_local->link.in_made = false;
  qp.link.remote = end;
  qp.choose_sender();
  qp.changed();
  tell_link(qp);
  if (qp.sender) qp.sender->link_changed();
  return true;
}

base::Result<void> Fabric::attach(Qp& qp, const verbs::Gid& group) {
  if (std::find(qp.groups.begin(), qp.groups.end(), group) != qp.groups.end()) return {};
  qp.groups.push_back(group);
  groups_[group].push_back(&qp);
  qp.changed();
  Device& device = *qp.context->device;
  if (++device.groups[group] == 1 && device.on_group) device.on_group(group, true);
  return {};
}

base::Result<void> Fabric::detach(Qp& qp, const verbs::Gid& group) {
  const auto mine = std::find(qp.groups.begin(), qp.groups.end(), group);
  if (mine == qp.groups.end())
    return base::fail(EINVAL, "the queue pair is not attached to the multicast group");
  qp.groups.erase(mine);
  qp.changed();
  auto& members = groups_[group];
  std::erase(members, &qp);
  if (members.empty()) groups_.erase(group);
  Device& device = *qp.context->device;
  const auto of_device = device.groups.find(group);
  if (--of_device->second > 0) return {};
  device.groups.erase(of_device);
  if (device.on_group) device.on_group(group, false);
  return {};
}

const std::vector<Qp*>* Fabric::members(const verbs::Gid& group) const {
  const auto it = groups_.find(group);
  return it == groups_.end() ? nullptr : &it->second;
}

}  // namespace vrdma::rdma
