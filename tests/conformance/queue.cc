#include "tests/conformance/queue.h"

#include <poll.h>
#include <sched.h>

#include <cerrno>
#include <chrono>
#include <random>

namespace conformance {

namespace {
std::chrono::steady_clock::time_point deadline(int milliseconds = kPatience) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
}
bool over(std::chrono::steady_clock::time_point when) {
  return std::chrono::steady_clock::now() >= when;
}
}  // namespace

// ---- Cq ----

Cq::Cq(const Side& side, bool events, int depth) {
  if (events) {
    channel = ibv_create_comp_channel(side.context);
    CHECK(channel != nullptr);
  }
  cq = ibv_create_cq(side.context, depth, nullptr, channel, 0);
  CHECK(cq != nullptr);
}

Cq::~Cq() {
  CHECK_EQ(ibv_destroy_cq(cq), 0);
  if (channel != nullptr) CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

void Cq::arm(bool solicited_only) { CHECK_EQ(ibv_req_notify_cq(cq, solicited_only ? 1 : 0), 0); }

bool Cq::has_event(int milliseconds) const {
  pollfd ready{channel->fd, POLLIN, 0};
  return ::poll(&ready, 1, milliseconds) == 1;
}

void Cq::await_event() {
  ibv_cq* told = nullptr;
  void* context = nullptr;
  CHECK_EQ(ibv_get_cq_event(channel, &told, &context), 0);
  CHECK(told == cq);
  ibv_ack_cq_events(told, 1);
}

ibv_wc Cq::wait() {
  ibv_wc wc{};
  const auto end = deadline();
  for (;;) {
    int count = ibv_poll_cq(cq, 1, &wc);
    if (count == 0 && channel != nullptr) {
      arm();
      count = ibv_poll_cq(cq, 1, &wc);
      if (count == 0) {
        if (!has_event(kPatience)) fail(__FILE__, __LINE__, "no event tells of a completion");
        await_event();
      }
    }
    CHECK(count >= 0);
    if (count == 1) return wc;
    if (over(end)) fail(__FILE__, __LINE__, "no completion comes");
    ::sched_yield();
  }
}

ibv_wc Cq::expect(uint64_t wr_id, ibv_wc_status status) {
  const ibv_wc wc = wait();
  if (wc.wr_id != wr_id || wc.status != status)
    fail(__FILE__, __LINE__,
         "the completion of " + std::to_string(wc.wr_id) + " is '" + ibv_wc_status_str(wc.status) +
             "', expected was " + std::to_string(wr_id) + " '" + ibv_wc_status_str(status) + "'");
  return wc;
}

void Cq::expect_none(int milliseconds) {
  ibv_wc wc{};
  const auto end = deadline(milliseconds);
  do {
    if (ibv_poll_cq(cq, 1, &wc) != 0)
      fail(__FILE__, __LINE__,
           "a completion of " + std::to_string(wc.wr_id) + " '" + ibv_wc_status_str(wc.status) +
               "' where none may be");
    ::sched_yield();
  } while (!over(end));
}

// ---- Buffer ----

Buffer::Buffer(const Side& side, size_t bytes, int access, ibv_pd* pd, int mapping) : size(bytes) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, mapping | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  data = static_cast<uint8_t*>(memory);
  mr = ibv_reg_mr(pd != nullptr ? pd : side.pd, data, size, access);
  CHECK(mr != nullptr);
}

void Buffer::deregister() {
  CHECK_EQ(ibv_dereg_mr(mr), 0);
  mr = nullptr;
}

Buffer::~Buffer() {
  if (mr != nullptr) deregister();
  ::munmap(data, size);
}

ibv_sge Buffer::sge(size_t offset, size_t length) const {
  return {address(offset), static_cast<uint32_t>(length), mr->lkey};
}

Remote remote_of(const Buffer& buffer) {
  return {buffer.address(), buffer.size, buffer.mr->rkey, 0};
}

// ---- Qp ----

Qp::Qp(const Side& side, Cq& send_cq, Cq& recv_cq, const QpOptions& wanted)
    : options(wanted), side_(side), psn_(std::random_device{}() & 0xffffff) {
  ibv_qp_init_attr attr{};
  attr.send_cq = send_cq.cq;
  attr.recv_cq = recv_cq.cq;
  attr.srq = options.srq;
  attr.cap = {options.max_send_wr, options.max_recv_wr, options.max_sge, options.max_sge,
              options.max_inline};
  attr.qp_type = options.type;
  attr.sq_sig_all = options.sq_sig_all ? 1 : 0;
  if (options.type == IBV_QPT_XRC_RECV) {
    ibv_qp_init_attr_ex target{};
    target.qp_type = options.type;
    target.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    target.xrcd = options.xrcd;
    qp = ibv_create_qp_ex(side.context, &target);
  } else {
    qp = ibv_create_qp(options.pd != nullptr ? options.pd : side.pd, &attr);
  }
  CHECK(qp != nullptr);
  cap = attr.cap;
}

Qp::~Qp() { CHECK_EQ(ibv_destroy_qp(qp), 0); }

void Qp::to_init() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (options.type == IBV_QPT_UD) {
    attr.qkey = options.qkey;
    mask |= IBV_QP_QKEY;
  } else {
    attr.qp_access_flags = static_cast<unsigned>(options.access);
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  CHECK_EQ(ibv_modify_qp(qp, &attr, mask), 0);
}

void Qp::to_rtr(const Endpoint& peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  int mask = IBV_QP_STATE;
  if (options.type != IBV_QPT_UD) {
    attr.path_mtu = side_.mtu;
    attr.dest_qp_num = peer.qpn;
    attr.rq_psn = peer.psn;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = peer.gid;
    attr.ah_attr.grh.sgid_index = side_.gid_index;
    attr.ah_attr.grh.hop_limit = 64;
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  }
  if (options.type == IBV_QPT_RC || options.type == IBV_QPT_XRC_RECV) {
    attr.max_dest_rd_atomic = options.max_dest_rd_atomic;
    attr.min_rnr_timer = options.min_rnr_timer;
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  CHECK_EQ(ibv_modify_qp(qp, &attr, mask), 0);
}

void Qp::to_rts() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn_;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  attr.timeout = options.timeout;
  if (options.type == IBV_QPT_XRC_RECV) mask |= IBV_QP_TIMEOUT;
  if (options.type == IBV_QPT_RC || options.type == IBV_QPT_XRC_SEND) {
    attr.retry_cnt = options.retry_cnt;
    attr.rnr_retry = options.rnr_retry;
    attr.max_rd_atomic = options.max_rd_atomic;
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  CHECK_EQ(ibv_modify_qp(qp, &attr, mask), 0);
}

void Qp::to(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

void Qp::connect() {
  to_init();
  const Endpoint peer = side_.exchange(endpoint());
  to_rtr(peer);
  to_rts();
  side_.meet(0xc0);
}

void Qp::reconnect() {
  to(IBV_QPS_RESET);
  side_.meet(0xc1);
  psn_ = std::random_device{}() & 0xffffff;
  connect();
}

ibv_qp_state Qp::state() const {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

void Qp::await_state(ibv_qp_state wanted) const {
  const auto end = deadline();
  while (state() != wanted) {
    if (over(end))
      fail(__FILE__, __LINE__, "the queue pair does not come to state " + std::to_string(wanted));
    ::sched_yield();
  }
}

int Qp::try_send(ibv_send_wr wr, std::vector<ibv_sge> sges) {
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  wr.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp, &wr, &bad);
  CHECK(error == 0 || bad == &wr);
  return error;
}

int Qp::try_receive(uint64_t wr_id, std::vector<ibv_sge> sges) {
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(qp, &wr, &bad);
  CHECK(error == 0 || bad == &wr);
  return error;
}

namespace {
ibv_send_wr request(uint64_t wr_id, ibv_wr_opcode opcode, unsigned flags = 0) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.send_flags = flags;
  return wr;
}
ibv_send_wr request(uint64_t wr_id, ibv_wr_opcode opcode, const Remote& remote, size_t offset) {
  ibv_send_wr wr = request(wr_id, opcode);
  wr.wr.rdma.remote_addr = remote.addr + offset;
  wr.wr.rdma.rkey = remote.rkey;
  return wr;
}
ibv_send_wr atomic(uint64_t wr_id, ibv_wr_opcode opcode, const Remote& remote, size_t offset) {
  ibv_send_wr wr = request(wr_id, opcode);
  wr.wr.atomic.remote_addr = remote.addr + offset;
  wr.wr.atomic.rkey = remote.rkey;
  return wr;
}
}  // namespace

void Qp::send(uint64_t wr_id, std::vector<ibv_sge> sges, unsigned flags) {
  CHECK_EQ(try_send(request(wr_id, IBV_WR_SEND, flags), std::move(sges)), 0);
}

void Qp::send_imm(uint64_t wr_id, uint32_t imm, std::vector<ibv_sge> sges, unsigned flags) {
  ibv_send_wr wr = request(wr_id, IBV_WR_SEND_WITH_IMM, flags);
  wr.imm_data = imm;
  CHECK_EQ(try_send(wr, std::move(sges)), 0);
}

void Qp::write(uint64_t wr_id, std::vector<ibv_sge> sges, const Remote& to_where, size_t offset) {
  CHECK_EQ(try_send(request(wr_id, IBV_WR_RDMA_WRITE, to_where, offset), std::move(sges)), 0);
}

void Qp::write_imm(uint64_t wr_id, uint32_t imm, std::vector<ibv_sge> sges, const Remote& to_where,
                   size_t offset) {
  ibv_send_wr wr = request(wr_id, IBV_WR_RDMA_WRITE_WITH_IMM, to_where, offset);
  wr.imm_data = imm;
  CHECK_EQ(try_send(wr, std::move(sges)), 0);
}

void Qp::read(uint64_t wr_id, std::vector<ibv_sge> sges, const Remote& from, size_t offset) {
  CHECK_EQ(try_send(request(wr_id, IBV_WR_RDMA_READ, from, offset), std::move(sges)), 0);
}

void Qp::fetch_add(uint64_t wr_id, const ibv_sge& sge, const Remote& at, size_t offset,
                   uint64_t add) {
  ibv_send_wr wr = atomic(wr_id, IBV_WR_ATOMIC_FETCH_AND_ADD, at, offset);
  wr.wr.atomic.compare_add = add;
  CHECK_EQ(try_send(wr, {sge}), 0);
}

void Qp::compare_swap(uint64_t wr_id, const ibv_sge& sge, const Remote& at, size_t offset,
                      uint64_t compare, uint64_t swap) {
  ibv_send_wr wr = atomic(wr_id, IBV_WR_ATOMIC_CMP_AND_SWP, at, offset);
  wr.wr.atomic.compare_add = compare;
  wr.wr.atomic.swap = swap;
  CHECK_EQ(try_send(wr, {sge}), 0);
}

void Qp::receive(uint64_t wr_id, std::vector<ibv_sge> sges) {
  CHECK_EQ(try_receive(wr_id, std::move(sges)), 0);
}

ibv_qp* failed_qp(const Side& side, ibv_cq* cq, uint32_t max_recv_wr) {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {1, max_recv_wr, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(side.pd, &attr);
  CHECK(qp != nullptr);
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_ERR;
  CHECK_EQ(ibv_modify_qp(qp, &to, IBV_QP_STATE), 0);
  return qp;
}

// ---- Srq ----

Srq::Srq(const Side& side, uint32_t max_wr, uint32_t max_sge) {
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = max_wr;
  attr.attr.max_sge = max_sge;
  srq = ibv_create_srq(side.pd, &attr);
  CHECK(srq != nullptr);
}

Srq::~Srq() { CHECK_EQ(ibv_destroy_srq(srq), 0); }

int Srq::try_receive(uint64_t wr_id, std::vector<ibv_sge> sges) {
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_srq_recv(srq, &wr, &bad);
  CHECK(error == 0 || bad == &wr);
  return error;
}

void Srq::receive(uint64_t wr_id, std::vector<ibv_sge> sges) {
  CHECK_EQ(try_receive(wr_id, std::move(sges)), 0);
}

// ---- events, bytes ----

void* expect_async_event(const Side& side, ibv_event_type type, int tolerated) {
  for (;;) {
    pollfd ready{side.context->async_fd, POLLIN, 0};
    if (::poll(&ready, 1, kPatience) != 1)
      fail(__FILE__, __LINE__, std::string("no event '") + ibv_event_type_str(type) + "' comes");
    ibv_async_event event{};
    CHECK_EQ(ibv_get_async_event(side.context, &event), 0);
    ibv_ack_async_event(&event);
    if (event.event_type == type) return event.element.qp;
    if (static_cast<int>(event.event_type) != tolerated)
      fail(__FILE__, __LINE__,
           std::string("the event is '") + ibv_event_type_str(event.event_type) + "', not '" +
               ibv_event_type_str(type) + "'");
  }
}

void expect_no_async_event(const Side& side, int milliseconds) {
  pollfd ready{side.context->async_fd, POLLIN, 0};
  CHECK_EQ(::poll(&ready, 1, milliseconds), 0);
}

namespace {

// The eight bytes from position 8 * word.
uint64_t word_at(uint64_t key, size_t word) {
  uint64_t x = key * 0x9e3779b97f4a7c15ull + word * 0xbf58476d1ce4e5b9ull;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebull;
  return x ^ x >> 32;
}

// Calls `each(i, byte)` for bytes i of [0, size), with content as at `position` + i.
template <class Each>
void walk_bytes(size_t size, uint64_t key, size_t position, Each each) {
  for (size_t i = 0; i < size;) {
    const size_t in_word = (position + i) % 8;
    uint64_t word = word_at(key, (position + i) / 8) >> (in_word * 8);
    for (size_t k = in_word; k < 8 && i < size; ++k, ++i, word >>= 8)
      each(i, static_cast<uint8_t>(word));
  }
}

}  // namespace

void fill(uint8_t* to, size_t size, uint64_t key, size_t position) {
  walk_bytes(size, key, position, [to](size_t i, uint8_t byte) { to[i] = byte; });
}

void check_filled(const uint8_t* data, size_t size, uint64_t key, size_t position) {
  walk_bytes(size, key, position, [&](size_t i, uint8_t byte) {
    if (data[i] == byte) return;
    fail(__FILE__, __LINE__,
         "byte " + std::to_string(i) + " of " + std::to_string(size) + " is " +
             std::to_string(data[i]) + ", not " + std::to_string(byte));
  });
}

}  // namespace conformance
