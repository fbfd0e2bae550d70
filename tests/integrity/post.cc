#include "tests/integrity/post.h"

#include <cstring>

namespace integrity {
namespace {

struct Parts {
  std::vector<ibv_sge> sges;
  std::vector<uint8_t> copy;  // of what is posted inline
};

ibv_wc_opcode completes_as(Kind kind) {
  switch (kind) {
    case Kind::kWrite:
    case Kind::kWriteImmediate:
      return IBV_WC_RDMA_WRITE;
    case Kind::kRead:
      return IBV_WC_RDMA_READ;
    case Kind::kSwap:
      return IBV_WC_COMP_SWAP;
    case Kind::kAdd:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

ibv_wr_opcode opcode_of(Kind kind) {
  static constexpr std::array kOpcodes{
      IBV_WR_RDMA_WRITE,         IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
      IBV_WR_SEND_WITH_IMM,      IBV_WR_SEND_WITH_INV,       IBV_WR_RDMA_READ,
      IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
  return kOpcodes[static_cast<size_t>(kind)];
}

Parts parts_of(const Device& device, const Op& op) {
  Parts made;
  uint32_t left = op.length;
  for (const Piece& piece : op.local) {
    const uint32_t length = std::min(left, piece.length);
    const uint32_t lkey = device.region(piece.region)->lkey ^ (op.bad_local ? 0x5a5a00u : 0u);
    made.sges.push_back({reinterpret_cast<uint64_t>(device.at(piece)), length, lkey});
    left -= length;
  }
  if (!op.inlined) return made;
  made.copy.reserve(op.length);
  for (ibv_sge& sge : made.sges) {
    const auto* const from = reinterpret_cast<const uint8_t*>(sge.addr);
    sge.addr = reinterpret_cast<uint64_t>(made.copy.data() + made.copy.size());
    sge.lkey = 0;
    made.copy.insert(made.copy.end(), from, from + sge.length);
  }
  return made;
}

struct Target {
  uint64_t addr;
  uint32_t rkey, invalidated;
};

Target target_of(const Device& device, const Stream& stream, const Op& op,
                 const std::vector<Info>& infos) {
  const unsigned far = 1 - stream.from;
  const Info& info = infos[device.world().links[stream.link].ends[far].member];
  const uint32_t* const windows = info.windows[stream.link][far];
  Target made{info.areas[op.remote.area] + op.remote.at, info.rkeys[op.remote.region], windows[1]};
  if (op.by_window) made.rkey = windows[stream.window == Window::kType1 ? 0 : 1];
  if (op.bad_remote) made.rkey ^= 0x5a5a00;
  return made;
}

void post_plain(ibv_qp* qp, const Op& op, uint64_t name, unsigned flags, Parts* parts,
                const Target& target) {
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = name;
  wr.opcode = opcode_of(op.kind);
  wr.send_flags = flags | (op.inlined ? unsigned{IBV_SEND_INLINE} : 0);
  wr.sg_list = parts->sges.data();
  wr.num_sge = static_cast<int>(parts->sges.size());
  if (has_immediate(op.kind)) wr.imm_data = op.immediate;
  if (op.kind == Kind::kSendInvalidate) wr.invalidate_rkey = target.invalidated;
  if (is_atomic(op.kind))
    wr.wr.atomic = {target.addr, op.operand, op.swap, target.rkey};
  else
    wr.wr.rdma = {target.addr, target.rkey};
  if (const int error = ibv_post_send(qp, &wr, &bad); error != 0)
    fail("ibv_post_send of %s: %s", kKindNames[static_cast<size_t>(op.kind)], std::strerror(error));
}

void build(ibv_qp_ex* qp, const Op& op, uint64_t name, unsigned flags, Parts* parts,
           const Target& target) {
  qp->wr_id = name;
  qp->wr_flags = flags;
  switch (op.kind) {
    case Kind::kWrite:
      ibv_wr_rdma_write(qp, target.rkey, target.addr);
      break;
    case Kind::kWriteImmediate:
      ibv_wr_rdma_write_imm(qp, target.rkey, target.addr, op.immediate);
      break;
    case Kind::kSend:
      ibv_wr_send(qp);
      break;
    case Kind::kSendImmediate:
      ibv_wr_send_imm(qp, op.immediate);
      break;
    case Kind::kSendInvalidate:
      ibv_wr_send_inv(qp, target.invalidated);
      break;
    case Kind::kRead:
      ibv_wr_rdma_read(qp, target.rkey, target.addr);
      break;
    case Kind::kSwap:
      ibv_wr_atomic_cmp_swp(qp, target.rkey, target.addr, op.operand, op.swap);
      break;
    default:
      ibv_wr_atomic_fetch_add(qp, target.rkey, target.addr, op.operand);
      break;
  }
  if (!op.inlined) {
    ibv_wr_set_sge_list(qp, parts->sges.size(), parts->sges.data());
    return;
  }
  std::vector<ibv_data_buf> pieces;
  for (const ibv_sge& sge : parts->sges)
    pieces.push_back({reinterpret_cast<void*>(sge.addr), sge.length});
  ibv_wr_set_inline_data_list(qp, pieces.size(), pieces.data());
}

}  // namespace

void post(Device* device, const Endpoint& endpoint, const Stream& stream, const Op& op,
          const std::vector<Info>& infos, Random* random) {
  Parts parts = parts_of(*device, op);
  const Target target = target_of(*device, stream, op, infos);
  unsigned flags = 0;
  if (op.signaled) flags |= IBV_SEND_SIGNALED;
  if (op.fenced) flags |= IBV_SEND_FENCE;
  if (op.solicited) flags |= IBV_SEND_SOLICITED;
  if (ibv_qp_ex* const qp = endpoint.extended; qp != nullptr && random->one_in(16)) {
    ibv_wr_start(qp);
    build(qp, op, 0, flags, &parts, target);
    ibv_wr_abort(qp);
  }
  const uint64_t name =
      device->ledger().request(endpoint.qp->qp_num, completes_as(op.kind), op.length, op.signaled,
                               static_cast<int>(op.kind), op.by_window);
  if (endpoint.extended == nullptr) {
    post_plain(endpoint.qp, op, name, flags, &parts, target);
  } else {
    ibv_wr_start(endpoint.extended);
    build(endpoint.extended, op, name, flags, &parts, target);
    if (const int error = ibv_wr_complete(endpoint.extended); error != 0)
      fail("ibv_wr_complete of %s: %s", kKindNames[static_cast<size_t>(op.kind)],
           std::strerror(error));
  }
  // What was posted inline is the program's again.
  std::memset(parts.copy.data(), 0xdb, parts.copy.size());
}

void post_receives(Device* device, const Endpoint& endpoint, const Stream& stream, size_t first,
                   size_t count) {
  if (count == 0) return;
  std::vector<std::vector<ibv_sge>> sges(count);
  std::vector<ibv_recv_wr> wrs(count);
  for (size_t i = 0; i < count; ++i) {
    for (const Piece& piece : stream.receives[first + i].pieces)
      sges[i].push_back({reinterpret_cast<uint64_t>(device->at(piece)), piece.length,
                         device->region(piece.region)->lkey});
    wrs[i] = {};
    wrs[i].wr_id = device->ledger().receive(endpoint.qp->qp_num);
    wrs[i].sg_list = sges[i].data();
    wrs[i].num_sge = static_cast<int>(sges[i].size());
    wrs[i].next = i + 1 < count ? &wrs[i + 1] : nullptr;
  }
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(endpoint.qp, wrs.data(), &bad); error != 0)
    fail("ibv_post_recv: %s", std::strerror(error));
}

}  // namespace integrity
