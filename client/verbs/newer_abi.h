// Declarations in verbs.h of rdma-core 59 to 65 that Debian 12's lacks: structures and functions of
// IBVERBS_1.15 to 1.18. Remove each when the build machine's verbs.h has it.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

struct ibv_dmah {
  ibv_context* context;
};
struct ibv_dmah_init_attr;

enum ibv_mr_init_attr_mask {
  IBV_REG_MR_MASK_IOVA = 1 << 0,
  IBV_REG_MR_MASK_ADDR = 1 << 1,
  IBV_REG_MR_MASK_FD = 1 << 2,
  IBV_REG_MR_MASK_FD_OFFSET = 1 << 3,
  IBV_REG_MR_MASK_DMAH = 1 << 4,
  IBV_REG_MR_MASK_BUF = 1 << 5,
};

struct ibv_buf;

// rdma-core 64: a bit of ibv_parent_domain_init_attr::comp_mask. A permission for guests with
// encrypted memory. Programs set it on any device; a vdevice ignores it.
constexpr uint32_t IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC = 1 << 2;

// Fields that comp_mask does not name may be missing: in programs built before 64 the struct ends
// with `dmah`.
struct ibv_mr_init_attr {
  size_t length;
  int access;
  uint64_t comp_mask;  // ibv_mr_init_attr_mask
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  ibv_dmah* dmah;
  ibv_buf* buf;
};
static_assert(sizeof(ibv_mr_init_attr) == 72);

struct ibv_comp_cntr {
  ibv_context* context;
  uint32_t handle;
};
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

extern "C" {

ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attr);
int ibv_dealloc_dmah(ibv_dmah* dmah);
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr);

int ibv_dm_export_dmabuf_fd(ibv_dm* dm);
// `port_speed` in units of 100 Mb/s.
int ibv_query_port_speed(ibv_context* context, uint32_t port_num, uint64_t* port_speed);

void* ibv_alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf);
void ibv_free_buf(ibv_buf* buf);
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* addr, size_t length, int access);
int ibv_export_buf_dmabuf_fd(ibv_buf* buf);

int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps, size_t caps_size);
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context, ibv_comp_cntr_init_attr* attr);
int ibv_destroy_comp_cntr(ibv_comp_cntr* counter);
int ibv_set_comp_cntr(ibv_comp_cntr* counter, uint64_t value);
int ibv_set_err_comp_cntr(ibv_comp_cntr* counter, uint64_t value);
int ibv_inc_comp_cntr(ibv_comp_cntr* counter, uint64_t amount);
int ibv_inc_err_comp_cntr(ibv_comp_cntr* counter, uint64_t amount);
int ibv_read_comp_cntr(ibv_comp_cntr* counter, uint64_t* value);
int ibv_read_err_comp_cntr(ibv_comp_cntr* counter, uint64_t* value);
int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* counter, ibv_qp_attach_comp_cntr_attr* attr);

}  // extern "C"
