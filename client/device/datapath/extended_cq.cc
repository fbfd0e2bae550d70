// The extended completion queue: ibv_start_poll and the fields of the current completion
// (ibv_create_cq_ex(3)). Takes one completion at a time from the queue pairs. From ibv_start_poll
// to ibv_end_poll the calling thread owns the queue; IBV_CREATE_CQ_ATTR_SINGLE_THREADED makes the
// lock unnecessary.
#include <cerrno>
#include <ctime>

#include "client/device/objects.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {

namespace {

constexpr uint64_t kTimestamps =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

Cq& cq_of(ibv_cq_ex* cq) { return *reinterpret_cast<Cq*>(cq); }
const ibv_wc& wc_of(ibv_cq_ex* cq) { return cq_of(cq).current; }

uint64_t nanoseconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

int next_poll(ibv_cq_ex* ibv) {
  Cq& cq = cq_of(ibv);
  const int got = poll_cq(ibv_cq_ex_to_cq(ibv), 1, &cq.current);
  if (got < 0) return EINVAL;
  if (got == 0) return ENOENT;
  if ((cq.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0)
    cq.current_ticks = nanoseconds(kCompletionClock);
  if ((cq.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0)
    cq.current_wallclock_ns = nanoseconds(CLOCK_REALTIME);
  ibv->wr_id = cq.current.wr_id;
  ibv->status = cq.current.status;
  return 0;
}

int start_poll(ibv_cq_ex* ibv, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  Cq& cq = cq_of(ibv);
  if (!cq.single_threaded) cq.reading.lock();
  const int error = next_poll(ibv);
  if (error != 0 && !cq.single_threaded) cq.reading.unlock();
  return error;
}

void end_poll(ibv_cq_ex* ibv) {
  if (!cq_of(ibv).single_threaded) cq_of(ibv).reading.unlock();
}

}  // namespace

bool extended_flags_known(const ibv_cq_init_attr_ex& attr) {
  constexpr uint64_t kFlags =
      IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  if ((attr.wc_flags & ~(uint64_t{IBV_WC_STANDARD_FLAGS} | kTimestamps)) != 0) return false;
  if ((attr.comp_mask & ~uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD}) != 0)
    return false;
  return (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) == 0 || (attr.flags & ~kFlags) == 0;
}

void set_extended_ops(Cq& cq, const ibv_cq_init_attr_ex& attr) {
  const uint64_t wc_flags = attr.wc_flags;
  cq.wc_flags = wc_flags;
  cq.single_threaded = (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 &&
                       (attr.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  ibv_cq_ex& ops = cq.ibv;
  ops.start_poll = start_poll;
  ops.next_poll = next_poll;
  ops.end_poll = end_poll;
  ops.read_opcode = [](ibv_cq_ex* at) { return wc_of(at).opcode; };
  ops.read_vendor_err = [](ibv_cq_ex* at) { return wc_of(at).vendor_err; };
  ops.read_byte_len = [](ibv_cq_ex* at) { return wc_of(at).byte_len; };
  ops.read_imm_data = [](ibv_cq_ex* at) { return wc_of(at).imm_data; };
  ops.read_qp_num = [](ibv_cq_ex* at) { return wc_of(at).qp_num; };
  ops.read_src_qp = [](ibv_cq_ex* at) { return wc_of(at).src_qp; };
  ops.read_wc_flags = [](ibv_cq_ex* at) { return wc_of(at).wc_flags; };
  ops.read_slid = [](ibv_cq_ex* at) { return uint32_t{wc_of(at).slid}; };
  ops.read_sl = [](ibv_cq_ex* at) { return wc_of(at).sl; };
  ops.read_dlid_path_bits = [](ibv_cq_ex* at) { return wc_of(at).dlid_path_bits; };
  if ((wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0)
    ops.read_completion_ts = [](ibv_cq_ex* at) { return cq_of(at).current_ticks; };
  if ((wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0)
    ops.read_completion_wallclock_ns = [](ibv_cq_ex* at) { return cq_of(at).current_wallclock_ns; };
}

}  // namespace vrdma::client
