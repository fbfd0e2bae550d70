// The answer of every verb that no device provides: EOPNOTSUPP, in the form that the verb
// prescribes.
//
// One table for all of virtual.h. The definitions are weak: a function of virtual.h that is defined
// elsewhere in the library replaces its line here.
#include <cerrno>

#include "client/verbs/virtual.h"

#define WEAK __attribute__((weak))

namespace vrdma::client {
namespace {

std::nullptr_t null() {
  errno = EOPNOTSUPP;
  return nullptr;
}

int minus_one() {
  errno = EOPNOTSUPP;
  return -1;
}

template <class WorkRequest>
int refuse(WorkRequest* wr, WorkRequest** bad_wr) {
  *bad_wr = wr;
  return EOPNOTSUPP;
}

}  // namespace

static_assert(IBV_REREG_MR_ERR_INPUT == -1);  // rereg_mr's answer: the MR is unchanged

WEAK int scan_devices(std::vector<FoundDevice>*) { return 0; }
WEAK ibv_context* open_device(VirtualDevice*) { return null(); }
WEAK int close_device(ibv_context*) { return EOPNOTSUPP; }
WEAK std::string exported_device(int) { return {}; }
WEAK ibv_context* import_device(VirtualDevice*, int) { return null(); }
WEAK void at_exit_goodbye() {}

WEAK int query_device_ex(ibv_context*, ibv_device_attr_ex*) { return EOPNOTSUPP; }
WEAK int query_port(ibv_context*, uint32_t, ibv_port_attr*) { return EOPNOTSUPP; }
WEAK int query_gid_ex(ibv_context*, uint32_t, uint32_t, ibv_gid_entry*) { return EOPNOTSUPP; }
WEAK ssize_t query_gid_table(ibv_context*, ibv_gid_entry*, size_t) { return -EOPNOTSUPP; }
WEAK int query_pkey(ibv_context*, uint32_t, int, uint16_t*) { return EOPNOTSUPP; }
WEAK int query_rt_values(ibv_context*, ibv_values_ex*) { return EOPNOTSUPP; }
WEAK ibv_pd* alloc_pd(ibv_context*) { return null(); }
WEAK int dealloc_pd(ibv_pd*) { return EOPNOTSUPP; }
WEAK ibv_pd* import_pd(ibv_context*, uint32_t) { return null(); }
WEAK void unimport_pd(ibv_pd*) {}
WEAK ibv_td* alloc_td(ibv_context*, ibv_td_init_attr*) { return null(); }
WEAK int dealloc_td(ibv_td*) { return EOPNOTSUPP; }
WEAK ibv_pd* alloc_parent_domain(ibv_context*, ibv_parent_domain_init_attr*) { return null(); }
WEAK ibv_mr* reg_mr(ibv_pd*, void*, size_t, uint64_t, unsigned int) { return null(); }
WEAK ibv_mr* reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, unsigned int) {
  return null();
}
WEAK int rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, unsigned int) { return minus_one(); }
WEAK int dereg_mr(ibv_mr*) { return EOPNOTSUPP; }
WEAK ibv_mr* alloc_null_mr(ibv_pd*) { return null(); }
WEAK ibv_mr* import_mr(ibv_pd*, uint32_t) { return null(); }
WEAK void unimport_mr(ibv_mr*) {}
WEAK int advise_mr(ibv_pd*, ibv_advise_mr_advice, uint32_t, ibv_sge*, uint32_t) {
  return EOPNOTSUPP;
}
WEAK ibv_mw* alloc_mw(ibv_pd*, ibv_mw_type) { return null(); }
WEAK int dealloc_mw(ibv_mw*) { return EOPNOTSUPP; }
WEAK int bind_mw(ibv_qp*, ibv_mw*, ibv_mw_bind*) { return EOPNOTSUPP; }
WEAK ibv_dm* alloc_dm(ibv_context*, ibv_alloc_dm_attr*) { return null(); }
WEAK int free_dm(ibv_dm*) { return EOPNOTSUPP; }
WEAK ibv_mr* reg_dm_mr(ibv_pd*, ibv_dm*, uint64_t, size_t, unsigned int) { return null(); }
WEAK ibv_dm* import_dm(ibv_context*, uint32_t) { return null(); }
WEAK void unimport_dm(ibv_dm*) {}
WEAK ibv_comp_channel* create_comp_channel(ibv_context*) { return null(); }
WEAK int destroy_comp_channel(ibv_comp_channel*) { return EOPNOTSUPP; }
WEAK ibv_cq_ex* create_cq_ex(ibv_context*, ibv_cq_init_attr_ex*) { return null(); }
WEAK int modify_cq(ibv_cq*, ibv_modify_cq_attr*) { return EOPNOTSUPP; }
WEAK int resize_cq(ibv_cq*, int) { return EOPNOTSUPP; }
WEAK int destroy_cq(ibv_cq*) { return EOPNOTSUPP; }
WEAK int poll_cq(ibv_cq*, int, ibv_wc*) { return minus_one(); }
WEAK int req_notify_cq(ibv_cq*, int) { return EOPNOTSUPP; }
WEAK int get_cq_event(ibv_comp_channel*, ibv_cq**, void**) { return minus_one(); }
WEAK int get_async_event(ibv_context*, ibv_async_event*) { return minus_one(); }
WEAK ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex*) { return null(); }
WEAK int modify_srq(ibv_srq*, ibv_srq_attr*, int) { return EOPNOTSUPP; }
WEAK int query_srq(ibv_srq*, ibv_srq_attr*) { return EOPNOTSUPP; }
WEAK int get_srq_num(ibv_srq*, uint32_t*) { return EOPNOTSUPP; }
WEAK int destroy_srq(ibv_srq*) { return EOPNOTSUPP; }
WEAK int post_srq_recv(ibv_srq*, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  return refuse(wr, bad_wr);
}
WEAK int post_srq_ops(ibv_srq*, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) { return refuse(wr, bad_wr); }
WEAK ibv_xrcd* open_xrcd(ibv_context*, ibv_xrcd_init_attr*) { return null(); }
WEAK int close_xrcd(ibv_xrcd*) { return EOPNOTSUPP; }
WEAK ibv_qp* create_qp_ex(ibv_context*, ibv_qp_init_attr_ex*) { return null(); }
WEAK ibv_qp* open_qp(ibv_context*, ibv_qp_open_attr*) { return null(); }
WEAK ibv_qp_ex* qp_to_qp_ex(ibv_qp*) { return null(); }
WEAK int modify_qp(ibv_qp*, ibv_qp_attr*, int) { return EOPNOTSUPP; }
WEAK int modify_qp_rate_limit(ibv_qp*, ibv_qp_rate_limit_attr*) { return EOPNOTSUPP; }
WEAK int query_qp(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*) { return EOPNOTSUPP; }
WEAK int query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; }
WEAK int destroy_qp(ibv_qp*) { return EOPNOTSUPP; }
WEAK int post_send(ibv_qp*, ibv_send_wr* wr, ibv_send_wr** bad_wr) { return refuse(wr, bad_wr); }
WEAK int post_recv(ibv_qp*, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) { return refuse(wr, bad_wr); }
WEAK int attach_mcast(ibv_qp*, const ibv_gid*, uint16_t) { return EOPNOTSUPP; }
WEAK int detach_mcast(ibv_qp*, const ibv_gid*, uint16_t) { return EOPNOTSUPP; }
WEAK int set_ece(ibv_qp*, ibv_ece*) { return EOPNOTSUPP; }
WEAK int query_ece(ibv_qp*, ibv_ece*) { return EOPNOTSUPP; }
WEAK ibv_ah* create_ah(ibv_pd*, ibv_ah_attr*) { return null(); }
WEAK int destroy_ah(ibv_ah*) { return EOPNOTSUPP; }
WEAK int resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, uint8_t[6], uint16_t*) {
  return EOPNOTSUPP;
}
WEAK int fork_init() { return 0; }
WEAK ibv_fork_status is_fork_initialized() { return IBV_FORK_UNNEEDED; }
WEAK ibv_wq* create_wq(ibv_context*, ibv_wq_init_attr*) { return null(); }
WEAK int modify_wq(ibv_wq*, ibv_wq_attr*) { return EOPNOTSUPP; }
WEAK int destroy_wq(ibv_wq*) { return EOPNOTSUPP; }
WEAK ibv_rwq_ind_table* create_rwq_ind_table(ibv_context*, ibv_rwq_ind_table_init_attr*) {
  return null();
}
WEAK int destroy_rwq_ind_table(ibv_rwq_ind_table*) { return EOPNOTSUPP; }
WEAK ibv_flow* create_flow(ibv_qp*, ibv_flow_attr*) { return null(); }
WEAK int destroy_flow(ibv_flow*) { return EOPNOTSUPP; }
WEAK ibv_flow_action* create_flow_action_esp(ibv_context*, ibv_flow_action_esp_attr*) {
  return null();
}
WEAK int modify_flow_action_esp(ibv_flow_action*, ibv_flow_action_esp_attr*) { return EOPNOTSUPP; }
WEAK int destroy_flow_action(ibv_flow_action*) { return EOPNOTSUPP; }
WEAK ibv_counters* create_counters(ibv_context*, ibv_counters_init_attr*) { return null(); }
WEAK int destroy_counters(ibv_counters*) { return EOPNOTSUPP; }
WEAK int attach_counters_point_flow(ibv_counters*, ibv_counter_attach_attr*, ibv_flow*) {
  return EOPNOTSUPP;
}
WEAK int read_counters(ibv_counters*, uint64_t*, uint32_t, uint32_t) { return EOPNOTSUPP; }

}  // namespace vrdma::client
