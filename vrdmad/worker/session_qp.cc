// Queue pairs of a session.
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/rdma/qp_state.h"
#include "core/rdma/xrc.h"
#include "transport/raw/packet.h"
#include "transport/shm/datagram.h"
#include "vrdmad/worker/session_objects.h"

namespace vrdma::vrdmad {

using base::Fd;
using provisioning::Kind;
using verbs::QpState;
using verbs::QpType;

namespace {

// What peers may do by way of the queue pair. IBTA 10.2.8: a responder without resources for READ
// and atomics refuses them.
uint32_t effective_access(const rdma::Qp& qp) {
  uint32_t access = qp.attributes.access_flags;
  if (!verbs::is_reliable(qp.type)) access &= verbs::kRemoteWrite;
  if (qp.attributes.max_dest_rd_atomic == 0)
    access &= ~static_cast<uint32_t>(verbs::kRemoteRead | verbs::kRemoteAtomic);
  return access;
}

uint64_t aligned(uint64_t size) { return (size + 63) / 64 * 64; }

}  // namespace

int SessionObjects::create_qp(const ipc::CreateQpRequest& request, Fds fds, Answer* answer) {
  if (const int error = make_qp(request, std::move(fds), answer); error != 0) return error;
  if (request.init_mask == 0 || forced_ != nullptr) return 0;  // it is as it was
  ipc::ModifyQpRequest init{};
  init.handle = answer->reply.create_qp.handle;
  init.mask = request.init_mask;
  init.attributes = request.init;
  Answer moved;
  const int error = init.attributes.state == static_cast<uint32_t>(QpState::kInit)
                        ? modify_qp(init, &moved)
                        : EINVAL;
  if (error != 0) (void)destroy_qp(init.handle);
  return error;
}

int SessionObjects::make_qp(const ipc::CreateQpRequest& request, Fds fds, Answer* answer) {
  const auto type = static_cast<QpType>(request.type);
  if (request.type > UINT8_MAX) return EOPNOTSUPP;  // what the cast would cut off
  if (forced_ == nullptr && !vdevice_->device.qp_numbers->has_room()) return ENOMEM;
  if (type == QpType::kXrcTarget) return create_target(request, answer);
  if (type != QpType::kRc && type != QpType::kUc && type != QpType::kUd && type != QpType::kGsi &&
      type != QpType::kRawPacket && type != QpType::kXrcInitiator)
    return EOPNOTSUPP;
  const bool raw = type == QpType::kRawPacket || type == QpType::kGsi;
  if (raw && request.srq != ipc::kNoObject) return EOPNOTSUPP;
  Fd packets;
  if (type == QpType::kRawPacket) {
    auto socket = packet_socket(std::move(fds));
    if (!socket) return socket.error().code();
    packets = std::move(*socket);
  }
  rdma::Context& context = *context_;
  rdma::Pd* pd = context.pds.find(request.pd);
  rdma::Cq* send_cq = context.cqs.find(request.send_cq);
  rdma::Cq* recv_cq = context.cqs.find(request.recv_cq);
  rdma::Srq* srq = request.srq != ipc::kNoObject ? context.srqs.find(request.srq) : nullptr;
  if (pd == nullptr || send_cq == nullptr || recv_cq == nullptr ||
      (request.srq != ipc::kNoObject && srq == nullptr))
    return EINVAL;
  if (srq != nullptr && (type == QpType::kXrcInitiator || srq->xrcd != nullptr)) return EINVAL;
  const verbs::Capabilities& can = vdevice_->device.capabilities;
  if (request.max_send_wr > ipc::kMaxQueueDepth || request.max_recv_wr > ipc::kMaxQueueDepth ||
      request.max_send_sge > can.max_sge || request.max_recv_sge > can.max_sge ||
      request.max_inline > can.max_inline)
    return EINVAL;
  if (context.qps.count() >= ipc::kMaxQpSlots) return ENOMEM;

  auto qp = std::make_unique<rdma::Qp>();
  if (const int error = charge(Kind::kQp, 1, &qp->charges); error != 0) return error;
  if (const int error = charge(Kind::kSendWr, request.max_send_wr, &qp->charges); error != 0)
    return error;
  if (const int error = charge(Kind::kRecvWr, request.max_recv_wr, &qp->charges); error != 0)
    return error;
  qp->type = type;
  qp->pd = pd;
  qp->send_cq = send_cq;
  qp->recv_cq = recv_cq;
  qp->srq = srq;
  qp->context = &context;
  qp->max_send_sge = std::max(request.max_send_sge, 1u);
  qp->max_recv_sge = std::max(request.max_recv_sge, 1u);
  qp->send_stride = ipc::send_stride(qp->max_send_sge, request.max_inline);
  // As adapters do: what of an entry is free anyway. Some programs count on that.
  constexpr uint32_t kHeader = sizeof(ipc::SendWqe);
  qp->max_inline = std::min(qp->send_stride - kHeader, can.max_inline);
  qp->sq_depth = std::bit_ceil(std::max(request.max_send_wr, 1u));
  qp->rq_depth = srq != nullptr ? 1 : std::bit_ceil(std::max(request.max_recv_wr, 1u));
  qp->inbox_depth = srq != nullptr ? srq->depth : qp->rq_depth;

  const uint64_t results = sizeof(ipc::QpBlock);
  const uint64_t inbox = results + aligned(uint64_t{qp->sq_depth} * sizeof(ipc::SendResult));
  const uint64_t sq = inbox + aligned(ipc::recv_ring_bytes(qp->inbox_depth));
  const uint64_t rq = sq + uint64_t{qp->sq_depth} * qp->send_stride;
  const uint64_t end = rq + uint64_t{qp->rq_depth} * ipc::recv_stride(qp->max_recv_sge);
  auto range = context.heap->allocate(end, forced_ != nullptr ? forced_->create_qp.block : 0);
  if (!range) return range.error().code();
  const uint64_t at = range->offset();
  qp->range = std::move(*range);
  qp->block_offset = at;
  qp->rq_offset = at + rq;
  qp->block = context.arena->at<ipc::QpBlock>(at);
  qp->results = context.arena->at<ipc::SendResult>(at + results);
  qp->inbox = context.arena->at<ipc::RecvRing>(at + inbox);
  qp->sq = context.arena->bytes() + at + sq;
  qp->direct_count.begin(*qp->block, rdma::DirectCount::Clock::now());
  qp->receives = {&qp->block->rq_head, context.arena->bytes() + at + rq, qp->rq_depth,
                  qp->max_recv_sge};

  if (type == QpType::kRawPacket) {
    auto port = std::make_unique<transport::PacketPort>(
        *qp, loop(), std::move(packets), context.device->ifindex,
        [account = vdevice_->intake](base::Fd socket) {
          if (account->intake() != nullptr) account->intake()->close(account, std::move(socket));
        });
    qp->sender = std::make_unique<transport::PacketSender>(*qp, vdevice_->lane, *port);
    qp->frames = std::move(port);
  } else if (type == QpType::kGsi) {
    if (const int error = give_gsi(*qp); error != 0) return error;
  } else if (type == QpType::kUd) {
    qp->sender = std::make_unique<transport::DatagramSender>(
        *qp, vdevice_->lane,
        [its = vdevice_.get()](const rdma::Qp& from, const rdma::WorkRequest& datagram,
                               const transport::NetworkHeader& way,
                               std::span<const uint8_t> payload) {
          if (!its->is_peer(way.destination)) return false;
          its->network->send_datagram(from, datagram, way, payload);
          return true;
        });
  }
  ++pd->users;
  ++send_cq->users;
  ++recv_cq->users;
  if (srq != nullptr) ++srq->users;
  rdma::Qp* made = context.qps.add(std::move(qp), wanted());
  if (made->qpn != 0) {
    // Queue pair 1 is not the device's own.
  } else if (forced_ == nullptr) {
    made->qpn = context.device->take_qpn(made);
  } else if (context.device->take_qpn(made, forced_->create_qp.qpn)) {
    made->qpn = forced_->create_qp.qpn;
  }
  if (made->frames != nullptr) context.device->raw_qps.push_back(made);
  if (forced_ == nullptr) made->set_state(QpState::kReset);

  auto& reply = answer->reply.create_qp;
  reply.handle = made->handle;
  reply.qpn = made->qpn;
  reply.slot = made->handle - 1;
  reply.max_send_wr = std::max(request.max_send_wr, 1u);
  reply.max_recv_wr = srq != nullptr ? 0 : request.max_recv_wr;
  reply.max_send_sge = made->max_send_sge;
  reply.max_recv_sge = made->max_recv_sge;
  reply.max_inline = made->max_inline;
  reply.sq_depth = made->sq_depth;
  reply.rq_depth = made->rq_depth;
  reply.inbox_depth = made->inbox_depth;
  reply.block = at;
  reply.results = at + results;
  reply.inbox = at + inbox;
  reply.sq = at + sq;
  reply.rq = at + rq;
  return 0;
}

void SessionObjects::restore_access(const rdma::Qp& qp) {
  qp.block->access.store(effective_access(qp), std::memory_order_relaxed);
}

int SessionObjects::modify_qp(const ipc::ModifyQpRequest& request, Answer* answer) {
  rdma::Qp* qp = context_->find_qp(request.handle);
  if (qp == nullptr) return EINVAL;
  const auto& wanted = request.attributes;
  const QpState from = qp->state();
  const auto to = (request.mask & verbs::kQpState) != 0 ? static_cast<QpState>(wanted.state) : from;
  if (!rdma::modify_is_legal(qp->type, from, to, request.mask)) return EINVAL;
  if ((request.mask & verbs::kQpCurState) != 0 && static_cast<QpState>(request.cur_state) != from)
    return EINVAL;
  const bool goes_on = request.rts_mask != 0;
  if (goes_on && (to != QpState::kRtr ||
                  !rdma::modify_is_legal(qp->type, to, QpState::kRts, request.rts_mask)))
    return EINVAL;
  // All of it is checked before any of it is done.
  if (!are_valid(wanted, request.mask | request.rts_mask)) return EINVAL;
  if (const int error = change_qp(*qp, to, request.mask, request, answer); error != 0) return error;
  if (goes_on)
    if (const int error = change_qp(*qp, QpState::kRts, request.rts_mask, request, answer);
        error != 0)
      return error;
  if (to == QpState::kRtr && vdevice_->reaches_network) answer_when_open(answer);
  return 0;
}

// A peer on another host may send as soon as the program knows that it is ready to receive.
void SessionObjects::answer_when_open(Answer* answer) {
  if (!answer->fds.empty()) return;  // the peer is on this host
  answer->deferred =
      vdevice_->network->when_open([this, reply = answer->reply, alive = std::weak_ptr(alive_)] {
        if (alive.expired()) return;
        Answer late;
        late.reply = reply;
        owner_.answer(std::move(late));
      });
}

// What may be done from where it leads to is done once more: the dead daemon may have died within.
bool SessionObjects::modify_again(const ipc::ModifyQpRequest& request, const ipc::Reply* answered,
                                  Answer* answer) {
  rdma::Qp* qp = context_->find_qp(request.handle);
  if (qp == nullptr) return false;
  const QpState now = qp->state();
  const auto to =
      (request.mask & verbs::kQpState) != 0 ? static_cast<QpState>(request.attributes.state) : now;
  const bool goes_on = request.rts_mask != 0;
  if (!goes_on && rdma::modify_is_legal(qp->type, now, to, request.mask)) return false;
  auto& reply = answer->reply.modify_qp;
  if (answered != nullptr) {
    answer->reply = *answered;
  } else {
    if (goes_on && to == QpState::kRtr && now == to) {  // it is half done
      // The request is the program's, and checked like any other.
      if (!rdma::modify_is_legal(qp->type, to, QpState::kRts, request.rts_mask) ||
          !are_valid(request.attributes, request.mask | request.rts_mask))
        return false;
      answer->reply.error = change_qp(*qp, QpState::kRts, request.rts_mask, request, answer);
    } else if (now != (goes_on ? QpState::kRts : to)) {
      return false;
    }
    reply.state = qp->attributes.state;
    reply.direct = to == QpState::kRtr && qp->link.outbox != nullptr ? 1 : 0;
  }
  if (reply.direct == 0) return true;
  reply.direct = 0;
  if (rdma::Qp* peer = context_->device->fabric->pair(*qp); peer != nullptr)
    answer->reply.error = tell_direct(*qp, *peer, request, answer);
  return true;
}

bool SessionObjects::are_valid(const verbs::QpAttributes& wanted, uint32_t mask) const {
  const auto has = [&](verbs::QpAttrMask bit) { return (mask & bit) != 0; };
  if (has(verbs::kQpPort) && wanted.port_num != 1) return false;
  if (has(verbs::kQpPkeyIndex) && wanted.pkey_index != 0) return false;
  if (has(verbs::kQpPathMtu) && (wanted.path_mtu < 1 || wanted.path_mtu > 5)) return false;
  if (has(verbs::kQpTimeout) && wanted.timeout > 31) return false;
  if (has(verbs::kQpRetryCnt) && wanted.retry_cnt > 7) return false;
  if (has(verbs::kQpRnrRetry) && wanted.rnr_retry > 7) return false;
  if (has(verbs::kQpMinRnrTimer) && wanted.min_rnr_timer > 31) return false;
  if (has(verbs::kQpAv) &&
      (wanted.av.is_global == 0 || !vdevice_->device.has_gid(wanted.av.sgid_index)))
    return false;
  if (has(verbs::kQpAv) && wanted.av.port_num != 1) return false;
  const uint32_t most_rd_atomic = vdevice_->device.capabilities.max_rd_atomic;
  if (has(verbs::kQpMaxQpRdAtomic) && wanted.max_rd_atomic > most_rd_atomic) return false;
  if (has(verbs::kQpMaxDestRdAtomic) && wanted.max_dest_rd_atomic > most_rd_atomic) return false;
  // There are no alternate paths (IBV_DEVICE_AUTO_PATH_MIG), so a path is always migrated.
  if (has(verbs::kQpAltPath)) return false;
  if (has(verbs::kQpPathMigState) && wanted.path_mig_state != 0) return false;
  return true;
}

// A change that has been checked.
int SessionObjects::change_qp(rdma::Qp& changed, QpState to, uint32_t mask,
                              const ipc::ModifyQpRequest& request, Answer* answer) {
  rdma::Qp* const qp = &changed;
  const auto& wanted = request.attributes;
  const auto has = [&](verbs::QpAttrMask bit) { return (mask & bit) != 0; };
  const QpState from = qp->state();
  auto& now = qp->attributes;
  const verbs::QpAttributes before = now;
  const verbs::Gid sgid_before = qp->sgid;
  const bool drains = to == QpState::kSqd && from == QpState::kRts;
  if (has(verbs::kQpAccessFlags)) now.access_flags = wanted.access_flags;
  if (has(verbs::kQpPkeyIndex)) now.pkey_index = wanted.pkey_index;
  if (has(verbs::kQpPort)) now.port_num = wanted.port_num;
  if (has(verbs::kQpQkey)) now.qkey = wanted.qkey;
  if (has(verbs::kQpPathMtu)) now.path_mtu = wanted.path_mtu;
  if (has(verbs::kQpTimeout)) now.timeout = wanted.timeout;
  if (has(verbs::kQpRetryCnt)) now.retry_cnt = wanted.retry_cnt;
  if (has(verbs::kQpRnrRetry)) now.rnr_retry = wanted.rnr_retry;
  if (has(verbs::kQpRqPsn)) now.rq_psn = wanted.rq_psn & verbs::kPsnMask;
  if (has(verbs::kQpSqPsn)) now.sq_psn = wanted.sq_psn & verbs::kPsnMask;
  if (has(verbs::kQpMaxQpRdAtomic)) now.max_rd_atomic = wanted.max_rd_atomic;
  if (has(verbs::kQpMaxDestRdAtomic)) now.max_dest_rd_atomic = wanted.max_dest_rd_atomic;
  if (has(verbs::kQpMinRnrTimer)) now.min_rnr_timer = wanted.min_rnr_timer;
  if (has(verbs::kQpDestQpn)) now.dest_qpn = wanted.dest_qpn & verbs::kQpnMask;
  if (has(verbs::kQpAv)) {
    now.av = wanted.av;
    qp->sgid = vdevice_->device.gids[wanted.av.sgid_index];
  }
  qp->block->access.store(effective_access(*qp), std::memory_order_relaxed);
  const auto refuse = [&](int error) {
    now = before;
    qp->set_state(from);
    qp->sgid = sgid_before;
    qp->block->access.store(effective_access(*qp), std::memory_order_relaxed);
    return error;
  };
  // In SQD the program may name another address of the peer.
  if (qp->link.remote && has(verbs::kQpAv) && !vdevice_->is_peer(qp->dgid())) return refuse(EINVAL);

  switch (to) {
    case QpState::kReset:
      context_->reset_qp(*qp);
      break;
    case QpState::kErr:
      qp->fail();
      break;
    default:
      if (drains) {
        now.en_sqd_async_notify = has(verbs::kQpEnSqdAsyncNotify) ? wanted.en_sqd_async_notify : 0;
        now.sq_draining = 1;
      }
      qp->set_state(to);
      if (from == QpState::kInit && to == QpState::kRtr)
        if (const int error = to_rtr(*qp, request, answer); error != 0) return refuse(error);
      if (drains) {
        // What was begun is brought to its end, as if nothing had changed.
        if (!qp->sender || qp->sender->drained()) qp->note_drained();
        break;
      }
      if (to != QpState::kSqd) now.sq_draining = 0;
      if (qp->link.remote && has(verbs::kQpSqPsn)) qp->link.remote->sq_psn = now.sq_psn;
      context_->device->fabric->relink(*qp);
      if (qp->sender) qp->sender->attributes_changed();  // relink() has told it of a new link
  }
  answer->reply.modify_qp.state = qp->attributes.state;
  if (to == QpState::kReset || to == QpState::kErr) answer_when_unreached(answer);
  return 0;
}

// Chooses who executes its requests, and tells the program what it needs to do so by itself, if the
// peer is one that trusts it.
int SessionObjects::to_rtr(rdma::Qp& qp, const ipc::ModifyQpRequest& request, Answer* answer) {
  rdma::Fabric& fabric = *context_->device->fabric;
  rdma::Qp* peer = fabric.pair(qp);
  const verbs::QpAttributes& its = qp.attributes;
  vdevice_->receive_datagrams(qp);
  const bool beyond = vdevice_->is_beyond(qp);
  if (beyond && verbs::is_xrc(qp.type)) return EOPNOTSUPP;  // packets of XRC are not carried
  if (beyond)
    (void)fabric.move_to(qp, {qp.dgid(), its.dest_qpn, its.sq_psn, its.rq_psn});
  else if (verbs::is_connected(qp.type))
    qp.choose_sender();
  return peer != nullptr ? tell_direct(qp, *peer, request, answer) : 0;
}

int SessionObjects::tell_direct(rdma::Qp& qp, rdma::Qp& peer_qp,
                                const ipc::ModifyQpRequest& request, Answer* answer) {
  rdma::Qp* const peer = &peer_qp;
  const rdma::Context& theirs = *peer->context;
  auto& reply = answer->reply.modify_qp;
  reply.peer = theirs.id;
  reply.known = std::find(std::begin(request.known_peers), std::end(request.known_peers),
                          theirs.id) != std::end(request.known_peers)
                    ? 1
                    : 0;
  if (reply.known == 0)
    answer->fds = {theirs.arena_read_only.get(), theirs.bell_fd.get(),
                   theirs.process->space()->arena().get()};
  reply.direct = 1;
  reply.peer_recv_cq = peer->recv_cq->slot;
  reply.peer_pd = peer->pd->handle;
  reply.peer_max_recv_sge = peer->max_recv_sge;
  reply.peer_rq_depth = peer->inbox_depth;
  reply.peer_receive_pd = peer->receive_pd().handle;
  reply.peer_block = peer->block_offset;
  reply.peer_rq = peer->rq_offset;
  if (peer->srq != nullptr) {
    reply.link = qp.link.number;
    reply.peer_max_recv_sge = peer->srq->max_sge;
    reply.peer_srq = peer->srq->range.offset();
    reply.peer_claims = peer->srq->claims_range.offset();
  }
  reply.outbox = qp.link.outbox->range.offset();
  reply.peer_outbox = qp.link.peer_outbox->range.offset();
  if (peer->recv_cq->channel == nullptr) return 0;
  reply.has_wake = 1;
  answer->fds.push_back(peer->recv_cq->channel->write_end.get());
  return 0;
}

int SessionObjects::query_qp(uint32_t handle, Answer* answer) {
  const rdma::Qp* qp = context_->find_qp(handle);
  if (qp == nullptr) return EINVAL;
  answer->reply.query_qp.attributes = qp->attributes;
  return 0;
}

int SessionObjects::destroy_qp(uint32_t handle) {
  if ((handle & ipc::kTargetHandle) != 0) {
    rdma::Target* target = context_->targets.find(handle & ~ipc::kTargetHandle);
    if (target == nullptr) return EINVAL;
    rdma::close_target(*context_, *target);
    return 0;
  }
  rdma::Qp* qp = context_->qps.find(handle);
  if (qp == nullptr) return EINVAL;
  if (!qp->flows.empty() || !qp->groups.empty()) return EBUSY;
  context_->destroy_qp(*qp);
  return 0;
}

int SessionObjects::mcast(const ipc::McastRequest& request, bool attach, Answer* answer) {
  rdma::Qp* qp = context_->qps.find(request.qp);
  verbs::Gid group;
  std::memcpy(group.bytes.data(), request.gid, group.bytes.size());
  if (qp == nullptr || qp->type != QpType::kUd || !group.is_multicast()) return EINVAL;
  constexpr size_t kMaxGroups = 1024;
  if (attach && qp->groups.size() >= kMaxGroups) return ENOMEM;
  const bool on_network = attach && vdevice_->is_peer(group);
  if (on_network && !vdevice_->network->may_join(group)) return ENOMEM;
  rdma::Fabric& fabric = *context_->device->fabric;
  const auto result = attach ? fabric.attach(*qp, group) : fabric.detach(*qp, group);
  if (!result) return result.error().code();
  if (on_network) answer_when_open(answer);
  return 0;
}

}  // namespace vrdma::vrdmad
