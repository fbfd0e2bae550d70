// Exported functions that no installed header declares. Their signatures belong to the ABI between
// the libraries and providers of rdma-core 44.0 (Debian).
#pragma once

#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include <cstddef>

// The macros of verbs.h would rename the functions defined here.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

extern "C" {

// The GID type as its sysfs file reports it: RoCE v2 or an older type; the file does not
// distinguish the older types.
enum ibv_gid_type_sysfs {
  IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
  IBV_GID_TYPE_SYSFS_ROCE_V2,
};
int ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index,
                       ibv_gid_type_sysfs* type);

// Declared in verbs.h since rdma-core 49.
const char* ibv_wr_opcode_str(ibv_wr_opcode opcode);

ibv_context* verbs_open_device(ibv_device* device, void* private_data);

const char* ibv_get_sysfs_path();
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size);

void ibv_copy_ah_attr_from_kern(ibv_ah_attr* dst, ib_uverbs_ah_attr* src);
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* dst, ib_uverbs_qp_attr* src);
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* dst, ib_user_path_rec* src);
void ibv_copy_path_rec_to_kern(ib_user_path_rec* dst, ibv_sa_path_rec* src);

// If true, a provider reports success for a destroy that failed because its device has vanished.
// The real library writes its own copy; device_list.cc copies the value here. One byte for the
// default version node, and one for all others (trampolines.S).
extern bool verbs_allow_disassociate_destroy;
__attribute__((visibility("hidden"))) extern bool vrdma_allow_disassociate_destroy;

}  // extern "C"
