// Exported functions that no installed header declares. Their signatures are part of the ABI that
// Debian's 44.0 libraries and providers use among themselves.
#pragma once

#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include <cstddef>

// The macros of verbs.h would rename the functions that we define.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

extern "C" {

// What the sysfs file of a GID's type says: RoCE v2 or the older kinds, which it does not tell
// apart.
enum ibv_gid_type_sysfs {
  IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
  IBV_GID_TYPE_SYSFS_ROCE_V2,
};
int ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index,
                       ibv_gid_type_sysfs* type);

// Since 49, in its verbs.h.
const char* ibv_wr_opcode_str(ibv_wr_opcode opcode);

ibv_context* verbs_open_device(ibv_device* device, void* private_data);

const char* ibv_get_sysfs_path();
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size);

void ibv_copy_ah_attr_from_kern(ibv_ah_attr* dst, ib_uverbs_ah_attr* src);
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* dst, ib_uverbs_qp_attr* src);
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* dst, ib_user_path_rec* src);
void ibv_copy_path_rec_to_kern(ib_user_path_rec* dst, ibv_sa_path_rec* src);

// Data: a provider whose device has vanished then reports a failed destroy as done. The real
// library sets its own copy; device_list.cc carries the value over. One byte for the default
// version node, and one for all others (trampolines.S).
extern bool verbs_allow_disassociate_destroy;
__attribute__((visibility("hidden"))) extern bool vrdma_allow_disassociate_destroy;

}  // extern "C"
