#include "tests/integrity/device.h"

#include <cerrno>
#include <cstring>

#include "tests/integrity/pools.h"

namespace integrity {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kWindowAccess =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

void modify(ibv_qp* qp, ibv_qp_attr* attr, int mask, const char* to) {
  if (const int error = ibv_modify_qp(qp, attr, mask); error != 0)
    fail("ibv_modify_qp to %s: %s", to, std::strerror(error));
}

}  // namespace

Device::Device(ibv_context* context, uint8_t gid_index, const World& world, unsigned member,
               bool kills)
    : context_(context), gid_index_(gid_index), world_(world), member_(member) {
  pd_ = ibv_alloc_pd(context);
  if (pd_ == nullptr) fail("ibv_alloc_pd");
  const Member& plan = world.members[member];
  for (size_t i = 0; i < plan.areas.size(); ++i) {
    areas_.emplace_back(plan.areas[i].memory, plan.areas[i].size);
    fill(area(i), first_key(world, member, i));
  }
  regions_.resize(plan.regions.size());
  for (unsigned i = 0; i < regions_.size(); ++i) register_one(i);
  for (const Queue& queue : plan.queues)
    stations_.push_back(std::make_unique<Station>(this, queue, kills));
  const auto memory = [&](size_t which) {
    return static_cast<Memory>((world.seed >> which) % static_cast<size_t>(Memory::kCount));
  };
  shared_ = std::make_unique<SharedReceives>(pd_, world, memory(8));
  ledger_.set_shared(shared_.get());
  datagrams_ = std::make_unique<Datagrams>(this, memory(16));
  for (unsigned link = 0; link < world.links.size(); ++link)
    for (unsigned side = 0; side < 2; ++side)
      if (has(link, side)) {
        Endpoint& made = endpoints_.emplace_back();
        made.link = link;
        made.side = side;
        create(&made);
      }
}

Device::~Device() = default;

void Device::complete(const ibv_wc& wc, bool in_order) {
  if ((wc.wr_id & kDatagramBit) != 0)
    datagrams_->complete(wc);
  else
    ledger_.complete(wc, in_order);
}

// --- memory regions ---

void Device::register_one(unsigned region) {
  const Region& plan = world_.members[member_].regions[region];
  regions_[region] =
      ibv_reg_mr(pd_, area(plan.area).data() + plan.at, plan.length, kAccess | IBV_ACCESS_MW_BIND);
  if (regions_[region] == nullptr) fail("ibv_reg_mr: %s", std::strerror(errno));
}

void Device::deregister(unsigned region) {
  if (ibv_dereg_mr(regions_[region]) != 0) fail("ibv_dereg_mr");
  regions_[region] = nullptr;
}

void Device::register_anew(unsigned region, Random* random) {
  if (regions_[region] != nullptr && random->one_in(2)) {
    const Region& plan = world_.members[member_].regions[region];
    if (const int error = ibv_rereg_mr(regions_[region], IBV_REREG_MR_CHANGE_TRANSLATION, nullptr,
                                       area(plan.area).data() + plan.at, plan.length, 0);
        error != 0)
      fail("ibv_rereg_mr: %d", error);
    return;
  }
  if (regions_[region] != nullptr) deregister(region);
  register_one(region);
}

// --- queue pairs ---

Endpoint& Device::endpoint(unsigned link, unsigned side) {
  for (Endpoint& one : endpoints_)
    if (one.link == link && one.side == side) return one;
  fail("link %u has no such end here", link);
}

void Device::create(Endpoint* endpoint) {
  const End& end = end_of(*endpoint);
  if (endpoint->qp == nullptr) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = stations_[end.send_queue]->cq();
    init.recv_cq = stations_[end.receive_queue]->cq();
    init.srq = end.shared_receives ? shared_->srq() : nullptr;
    init.cap = {kDepth, end.shared_receives ? 0 : kDepth, kPieces, kPieces, kInline};
    init.qp_type = world_.links[endpoint->link].type;
    init.sq_sig_all = end.all_signaled ? 1 : 0;
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    init.pd = pd_;
    if (end.builder) {
      init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                            IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
      if (init.qp_type == IBV_QPT_RC)
        init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                               IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
                               IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
    }
    endpoint->qp = ibv_create_qp_ex(context_, &init);
    if (endpoint->qp == nullptr) fail("ibv_create_qp_ex: %s", std::strerror(errno));
    endpoint->extended = end.builder ? ibv_qp_to_qp_ex(endpoint->qp) : nullptr;
  }
  for (ibv_mw*& window : endpoint->windows)
    if (window == nullptr) {
      window = ibv_alloc_mw(pd_, &window == &endpoint->windows[0] ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
      if (window == nullptr) fail("ibv_alloc_mw");
    }
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess;
  modify(endpoint->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
         "INIT");
  ledger_.open(endpoint->qp->qp_num, endpoint->link, endpoint->side);
  // A packet of an earlier connection of the same number may still be on its way.
  connections_ = mixed(connections_ ^ world_.seed);
  endpoint->psn = connections_ & 0xffffff;
}

void Device::connect(Endpoint* endpoint, const Info& peer) {
  const Link& link = world_.links[endpoint->link];
  const bool reliable = link.type == IBV_QPT_RC;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer.qpns[endpoint->link][1 - endpoint->side];
  attr.rq_psn = peer.psns[endpoint->link][1 - endpoint->side];
  attr.max_dest_rd_atomic = link.outstanding_reads;
  attr.min_rnr_timer = 6;  // 0.08 ms
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = gid_index_;
  attr.ah_attr.grh.hop_limit = 64;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (reliable) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  modify(endpoint->qp, &attr, mask, "RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;  // 67 ms
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;  // without end
  attr.max_rd_atomic = link.outstanding_reads;
  attr.sq_psn = endpoint->psn;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (reliable)
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  modify(endpoint->qp, &attr, mask, "RTS");
  endpoint->connected = true;
}

void Device::to_error(const Endpoint& endpoint) const {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  modify(endpoint.qp, &attr, IBV_QP_STATE, "ERR");
}

void Device::forget(Endpoint* endpoint, const std::function<void()>& call) {
  // What a thread has polled before the call it gives to the ledger before, too.
  const End& end = end_of(*endpoint);
  const unsigned low = std::min(end.send_queue, end.receive_queue);
  const unsigned high = std::max(end.send_queue, end.receive_queue);
  const auto one = stations_[low]->hold();
  std::unique_lock<std::shared_mutex> other;
  if (high != low) other = stations_[high]->hold();
  const uint32_t qpn = endpoint->qp->qp_num;
  call();
  ledger_.close(qpn);
  endpoint->connected = false;
}

void Device::reset(Endpoint* endpoint) {
  forget(endpoint, [&] {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    modify(endpoint->qp, &attr, IBV_QP_STATE, "RESET");
  });
}

void Device::destroy(Endpoint* endpoint) {
  forget(endpoint, [&] {
    for (ibv_mw*& window : endpoint->windows) {
      if (window != nullptr && ibv_dealloc_mw(window) != 0) fail("ibv_dealloc_mw");
      window = nullptr;
    }
    if (ibv_destroy_qp(endpoint->qp) != 0) fail("ibv_destroy_qp");
    endpoint->qp = nullptr;
  });
}

void Device::bind(const Endpoint& endpoint, Window type, const Piece* piece) {
  ibv_mw* const window = endpoint.windows[type == Window::kType1 ? 0 : 1];
  ibv_mw_bind_info info{};
  if (piece != nullptr)
    info = {regions_[piece->region], reinterpret_cast<uint64_t>(at(*piece)), piece->length,
            kWindowAccess};
  const uint64_t name = ledger_.request(endpoint.qp->qp_num, IBV_WC_BIND_MW, 0, true, -1);
  if (type == Window::kType1) {
    ibv_mw_bind bind{name, IBV_SEND_SIGNALED, info};
    if (const int error = ibv_bind_mw(endpoint.qp, window, &bind); error != 0)
      fail("ibv_bind_mw: %s", std::strerror(error));
    return;
  }
  const uint32_t rkey = ibv_inc_rkey(window->rkey);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = name;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw = {window, rkey, info};
  if (ibv_post_send(endpoint.qp, &wr, &bad) != 0) fail("post BIND_MW");
  window->rkey = rkey;
}

void Device::invalidate(const Endpoint& endpoint, Window type) {
  if (type == Window::kType1) {
    bind(endpoint, type, nullptr);
    return;
  }
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = ledger_.request(endpoint.qp->qp_num, IBV_WC_LOCAL_INV, 0, true, -1);
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = endpoint.windows[1]->rkey;
  if (ibv_post_send(endpoint.qp, &wr, &bad) != 0) fail("post LOCAL_INV");
}

// --- all of it ---

Info Device::info() const {
  Info mine{};
  if (ibv_query_gid(context_, 1, gid_index_, &mine.gid) != 0) fail("ibv_query_gid");
  for (size_t i = 0; i < areas_.size(); ++i)
    mine.areas[i] = reinterpret_cast<uint64_t>(area(i).data());
  for (size_t i = 0; i < regions_.size(); ++i)
    if (regions_[i] != nullptr) mine.rkeys[i] = regions_[i]->rkey;
  for (const Endpoint& one : endpoints_) {
    mine.qpns[one.link][one.side] = one.qp->qp_num;
    mine.psns[one.link][one.side] = one.psn;
    for (const ibv_mw* window : one.windows)
      mine.windows[one.link][one.side][window == one.windows[0] ? 0 : 1] = window->rkey;
  }
  mine.datagram_qpn = datagrams_->qpn();
  return mine;
}

void Device::close(bool destroys) {
  for (const auto& station : stations_) station->stop();
  if (destroys) {
    datagrams_->destroy();
    for (Endpoint& one : endpoints_)
      if (one.qp != nullptr) destroy(&one);
    shared_->destroy();
    for (unsigned i = 0; i < regions_.size(); ++i)
      if (regions_[i] != nullptr) deregister(i);
  } else {
    for (const auto& station : stations_) station->abandon();
  }
  stations_.clear();
  if (destroys && ibv_dealloc_pd(pd_) != 0) fail("ibv_dealloc_pd");
  if (const int error = ibv_close_device(context_); error != 0)
    fail("ibv_close_device: %d, errno %d", error, errno);
}

}  // namespace integrity
