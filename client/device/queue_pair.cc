// Creating, modifying, querying and destroying queue pairs.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "client/device/objects.h"
#include "client/verbs/events.h"
#include "client/verbs/shortcuts.h"
#include "client/verbs/virtual.h"
#include "core/ipc/bell.h"

namespace vrdma::client {

namespace {

verbs::AddressVector to_vector(const ibv_ah_attr& attr) {
  verbs::AddressVector av{};
  std::memcpy(av.dgid, attr.grh.dgid.raw, sizeof av.dgid);
  av.flow_label = attr.grh.flow_label;
  av.sgid_index = attr.grh.sgid_index;
  av.hop_limit = attr.grh.hop_limit;
  av.traffic_class = attr.grh.traffic_class;
  av.sl = attr.sl;
  av.is_global = attr.is_global;
  av.port_num = attr.port_num;
  av.dlid = attr.dlid;
  av.static_rate = attr.static_rate;
  av.src_path_bits = attr.src_path_bits;
  return av;
}

ibv_ah_attr from_vector(const verbs::AddressVector& av) {
  ibv_ah_attr attr{};
  std::memcpy(attr.grh.dgid.raw, av.dgid, sizeof av.dgid);
  attr.grh.flow_label = av.flow_label;
  attr.grh.sgid_index = av.sgid_index;
  attr.grh.hop_limit = av.hop_limit;
  attr.grh.traffic_class = av.traffic_class;
  attr.sl = av.sl;
  attr.is_global = av.is_global;
  attr.port_num = av.port_num;
  attr.dlid = av.dlid;
  attr.static_rate = av.static_rate;
  attr.src_path_bits = av.src_path_bits;
  return attr;
}

// No poll returns completions of the queue pair after this.
void leave_completion_queues(Qp* qp) {
  if (qp->send_cq() == nullptr) return;
  {
    const std::lock_guard lock(qp->send_cq()->mutex);
    qp->send_cq()->leave(qp);
  }
  if (qp->recv_cq() == qp->send_cq()) return;
  const std::lock_guard lock(qp->recv_cq()->mutex);
  qp->recv_cq()->leave(qp);
}

void join_completion_queues(Qp* qp) {
  if (qp->send_cq() == nullptr) return;
  {
    const std::lock_guard lock(qp->send_cq()->mutex);
    qp->send_cq()->join(qp);
  }
  if (qp->recv_cq() == qp->send_cq()) return;
  const std::lock_guard lock(qp->recv_cq()->mutex);
  qp->recv_cq()->join(qp);
}

// The state of a new or reset queue pair.
void start_over(Qp* qp) {
  qp->sq_head = qp->rq_head = 0;
  qp->polled = qp->rq_polled = 0;
  qp->sends_due = qp->receives_due = qp->waited_for = 0;
  qp->from_peer = {};
  if (qp->ibv.qp_base.srq == nullptr) qp->inbox.rewind();
  qp->owns_token = false;
  qp->direct = nullptr;
  qp->own = Qp::Own::kNothing;
  qp->may_read = false;
}

// Peers whose descriptors the daemon need not send again. Keeps them alive.
struct KnownPeers {
  explicit KnownPeers(Context& context) {
    const std::lock_guard lock(context.mutex);
    for (const auto& [id, weak] : context.peers)
      if (count < ipc::kKnownPeers && (peers[count] = weak.lock()) != nullptr) ids[count++] = id;
  }
  std::array<uint32_t, ipc::kKnownPeers> ids{};
  std::array<std::shared_ptr<Peer>, ipc::kKnownPeers> peers;
  size_t count = 0;
};

// Descriptors in the reply to RTR: first those of a peer that this process does not know yet, then
// the one that wakes it.
size_t peers_descriptors(const ipc::ModifyQpReply& reply) { return reply.known != 0 ? 0 : 3; }
size_t descriptors_of(const ipc::ModifyQpReply& reply) {
  return peers_descriptors(reply) + (reply.has_wake != 0 ? 1 : 0);
}

// Maps the link's memory. All descriptors must be present. nullptr: no address space.
std::unique_ptr<Direct> make_direct(Context& context, uint32_t peer_qpn,
                                    const ipc::ModifyQpReply& reply, std::vector<base::Fd> fds) {
  const size_t shown = peers_descriptors(reply);
  std::shared_ptr<Peer> peer;
  {
    const std::lock_guard lock(context.mutex);
    peer = context.peers[reply.peer].lock();
    if (peer == nullptr) {
      if (shown == 0) return nullptr;
      auto arena = base::Mapping::shared(fds[0], ipc::kQueueArenaSize, 0, PROT_READ);
      auto bells = base::Mapping::shared(fds[1], ipc::kBellFileSize, 0, PROT_READ | PROT_WRITE);
      auto memory = rdma::AddressSpace::of_arena(std::move(fds[2]));
      if (!arena || !bells || !memory) return nullptr;
      peer = std::make_shared<Peer>();
      peer->id = reply.peer;
      peer->arena = std::move(*arena);
      peer->bells = std::move(*bells);
      peer->memory = std::move(*memory);
      std::erase_if(context.peers, [](const auto& entry) { return entry.second.expired(); });
      context.peers[reply.peer] = peer;
    }
  }
  auto direct = std::make_unique<Direct>();
  direct->block = peer->arena.at<ipc::QpBlock>(reply.peer_block);
  direct->responder.memory = {rdma::Keys(peer->arena.at<ipc::KeyEntry>(ipc::kKeyOffset)),
                              peer->memory.get()};
  direct->responder.memory.keys.remember(&direct->known_remote);
  direct->responder.pd = reply.peer_pd;
  direct->responder.qpn = peer_qpn;
  direct->responder.receive_pd = reply.peer_receive_pd;
  if (reply.peer_srq != 0)
    direct->shared = rdma::SharedReceives::at(peer->arena.at<ipc::SrqBlock>(reply.peer_srq),
                                              peer->bells.at<ipc::SrqClaims>(reply.peer_claims),
                                              reply.peer_rq_depth, reply.peer_max_recv_sge);
  else
    direct->responder.receives = {&direct->block->rq_head, peer->arena.at<uint8_t>(reply.peer_rq),
                                  reply.peer_rq_depth, reply.peer_max_recv_sge};
  direct->link = reply.link;
  direct->outbox = context.arena.at<ipc::RecvRing>(reply.outbox);
  direct->outbox_depth = reply.peer_rq_depth;
  direct->bell = peer->bells.at<ipc::CqBell>(uint64_t{reply.peer_recv_cq} * sizeof(ipc::CqBell));
  direct->bell_slot = reply.peer_recv_cq;
  if (reply.has_wake != 0) direct->wake = std::move(fds[shown]);
  direct->peer = std::move(peer);
  return direct;
}

}  // namespace

namespace {

// Only what `mask` names: the program has not set the rest.
verbs::QpAttributes to_attributes(const ibv_qp_attr& attr, int mask) {
  verbs::QpAttributes to{};
  const auto copy = [mask](int bit, auto* value, const auto& given) {
    if ((mask & bit) != 0) *value = static_cast<std::remove_pointer_t<decltype(value)>>(given);
  };
  copy(IBV_QP_STATE, &to.state, attr.qp_state);
  copy(IBV_QP_PATH_MTU, &to.path_mtu, attr.path_mtu);
  copy(IBV_QP_QKEY, &to.qkey, attr.qkey);
  copy(IBV_QP_RQ_PSN, &to.rq_psn, attr.rq_psn);
  copy(IBV_QP_SQ_PSN, &to.sq_psn, attr.sq_psn);
  copy(IBV_QP_DEST_QPN, &to.dest_qpn, attr.dest_qp_num);
  copy(IBV_QP_ACCESS_FLAGS, &to.access_flags, attr.qp_access_flags);
  if ((mask & IBV_QP_AV) != 0) to.av = to_vector(attr.ah_attr);
  copy(IBV_QP_PKEY_INDEX, &to.pkey_index, attr.pkey_index);
  copy(IBV_QP_MAX_QP_RD_ATOMIC, &to.max_rd_atomic, attr.max_rd_atomic);
  copy(IBV_QP_MAX_DEST_RD_ATOMIC, &to.max_dest_rd_atomic, attr.max_dest_rd_atomic);
  copy(IBV_QP_MIN_RNR_TIMER, &to.min_rnr_timer, attr.min_rnr_timer);
  copy(IBV_QP_PORT, &to.port_num, attr.port_num);
  copy(IBV_QP_TIMEOUT, &to.timeout, attr.timeout);
  copy(IBV_QP_RETRY_CNT, &to.retry_cnt, attr.retry_cnt);
  copy(IBV_QP_RNR_RETRY, &to.rnr_retry, attr.rnr_retry);
  copy(IBV_QP_EN_SQD_ASYNC_NOTIFY, &to.en_sqd_async_notify, attr.en_sqd_async_notify);
  copy(IBV_QP_PATH_MIG_STATE, &to.path_mig_state, attr.path_mig_state);
  return to;
}

// `init`: attributes of an immediate change to INIT, or nullptr.
ibv_qp* create(ibv_context* ibv, ibv_qp_init_attr_ex* attr, const ibv_qp_attr* init,
               int init_mask) {
  Context& context = *Context::of(ibv);
  const auto asks = [&](ibv_qp_init_attr_mask bit) { return (attr->comp_mask & bit) != 0; };
  constexpr uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                              IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
                              IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  auto qp = std::make_unique<Qp>();
  if ((attr->comp_mask & ~kKnown) != 0 ||
      (asks(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags != 0) ||
      (asks(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && attr->max_tso_header != 0) ||
      (asks(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
       !set_extended_ops(*qp, attr->qp_type, attr->send_ops_flags))) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (attr->qp_type == IBV_QPT_XRC_RECV) return create_target(ibv, *attr);
  if (!asks(IBV_QP_INIT_ATTR_PD) || attr->pd == nullptr || attr->send_cq == nullptr ||
      (attr->recv_cq == nullptr && attr->qp_type != IBV_QPT_XRC_SEND)) {
    errno = EINVAL;
    return nullptr;
  }
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kCreateQp;
  auto& wanted = request.create_qp;
  wanted.pd = attr->pd->handle;
  wanted.send_cq = Cq::of(attr->send_cq)->handle;
  wanted.recv_cq = Cq::of(attr->recv_cq != nullptr ? attr->recv_cq : attr->send_cq)->handle;
  wanted.srq = attr->srq != nullptr ? Srq::of(attr->srq)->handle : ipc::kNoObject;
  wanted.type = attr->qp_type;
  wanted.max_send_wr = attr->cap.max_send_wr;
  wanted.max_send_sge = attr->cap.max_send_sge;
  // Else ignored, whatever they are (ibv_create_qp(3); create_qp in uverbs_cmd.c).
  if (attr->srq == nullptr && attr->qp_type != IBV_QPT_XRC_SEND) {
    wanted.max_recv_wr = attr->cap.max_recv_wr;
    wanted.max_recv_sge = attr->cap.max_recv_sge;
  }
  wanted.max_inline = attr->cap.max_inline_data;
  if (init != nullptr) {
    wanted.init_mask = static_cast<uint32_t>(init_mask);
    wanted.init = to_attributes(*init, init_mask);
  }
  // The kernel permits this socket with CAP_NET_RAW. It proves the right to the daemon, which
  // refuses without it.
  base::Fd packets;
  std::vector<int> sent;
  if (attr->qp_type == IBV_QPT_RAW_PACKET) {
    packets = base::Fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    if (packets.valid()) sent.push_back(packets.get());
  }
  const std::lock_guard creating(context.numbers_mutex);
  if (const int error = context.session.call(request, &reply, sent); error != 0) {
    errno = error;
    return nullptr;
  }
  const ipc::CreateQpReply& made = reply.create_qp;
  Made theirs(context.session, ipc::Call::kDestroyQp, made.handle);
  qp->alive = Within(ibv);
  qp->context = &context;
  qp->slot = made.slot;
  qp->sq_sig_all = attr->sq_sig_all != 0;
  qp->pd = Use(&Pd::of(attr->pd)->users);
  if (attr->srq != nullptr) qp->srq = Use(&Srq::of(attr->srq)->users);
  qp->pd_handle = attr->pd->handle;
  qp->cap = {made.max_send_wr, made.max_recv_wr, made.max_send_sge, made.max_recv_sge,
             made.max_inline};
  qp->sq_depth = made.sq_depth;
  qp->rq_depth = made.rq_depth;
  qp->send_stride = ipc::send_stride(made.max_send_sge, made.max_inline);
  qp->block = context.arena.at<ipc::QpBlock>(made.block);
  qp->sq = context.arena.at<uint8_t>(made.sq);
  qp->results = context.arena.at<ipc::SendResult>(made.results);
  qp->rq = context.arena.at<uint8_t>(made.rq);
  qp->inbox = {context.arena.at<ipc::RecvRing>(made.inbox), made.inbox_depth};
  qp->posted.resize(made.sq_depth);
  qp->recv_wr_ids.resize(made.rq_depth);
  ibv_qp& base = qp->ibv.qp_base;
  init_qp(&base, ibv, *attr);
  base.handle = made.handle;
  base.qp_num = made.qpn;
  base.state = init != nullptr ? init->qp_state : IBV_QPS_RESET;
  attr->cap = qp->cap;
  {
    const std::lock_guard lock(context.mutex);
    context.qps.emplace(made.handle, qp.get());
  }
  try {
    join_completion_queues(qp.get());
  } catch (...) {
    leave_completion_queues(qp.get());
    const std::lock_guard lock(context.mutex);
    context.qps.erase(made.handle);
    throw;
  }
  theirs.keep();
  return &qp.release()->ibv.qp_base;
}

int fail(ibv_qp* ibv) {
  Qp* qp = Qp::of(ibv);
  ipc::Request request;
  request.call = ipc::Call::kModifyQp;
  request.modify_qp = {};
  request.modify_qp.handle = ibv->handle;
  request.modify_qp.mask = IBV_QP_STATE;
  request.modify_qp.attributes.state = IBV_QPS_ERR;
  // Nothing is sent after this returns.
  auto now = qp->own.load();
  while (now < Qp::Own::kFailing && !qp->own.compare_exchange_weak(now, Qp::Own::kFailing)) {
  }
  if (const int error = qp->context->session.tell(request); error != 0) return error;
  ibv->state = IBV_QPS_ERR;
  return 0;
}

// From begin() to end() this process begins no request; those it executed have ended.
class Draining {
 public:
  explicit Draining(Qp& qp) : qp_(qp) {}
  ~Draining() { end(); }
  Draining(const Draining&) = delete;
  Draining& operator=(const Draining&) = delete;

  void begin() {
    const std::lock_guard lock(qp_.send_mutex);
    auto nothing = Qp::Own::kNothing;
    begun_ = true;
    qp_.own.compare_exchange_strong(nothing, Qp::Own::kDraining);
  }
  void end() {
    auto draining = Qp::Own::kDraining;
    if (std::exchange(begun_, false)) qp_.own.compare_exchange_strong(draining, Qp::Own::kNothing);
  }

 private:
  Qp& qp_;
  bool begun_ = false;
};

// `rts_mask`: the attributes of an additional change to RTS, or 0.
int change(ibv_qp* ibv, const ibv_qp_attr* attr, int attr_mask, int rts_mask) {
  Qp* qp = Qp::of(ibv);
  Context& context = *qp->context;
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kModifyQp;
  request.modify_qp = {};
  request.modify_qp.handle = ibv->handle;
  request.modify_qp.mask = static_cast<uint32_t>(attr_mask);
  request.modify_qp.rts_mask = static_cast<uint32_t>(rts_mask);
  if ((attr_mask & IBV_QP_CUR_STATE) != 0) request.modify_qp.cur_state = attr->cur_qp_state;
  request.modify_qp.attributes = to_attributes(*attr, attr_mask | rts_mask);
  std::optional<KnownPeers> known;
  if ((attr_mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RTR) {
    known.emplace(context);
    std::copy(known->ids.begin(), known->ids.end(), request.modify_qp.known_peers);
  }

  const bool resets = (attr_mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RESET;
  std::vector<base::Fd> fds;
  if (resets) {
    leave_completion_queues(qp);
    discard_receives(*qp);  // before the daemon forgets them
  }
  Draining draining(*qp);
  if ((attr_mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_SQD) draining.begin();
  const int error = context.session.call(request, &reply, {}, &fds);
  draining.end();
  if (error == 0 && resets) {
    // The daemon has cut the links; a peer that is executing ends now.
    wait_for_initiator(*qp);
    discard_receives(*qp);
    const std::lock_guard tables(context.mutex);
    const std::scoped_lock lock(qp->send_mutex, qp->recv_mutex);
    start_over(qp);
  }
  if (resets) join_completion_queues(qp);
  if (error != 0) return error;
  if ((attr_mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_ERR) wait_for_initiator(*qp);
  if (((attr_mask | rts_mask) & IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
    const std::lock_guard lock(qp->send_mutex);
    qp->may_read = attr->max_rd_atomic > 0;
  }
  if (reply.modify_qp.direct != 0) {
    const bool lacks_fds = fds.size() < descriptors_of(reply.modify_qp);
    std::unique_ptr<Direct> direct;
    try {
      if (!lacks_fds)
        direct = make_direct(context, attr->dest_qp_num, reply.modify_qp, std::move(fds));
    } catch (const std::bad_alloc&) {
    }
    if (direct == nullptr) {  // the peer would deliver where this process cannot poll
      (void)fail(ibv);
      return lacks_fds ? EMFILE : ENOMEM;
    }
    bool arrived = false;
    {
      const std::lock_guard polling(qp->recv_cq()->mutex);
      const std::lock_guard tables(context.mutex);
      const std::lock_guard sending(qp->send_mutex);
      qp->from_peer = {direct->peer->arena.at<ipc::RecvRing>(reply.modify_qp.peer_outbox),
                       qp->inbox.depth()};
      qp->direct = std::move(direct);
      arrived = qp->receives_standing(1) > 0;
    }
    // The peer may have sent before. A thread that was notified then found nothing and sleeps
    // again.
    if (arrived) qp->recv_cq()->notify(*qp, true);
  }
  if ((attr_mask & IBV_QP_STATE) != 0) {
    ibv->state = rts_mask != 0 ? IBV_QPS_RTS : attr->qp_state;
    for (Cq* cq : {qp->send_cq(), qp->recv_cq()})  // in ERR there is something to be flushed
      if (cq != nullptr) ipc::announce(*cq->bell, ibv->qp_num);
  }
  return 0;
}

// Programs pass the attributes of RC to both halves of an XRC connection. Attributes of the other
// half are ignored, as in the kernel (modify_qp_mask in uverbs_cmd.c); perftest relies on it.
int relevant(ibv_qp_type type, int mask) {
  if (type == IBV_QPT_XRC_SEND) return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (type == IBV_QPT_XRC_RECV)
    return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  return mask;
}

constexpr Shortcuts kOwn{
    .create_qp = [](ibv_context* context, ibv_qp_init_attr_ex* attr, const ibv_qp_attr& init,
                    int mask) { return create(context, attr, &init, mask); },
    .connect_qp = [](ibv_qp* qp, const ibv_qp_attr& attr, int rtr_mask,
                     int rts_mask) { return change(qp, &attr, rtr_mask, rts_mask); },
    .fail_qp = fail,
    .is_lost =
        [](ibv_context* context) {
          ibv_device_attr_ex attr{};
          return Context::of(context)->session.hung_up() && query_device_ex(context, &attr) == EIO;
        },
    .show_memory = show_memory,
    .reg_shown_mr = reg_shown_mr,
    .export_state =
        [](ibv_context* context) {
          return Context::of(context)->arena.at<ipc::ExportState>(ipc::kExportOffset);
        }};

}  // namespace

const Shortcuts* own_shortcuts() { return &kOwn; }

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  return create(context, attr, nullptr, 0);
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  return change(qp, attr, relevant(qp->qp_type, attr_mask), 0);
}

int query_qp(ibv_qp* ibv, ibv_qp_attr* attr, int, ibv_qp_init_attr* init_attr) {
  Qp* qp = Qp::of(ibv);
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kQueryQp;
  request.handle.handle = ibv->handle;
  if (const int error = qp->context->session.call(request, &reply); error != 0) return error;
  const verbs::QpAttributes& now = reply.query_qp.attributes;
  *attr = {};
  attr->qp_state = attr->cur_qp_state = static_cast<ibv_qp_state>(now.state);
  attr->path_mtu = static_cast<ibv_mtu>(now.path_mtu);
  attr->qkey = now.qkey;
  attr->rq_psn = now.rq_psn;
  attr->sq_psn = now.sq_psn;
  attr->dest_qp_num = now.dest_qpn;
  attr->qp_access_flags = now.access_flags;
  attr->cap = qp->cap;
  attr->ah_attr = from_vector(now.av);
  attr->pkey_index = now.pkey_index;
  attr->max_rd_atomic = now.max_rd_atomic;
  attr->max_dest_rd_atomic = now.max_dest_rd_atomic;
  attr->min_rnr_timer = now.min_rnr_timer;
  attr->port_num = now.port_num;
  attr->timeout = now.timeout;
  attr->retry_cnt = now.retry_cnt;
  attr->rnr_retry = now.rnr_retry;
  attr->sq_draining = now.sq_draining;
  attr->path_mig_state = static_cast<ibv_mig_state>(now.path_mig_state);
  attr->en_sqd_async_notify = now.en_sqd_async_notify;
  ibv->state = attr->qp_state;
  *init_attr = {};
  init_attr->qp_context = ibv->qp_context;
  init_attr->send_cq = ibv->send_cq;
  init_attr->recv_cq = ibv->recv_cq;
  init_attr->srq = ibv->srq;
  init_attr->cap = qp->cap;
  init_attr->qp_type = ibv->qp_type;
  init_attr->sq_sig_all = qp->sq_sig_all ? 1 : 0;
  return 0;
}

int destroy_qp(ibv_qp* ibv) {
  Qp* qp = Qp::of(ibv);
  Context& context = *qp->context;
  if (ibv->srq != nullptr) {  // returns received but unpolled slots to the SRQ
    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;
    (void)modify_qp(ibv, &reset, IBV_QP_STATE);
  }
  // Before the daemon withdraws its rings, which other threads may be polling.
  leave_completion_queues(qp);
  std::unique_lock destroying(context.numbers_mutex);
  const int error = context.session.call(ipc::Call::kDestroyQp, ibv->handle);
  if (error != 0 && error != EIO) {
    join_completion_queues(qp);
    return error;
  }
  wait_for_initiator(*qp);
  {
    const std::lock_guard lock(context.mutex);
    context.qps.erase(ibv->handle);
  }
  drop_events_of_qp(context, ibv->handle);
  destroying.unlock();
  finish_qp(ibv, qp->events_given.load());
  delete qp;
  return 0;
}

namespace {
int change_group(ibv_qp* qp, const ibv_gid* gid, uint16_t lid, ipc::Call call) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = call;
  request.mcast.qp = qp->handle;
  request.mcast.lid = lid;
  std::memcpy(request.mcast.gid, gid->raw, sizeof request.mcast.gid);
  return Qp::of(qp)->context->session.call(request, &reply);
}
}  // namespace

int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return change_group(qp, gid, lid, ipc::Call::kAttachMcast);
}

int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return change_group(qp, gid, lid, ipc::Call::kDetachMcast);
}

}  // namespace vrdma::client
