// The ibv_wr_* interface (ibv_wr_post(3)), on top of ibv_post_send.
//
// Between ibv_wr_start and ibv_wr_complete the requests are collected in a Batch, which one thread
// holds at a time. ibv_wr_complete posts all of them or, if one is invalid, none.
#include <cerrno>
#include <deque>
#include <exception>

#include "client/device/objects.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {

struct Batch {
  struct Entry {
    ibv_send_wr wr{};
    std::vector<ibv_sge> sges;
    std::vector<uint8_t> inline_data;  // copied when the program sets it
    ibv_sge inlined{};                 // all of inline_data
  };
  std::mutex mutex;  // held from ibv_wr_start to ibv_wr_complete or ibv_wr_abort
  std::deque<Entry> entries;
  bool failed = false;  // memory for a request was lacking
};

void BatchDeleter::operator()(Batch* batch) const { delete batch; }

namespace {

Qp& qp_of(ibv_qp_ex* qp) { return *reinterpret_cast<Qp*>(qp); }

// The functions that build a request return nothing; ibv_wr_complete reports their failure.
// `Function` is one of them, without captures.
template <class Function, class... Args>
auto fail_later(void (Function::*)(ibv_qp_ex*, Args...) const) -> void (*)(ibv_qp_ex*, Args...) {
  return [](ibv_qp_ex* qp, Args... args) {
    Batch& batch = *qp_of(qp).batch;
    if (batch.failed) return;
    try {
      Function{}(qp, args...);
    } catch (const std::exception&) {
      batch.failed = true;
    }
  };
}
template <class Function>
auto fail_later(Function) {
  return fail_later(&Function::operator());
}

// Begins a request with the program's wr_id and wr_flags.
ibv_send_wr& begin(ibv_qp_ex* qp, ibv_wr_opcode opcode) {
  ibv_send_wr& wr = qp_of(qp).batch->entries.emplace_back().wr;
  wr.wr_id = qp->wr_id;
  wr.send_flags = qp->wr_flags & ~unsigned{IBV_SEND_INLINE};
  wr.opcode = opcode;
  return wr;
}

Batch::Entry& last(ibv_qp_ex* qp) { return qp_of(qp).batch->entries.back(); }

void rdma(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_addr,
          __be32 imm = 0) {
  ibv_send_wr& wr = begin(qp, opcode);
  wr.imm_data = imm;
  wr.wr.rdma.remote_addr = remote_addr;
  wr.wr.rdma.rkey = rkey;
}

void atomic(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_addr,
            uint64_t compare_add, uint64_t swap) {
  ibv_send_wr& wr = begin(qp, opcode);
  wr.wr.atomic.remote_addr = remote_addr;
  wr.wr.atomic.rkey = rkey;
  wr.wr.atomic.compare_add = compare_add;
  wr.wr.atomic.swap = swap;
}

void append_inline(Batch::Entry& entry, const void* data, size_t length) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  entry.inline_data.insert(entry.inline_data.end(), bytes, bytes + length);
  entry.wr.send_flags |= IBV_SEND_INLINE;
}

void start(ibv_qp_ex* qp) {
  Batch& batch = *qp_of(qp).batch;
  batch.mutex.lock();
  batch.entries.clear();
  batch.failed = false;
}

void abort(ibv_qp_ex* qp) { qp_of(qp).batch->mutex.unlock(); }

// Allocates nothing, so that the batch is always released.
int complete(ibv_qp_ex* ibv) {
  Qp& qp = qp_of(ibv);
  std::deque<Batch::Entry>& entries = qp.batch->entries;
  ibv_send_wr* next = nullptr;
  for (auto it = entries.rbegin(); it != entries.rend(); ++it) {
    if ((it->wr.send_flags & IBV_SEND_INLINE) != 0) {
      it->inlined = {reinterpret_cast<uint64_t>(it->inline_data.data()),
                     static_cast<uint32_t>(it->inline_data.size()), 0};
      it->wr.sg_list = &it->inlined;
      it->wr.num_sge = 1;
    } else {
      it->wr.sg_list = it->sges.data();
      it->wr.num_sge = static_cast<int>(it->sges.size());
    }
    it->wr.next = next;
    next = &it->wr;
  }
  int error = qp.batch->failed ? ENOMEM : next != nullptr ? check_sends(qp, next) : 0;
  ibv_send_wr* bad = nullptr;
  if (error == 0 && next != nullptr) error = post_send(&ibv->qp_base, next, &bad);
  qp.batch->mutex.unlock();
  if (error != 0) errno = error;
  return error;
}

// The operations that a queue pair of this type supports (ibv_post_send(3)).
uint64_t operations_of(ibv_qp_type type) {
  constexpr uint64_t kDatagram = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr uint64_t kAnswered = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE;
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
      return ~uint64_t{0};
    case IBV_QPT_UC:
      return ~kAnswered;
    case IBV_QPT_UD:
      return kDatagram;
    case IBV_QPT_RAW_PACKET:
      return IBV_QP_EX_WITH_SEND;
    default:
      return 0;
  }
}

}  // namespace

bool set_extended_ops(Qp& qp, ibv_qp_type type, uint64_t send_ops) {
  if ((send_ops & ~operations_of(type)) != 0) return false;
  constexpr uint64_t kKnown =
      IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
      IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
      IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE;
  if ((send_ops & ~kKnown) != 0) return false;
  qp.batch.reset(new Batch);
  ibv_qp_ex& ops = qp.ibv;
  ops.wr_start = start;
  ops.wr_complete = complete;
  ops.wr_abort = abort;
  ops.wr_send = fail_later([](ibv_qp_ex* to) { begin(to, IBV_WR_SEND); });
  ops.wr_send_imm =
      fail_later([](ibv_qp_ex* to, __be32 imm) { begin(to, IBV_WR_SEND_WITH_IMM).imm_data = imm; });
  ops.wr_rdma_write = fail_later(
      [](ibv_qp_ex* to, uint32_t rkey, uint64_t addr) { rdma(to, IBV_WR_RDMA_WRITE, rkey, addr); });
  ops.wr_rdma_write_imm = fail_later([](ibv_qp_ex* to, uint32_t rkey, uint64_t addr, __be32 imm) {
    rdma(to, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
  });
  ops.wr_rdma_read = fail_later(
      [](ibv_qp_ex* to, uint32_t rkey, uint64_t addr) { rdma(to, IBV_WR_RDMA_READ, rkey, addr); });
  ops.wr_atomic_cmp_swp =
      fail_later([](ibv_qp_ex* to, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap) {
        atomic(to, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
      });
  ops.wr_atomic_fetch_add =
      fail_later([](ibv_qp_ex* to, uint32_t rkey, uint64_t addr, uint64_t add) {
        atomic(to, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
      });
  ops.wr_send_inv = fail_later(
      [](ibv_qp_ex* to, uint32_t rkey) { begin(to, IBV_WR_SEND_WITH_INV).invalidate_rkey = rkey; });
  ops.wr_local_inv = fail_later(
      [](ibv_qp_ex* to, uint32_t rkey) { begin(to, IBV_WR_LOCAL_INV).invalidate_rkey = rkey; });
  ops.wr_bind_mw =
      fail_later([](ibv_qp_ex* to, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
        ibv_send_wr& wr = begin(to, IBV_WR_BIND_MW);
        wr.bind_mw.mw = mw;
        wr.bind_mw.rkey = rkey;
        wr.bind_mw.bind_info = *info;
      });
  ops.wr_atomic_write =
      fail_later([](ibv_qp_ex* to, uint32_t rkey, uint64_t addr, const void* value) {
        rdma(to, IBV_WR_ATOMIC_WRITE, rkey, addr);
        append_inline(last(to), value, sizeof(uint64_t));
      });
  ops.wr_set_ud_addr =
      fail_later([](ibv_qp_ex* to, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
        auto& ud = last(to).wr.wr.ud;
        ud.ah = ah;
        ud.remote_qpn = remote_qpn;
        ud.remote_qkey = remote_qkey;
      });
  ops.wr_set_xrc_srqn =
      fail_later([](ibv_qp_ex* to, uint32_t srqn) { last(to).wr.qp_type.xrc.remote_srqn = srqn; });
  ops.wr_set_sge = fail_later([](ibv_qp_ex* to, uint32_t lkey, uint64_t addr, uint32_t length) {
    last(to).sges.push_back({addr, length, lkey});
  });
  ops.wr_set_sge_list = fail_later([](ibv_qp_ex* to, size_t count, const ibv_sge* list) {
    last(to).sges.assign(list, list + count);
  });
  ops.wr_set_inline_data = fail_later(
      [](ibv_qp_ex* to, void* data, size_t length) { append_inline(last(to), data, length); });
  ops.wr_set_inline_data_list =
      fail_later([](ibv_qp_ex* to, size_t count, const ibv_data_buf* list) {
        for (size_t i = 0; i < count; ++i) append_inline(last(to), list[i].addr, list[i].length);
      });
  return true;
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* ibv) {
  if (Qp::of(ibv)->batch != nullptr) return &Qp::of(ibv)->ibv;
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace vrdma::client
