#include "tests/unit/pvrdma/fake_verbs.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "client/verbs/shortcuts.h"
#include "core/ipc/page_table.h"

namespace vrdma::fake {

Verbs* Verbs::now = nullptr;

namespace {

ibv_mr* reg_shown_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access) {
  return make_mr(pd, addr, length, iova, static_cast<int>(access), true);
}

void must(bool holds) {
  if (!holds) std::abort();
}

template <class Object, class Ibv>
Object* of(Ibv* ibv) {
  return reinterpret_cast<Object*>(ibv);  // its first member
}

std::vector<ibv_sge> list(const ibv_sge* first, int count) { return {first, first + count}; }

int post_send(ibv_qp* ibv, ibv_send_wr* wr, ibv_send_wr** bad) {
  ++Verbs::now->posts;
  Qp* const qp = of<Qp>(ibv);
  *bad = wr;
  if (qp->sends.size() >= qp->init.cap.max_send_wr) return ENOMEM;
  if (wr->num_sge < 0 || static_cast<uint32_t>(wr->num_sge) > qp->init.cap.max_send_sge)
    return EINVAL;
  must(qp->attr.qp_state >= IBV_QPS_RTS);
  qp->sends.push_back({*wr, list(wr->sg_list, wr->num_sge)});
  return 0;
}

int post_recv(ibv_qp* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  ++Verbs::now->posts;
  Qp* const qp = of<Qp>(ibv);
  *bad = wr;
  must(qp->init.srq == nullptr && qp->attr.qp_state != IBV_QPS_RESET);
  if (qp->receives.size() >= qp->init.cap.max_recv_wr) return ENOMEM;
  qp->receives.push_back({wr->wr_id, list(wr->sg_list, wr->num_sge)});
  return 0;
}

int post_srq_recv(ibv_srq* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  ++Verbs::now->posts;
  Srq* const srq = of<Srq>(ibv);
  *bad = wr;
  if (srq->receives.size() >= srq->max_wr) return ENOMEM;
  srq->receives.push_back({wr->wr_id, list(wr->sg_list, wr->num_sge)});
  return 0;
}

int poll_cq(ibv_cq* ibv, int most, ibv_wc* wcs) {
  Cq* const cq = of<Cq>(ibv);
  int count = 0;
  for (; count < most && !cq->ready.empty(); ++count) {
    wcs[count] = cq->ready.front();
    cq->ready.pop_front();
  }
  return count;
}

int req_notify_cq(ibv_cq* ibv, int) {
  of<Cq>(ibv)->is_armed = true;
  return 0;
}

}  // namespace

Verbs::Verbs() {
  must(now == nullptr);
  now = this;
  std::strcpy(device.name, "fake0");
  static const client::Shortcuts kShortcuts{
      .create_qp = nullptr,
      .connect_qp = nullptr,
      .fail_qp = nullptr,
      .is_lost = nullptr,
      .show_memory = [](ibv_context*, std::span<const int> files) { return now->show(files); },
      .reg_shown_mr = reg_shown_mr,
      .export_state = [](ibv_context*) { return &now->export_state; }};
  extended.priv = reinterpret_cast<verbs_ex_private*>(const_cast<client::Shortcuts*>(&kShortcuts));
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.device = &device;
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify_cq;
  context.ops.post_send = post_send;
  context.ops.post_recv = post_recv;
  context.ops.post_srq_recv = post_srq_recv;
  context.async_fd = ::eventfd(0, EFD_CLOEXEC);
  channel.context = &context;
  channel.fd = ::eventfd(0, EFD_CLOEXEC);
}

Verbs::~Verbs() {
  must(made_ == 0 && handles_ == 0 && regions_.empty() && qps.empty());
  ::close(context.async_fd);
  ::close(channel.fd);
  now = nullptr;
}

bool Verbs::may_make() {
  if (fail_after == 0) {
    errno = ENOMEM;
    return false;
  }
  if (fail_after != UINT32_MAX) --fail_after;
  ++made_;
  return true;
}

Qp* Verbs::find(uint32_t qpn) const {
  const auto found = qps.find(qpn);
  return found != qps.end() ? found->second : nullptr;
}

void Verbs::complete(ibv_cq* ibv, const ibv_wc& wc) {
  Cq* const cq = of<Cq>(ibv);
  cq->ready.push_back(wc);
  if (!std::exchange(cq->is_armed, false)) return;
  told.push_back(ibv);
  const uint64_t one = 1;
  must(::write(channel.fd, &one, sizeof one) == sizeof one);
}

void Verbs::event(ibv_event_type type, Qp* qp) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = &qp->ibv;
  events.push_back(event);
  const uint64_t one = 1;
  must(::write(context.async_fd, &one, sizeof one) == sizeof one);
}

uint32_t Verbs::add_region(const Region& region) {
  regions_[++next_key_] = region;
  return next_key_;
}

void Verbs::remove_region(uint32_t key) { must(regions_.erase(key) == 1); }

int Verbs::show(std::span<const int> files) {
  if (view_error != 0) return view_error;
  must(files.empty() || files.size() >= 2);
  ++views_;
  shown_.clear();
  for (const int file : files) shown_.emplace_back(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  return 0;
}

namespace {

// As maps(5) tells; no file: inode 0.
std::pair<ino_t, uint64_t> mapped_at(uint64_t addr) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0, to = 0, offset = 0, inode = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx %*s %lu", &from, &to, &offset, &inode) == 4 &&
        addr >= from && addr < to)
      return {inode, offset + (addr - from)};
  }
  return {};
}

}  // namespace

bool Verbs::is_shown_right(uint64_t addr, uint64_t length) const {
  constexpr uint64_t kPage = ipc::kShownPage;
  if (shown_.empty()) return false;
  for (uint64_t page = addr / kPage; page * kPage < addr + length; ++page) {
    ipc::PageEntry entry = 0;
    if (::pread(shown_[0].get(), &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)) !=
        sizeof entry)
      return false;
    const auto [inode, offset] = mapped_at(page * kPage);
    if (inode == 0 && entry == 0) continue;  // it was taken away
    const uint32_t file = entry >> ipc::kPageBits;
    struct stat status {};
    if (file == 0 || file >= shown_.size() || ::fstat(shown_[file].get(), &status) != 0 ||
        status.st_ino != inode || entry != ipc::page_entry(file - 1, offset / kPage))
      return false;
  }
  return true;
}

size_t Verbs::entries_of(const base::Fd& page_table) {
  size_t count = 0;
  for (off_t at = 0; (at = ::lseek(page_table.get(), at, SEEK_DATA)) >= 0;) {
    std::array<ipc::PageEntry, 1024> some{};
    const ssize_t got = ::pread(page_table.get(), some.data(), sizeof some, at);
    must(got == sizeof some);
    count += static_cast<size_t>(
        std::ranges::count_if(some, [](ipc::PageEntry entry) { return entry != 0; }));
    at += got;
  }
  return count;
}

// nullptr: a protection error, as an adapter finds it.
uint8_t* Verbs::resolve(uint32_t key, uint64_t addr, uint64_t length, int access) const {
  const auto found = regions_.find(key);
  if (found == regions_.end() || (found->second.access & access) != access) return nullptr;
  const Region& region = found->second;
  if (addr < region.iova || addr - region.iova > region.length ||
      length > region.length - (addr - region.iova))
    return nullptr;
  const uint64_t at = region.addr + (addr - region.iova);
  must(!region.shown || is_shown_right(at, length));
  if (!permits(at, length)) {
    // What is registered must be there, unless the VMM has taken it away, which workers see.
    must((region.access & IBV_ACCESS_ON_DEMAND) != 0 || region.shown);
    return nullptr;
  }
  return reinterpret_cast<uint8_t*>(at);
}

namespace {

ibv_wc made(const Qp* qp, uint64_t wr_id, ibv_wc_status status) {
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.status = status;
  wc.qp_num = qp->ibv.qp_num;
  return wc;
}

ibv_wc_opcode opcode_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

}  // namespace

void Verbs::flush(Qp* qp) {
  for (const Send& one : std::exchange(qp->sends, {}))
    complete(qp->init.send_cq, made(qp, one.wr.wr_id, IBV_WC_WR_FLUSH_ERR));
  for (const Receive& one : std::exchange(qp->receives, {})) {
    ibv_wc wc = made(qp, one.wr_id, IBV_WC_WR_FLUSH_ERR);
    wc.opcode = IBV_WC_RECV;  // as the vdevice says also of what failed
    complete(qp->init.recv_cq, wc);
  }
}

size_t Verbs::run() {
  size_t count = 0;
  for (const auto& [qpn, qp] : qps) {
    while (!qp->sends.empty() && qp->attr.qp_state == IBV_QPS_RTS) {
      const Send send = qp->sends.front();
      qp->sends.pop_front();
      execute(qp, send);
      ++count;
    }
    if (qp->attr.qp_state == IBV_QPS_ERR) flush(qp);
  }
  return count;
}

void Verbs::execute(Qp* qp, const Send& send) {
  const ibv_send_wr& wr = send.wr;
  const bool is_datagram = qp->init.qp_type != IBV_QPT_RC;
  Qp* const peer = find(is_datagram ? wr.wr.ud.remote_qpn : qp->attr.dest_qp_num);
  const auto fail = [&](ibv_wc_status status) {
    complete(qp->init.send_cq, made(qp, wr.wr_id, status));
    qp->attr.qp_state = IBV_QPS_ERR;
    flush(qp);
  };
  uint64_t length = 0;
  bool is_local = true;
  const bool stores = wr.opcode == IBV_WR_RDMA_READ || wr.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP;
  for (const ibv_sge& one : send.sges) {
    length += one.length;
    is_local = is_local && resolve(one.lkey, one.addr, one.length,
                                   stores ? IBV_ACCESS_LOCAL_WRITE : 0) != nullptr;
  }
  if (!is_local) return fail(IBV_WC_LOC_PROT_ERR);
  if (peer == nullptr) {
    if (!is_datagram) return fail(IBV_WC_RETRY_EXC_ERR);
  } else if (wr.opcode == IBV_WR_RDMA_READ) {
    const uint8_t* const from =
        resolve(wr.wr.rdma.rkey, wr.wr.rdma.remote_addr, length, IBV_ACCESS_REMOTE_READ);
    if (from == nullptr) return fail(IBV_WC_REM_ACCESS_ERR);
    (void)scatter(send.sges, {from, from + length});
  } else if (wr.opcode == IBV_WR_RDMA_WRITE || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    uint8_t* const to =
        resolve(wr.wr.rdma.rkey, wr.wr.rdma.remote_addr, length, IBV_ACCESS_REMOTE_WRITE);
    if (to == nullptr) return fail(IBV_WC_REM_ACCESS_ERR);
    std::ranges::copy(gather(send.sges), to);
    if (wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) deliver(qp, peer, wr, {});
  } else if (wr.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
    uint8_t* const at =
        resolve(wr.wr.atomic.rkey, wr.wr.atomic.remote_addr, 8, IBV_ACCESS_REMOTE_ATOMIC);
    if (at == nullptr) return fail(IBV_WC_REM_ACCESS_ERR);
    uint64_t old = 0;
    std::memcpy(&old, at, 8);
    std::vector<uint8_t> bytes(8);
    std::memcpy(bytes.data(), &old, 8);
    const uint64_t next = wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? old + wr.wr.atomic.compare_add
                          : old == wr.wr.atomic.compare_add        ? wr.wr.atomic.swap
                                                                   : old;
    std::memcpy(at, &next, 8);
    (void)scatter(send.sges, bytes);
  } else {
    deliver(qp, peer, wr, gather(send.sges));
  }
  if (qp->init.sq_sig_all == 0 && (wr.send_flags & IBV_SEND_SIGNALED) == 0) return;
  ibv_wc wc = made(qp, wr.wr_id, IBV_WC_SUCCESS);
  wc.opcode = opcode_of(wr.opcode);
  wc.byte_len = static_cast<uint32_t>(length);
  complete(qp->init.send_cq, wc);
}

void Verbs::deliver(Qp* from, Qp* to, const ibv_send_wr& wr, const std::vector<uint8_t>& bytes) {
  auto& receives = to->init.srq != nullptr ? of<Srq>(to->init.srq)->receives : to->receives;
  if (receives.empty()) return;  // lost; the tests post before they send
  const Receive receive = receives.front();
  receives.pop_front();
  std::vector<uint8_t> all;
  if (to->init.qp_type != IBV_QPT_RC) all.resize(40);
  all.insert(all.end(), bytes.begin(), bytes.end());
  ibv_wc wc = made(to, receive.wr_id, IBV_WC_SUCCESS);
  wc.byte_len = scatter(receive.sges, all);
  wc.opcode = wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  if (to->init.qp_type != IBV_QPT_RC) wc.wc_flags |= IBV_WC_GRH;
  if (wr.opcode == IBV_WR_SEND_WITH_IMM || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = wr.imm_data;
  }
  wc.src_qp = from->ibv.qp_num;
  complete(to->init.recv_cq, wc);
}

std::vector<uint8_t> Verbs::gather(const std::vector<ibv_sge>& sges) const {
  std::vector<uint8_t> all;
  for (const ibv_sge& one : sges) {
    const uint8_t* const from = resolve(one.lkey, one.addr, one.length, 0);
    all.insert(all.end(), from, from + one.length);
  }
  return all;
}

uint32_t Verbs::scatter(const std::vector<ibv_sge>& sges, const std::vector<uint8_t>& bytes) const {
  size_t done = 0;
  for (const ibv_sge& one : sges) {
    const size_t count = std::min<size_t>(one.length, bytes.size() - done);
    uint8_t* const to = resolve(one.lkey, one.addr, count, IBV_ACCESS_LOCAL_WRITE);
    if (to != nullptr) std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(done), count, to);
    done += count;
  }
  return static_cast<uint32_t>(done);
}

}  // namespace vrdma::fake
