// Exported verbs of rdma-core 59 to 65 (IBVERBS_1.15 to 1.18). On a virtual device, other verbs
// implement them, or they fail with EOPNOTSUPP: only adapters have DMA handles and completion
// counters.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <new>

#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/verbs/newer_abi.h"
#include "client/verbs/real.h"
#include "client/verbs/virtual.h"

using namespace vrdma::client;  // NOLINT: this file is nothing but the way from C to this namespace

namespace {

std::nullptr_t null(int error) {
  errno = error;
  return nullptr;
}

int fail(int error) { return errno = error; }

// Speed of a lane by active_speed of ibv_port_attr, and number of lanes, as in the kernel's
// ib_port_attr_to_rate. 0: unknown.
unsigned lane_speed(unsigned active_speed) {
  switch (active_speed) {
    case 1:
      return 25;  // SDR
    case 2:
      return 50;
    case 4:
    case 8:
      return 100;  // QDR, FDR10
    case 16:
      return 140;
    case 32:
      return 250;
    case 64:
      return 500;
    case 128:
      return 1000;
    default:
      return 0;
  }
}
unsigned lanes(unsigned active_width) {
  switch (active_width) {
    case 1:
      return 1;
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 0;
  }
}

// A buffer of a virtual device. The real library's handles begin with the address of a page, ours
// with the address of a word inside a page, so they are never equal.
struct OwnBuffer {
  const void* tag;
  void* address;
  size_t size;
  ibv_pd* pd;
};
alignas(16) const char kTagged[16] = {};
const void* const kTag = &kTagged[1];

OwnBuffer* own_buffer(ibv_buf* buffer) {
  auto* ours = reinterpret_cast<OwnBuffer*>(buffer);
  return ours->tag == kTag ? ours : nullptr;
}

// True if [address, address + length) is inside the buffer.
bool contains(const OwnBuffer& buffer, const void* address, size_t length) {
  const auto offset =
      reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(buffer.address);
  return offset <= buffer.size && length <= buffer.size - offset;
}

ibv_mr* reg_virtual_mr(ibv_pd* pd, const ibv_mr_init_attr& attr) {
  constexpr uint64_t kKnown = IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_FD |
                              IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_BUF;
  const uint64_t has = attr.comp_mask;
  if ((has & ~kKnown) != 0) return null(EOPNOTSUPP);
  const auto all = [&](uint64_t wanted) { return (has & wanted) == wanted; };
  const auto any = [&](uint64_t wanted) { return (has & wanted) != 0; };
  if (any(IBV_REG_MR_MASK_BUF)) {
    const OwnBuffer* buffer = own_buffer(attr.buf);
    if (buffer == nullptr || buffer->pd != pd || !any(IBV_REG_MR_MASK_ADDR) ||
        any(IBV_REG_MR_MASK_FD) || !contains(*buffer, attr.addr, attr.length))
      return null(EINVAL);
  }
  const unsigned int access = static_cast<unsigned int>(attr.access) &
                              ~static_cast<unsigned int>(IBV_ACCESS_OPTIONAL_RANGE);
  if (any(IBV_REG_MR_MASK_FD)) {
    if (any(IBV_REG_MR_MASK_ADDR) || !all(IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA))
      return null(EINVAL);
    return guarded<reg_dmabuf_mr>(pd, attr.fd_offset, attr.length, attr.iova, attr.fd, access);
  }
  if (!any(IBV_REG_MR_MASK_ADDR) || any(IBV_REG_MR_MASK_FD_OFFSET)) return null(EINVAL);
  const uint64_t iova =
      any(IBV_REG_MR_MASK_IOVA) ? attr.iova : reinterpret_cast<uintptr_t>(attr.addr);
  return guarded<reg_mr>(pd, attr.addr, attr.length, iova, access);
}

}  // namespace

VRDMA_EXPORT int ibv_query_port_speed(ibv_context* context, uint32_t port_num,
                                      uint64_t* port_speed) {
  if (!is_virtual(context)) return real_ibv_query_port_speed(context, port_num, port_speed);
  ibv_port_attr attr{};
  if (const int error = guarded<query_port>(context, port_num, &attr); error != 0) return error;
  const unsigned speed = lane_speed(attr.active_speed) * lanes(attr.active_width);
  if (speed == 0) return fail(EOPNOTSUPP);
  *port_speed = speed;
  return 0;
}

// ---- Memory -----------------------------------------------------------------------------------

VRDMA_EXPORT ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr) {
  return is_virtual(pd->context) ? reg_virtual_mr(pd, *attr) : real_ibv_reg_mr_ex(pd, attr);
}

VRDMA_EXPORT void* ibv_alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf) {
  if (!is_virtual(pd->context)) return real_ibv_alloc_buf(pd, size, buf);
  void* address = nullptr;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  if (const int error = ::posix_memalign(&address, page, size); error != 0) return null(error);
  auto* made = new (std::nothrow) OwnBuffer{kTag, address, size, pd};
  if (made == nullptr) {
    std::free(address);
    return null(ENOMEM);
  }
  *buf = reinterpret_cast<ibv_buf*>(made);
  return address;
}

VRDMA_EXPORT void ibv_free_buf(ibv_buf* buf) {
  OwnBuffer* ours = own_buffer(buf);
  if (ours == nullptr) return real_ibv_free_buf(buf);
  std::free(ours->address);
  delete ours;
}

VRDMA_EXPORT ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* addr, size_t length,
                                    int access) {
  if (!is_virtual(pd->context)) return real_ibv_reg_buf_mr(pd, buf, addr, length, access);
  ibv_mr_init_attr attr{};
  attr.length = length;
  attr.access = access;
  attr.comp_mask = IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_ADDR;
  attr.addr = addr;
  attr.buf = buf;
  return reg_virtual_mr(pd, attr);
}

VRDMA_EXPORT int ibv_export_buf_dmabuf_fd(ibv_buf* buf) {
  if (own_buffer(buf) == nullptr) return real_ibv_export_buf_dmabuf_fd(buf);
  errno = ENODATA;  // not a DMA buffer
  return -1;
}

VRDMA_EXPORT int ibv_dm_export_dmabuf_fd(ibv_dm* dm) {
  if (!is_virtual(dm->context)) return real_ibv_dm_export_dmabuf_fd(dm);
  errno = EOPNOTSUPP;
  return -1;
}

// ---- DMA handles ------------------------------------------------------------------------------

VRDMA_EXPORT ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attr) {
  return is_virtual(context) ? null(EOPNOTSUPP) : real_ibv_alloc_dmah(context, attr);
}

VRDMA_EXPORT int ibv_dealloc_dmah(ibv_dmah* dmah) {
  return is_virtual(dmah->context) ? fail(EOPNOTSUPP) : real_ibv_dealloc_dmah(dmah);
}

// ---- Completion counters ----------------------------------------------------------------------

VRDMA_EXPORT int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps,
                                           size_t caps_size) {
  return is_virtual(context) ? fail(EOPNOTSUPP)
                             : real__ibv_query_comp_cntr_caps(context, caps, caps_size);
}

VRDMA_EXPORT ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context,
                                                 ibv_comp_cntr_init_attr* attr) {
  return is_virtual(context) ? null(EOPNOTSUPP) : real_ibv_create_comp_cntr(context, attr);
}

VRDMA_EXPORT int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* counter,
                                         ibv_qp_attach_comp_cntr_attr* attr) {
  return is_virtual(qp->context) ? fail(EOPNOTSUPP)
                                 : real_ibv_qp_attach_comp_cntr(qp, counter, attr);
}

#define VRDMA_OF_COUNTER(name, parameters, ...)                                        \
  VRDMA_EXPORT int name parameters {                                                   \
    return is_virtual(counter->context) ? fail(EOPNOTSUPP) : real_##name(__VA_ARGS__); \
  }
VRDMA_OF_COUNTER(ibv_destroy_comp_cntr, (ibv_comp_cntr * counter), counter)
VRDMA_OF_COUNTER(ibv_set_comp_cntr, (ibv_comp_cntr * counter, uint64_t value), counter, value)
VRDMA_OF_COUNTER(ibv_set_err_comp_cntr, (ibv_comp_cntr * counter, uint64_t value), counter, value)
VRDMA_OF_COUNTER(ibv_inc_comp_cntr, (ibv_comp_cntr * counter, uint64_t amount), counter, amount)
VRDMA_OF_COUNTER(ibv_inc_err_comp_cntr, (ibv_comp_cntr * counter, uint64_t amount), counter, amount)
VRDMA_OF_COUNTER(ibv_read_comp_cntr, (ibv_comp_cntr * counter, uint64_t* value), counter, value)
VRDMA_OF_COUNTER(ibv_read_err_comp_cntr, (ibv_comp_cntr * counter, uint64_t* value), counter, value)
