// The operation tables of a virtual context, through which verbs.h's inline functions call
// virtual.h.
//
// Most entries point to the functions of virtual.h. If the table passes the size of the caller's
// structure (query_port, query_device_ex), a function here truncates the answer to that size.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/dial/guard.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {
namespace {

// Writes `answer` into a structure of `size` bytes from an older or newer verbs.h.
template <class T>
void give(const T& answer, T* out, size_t size) {
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &answer, std::min(size, sizeof answer));
}

int sized_query_port(ibv_context* context, uint8_t port_num, ibv_port_attr* attr, size_t size) {
  ibv_port_attr answer{};
  const int error = query_port(context, port_num, &answer);
  if (error == 0) give(answer, attr, size);
  return error;
}

int sized_query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                          ibv_device_attr_ex* attr, size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  ibv_device_attr_ex answer{};
  const int error = query_device_ex(context, &answer);
  if (error == 0) give(answer, attr, size);
  return error;
}

}  // namespace

void set_ops(verbs_context* all, VirtualDevice* device) {
  ibv_context& context = all->context;
  context.device = &device->ibv;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  ::pthread_mutex_init(&context.mutex, nullptr);

  context.ops = ibv_context_ops{};
  context.ops.alloc_mw = guarded<alloc_mw>;
  context.ops.bind_mw = guarded<bind_mw>;
  context.ops.dealloc_mw = guarded<dealloc_mw>;
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify_cq;
  context.ops.post_srq_recv = post_srq_recv;
  context.ops.post_send = post_send;
  context.ops.post_recv = post_recv;

  all->query_port = guarded<sized_query_port>;
  all->advise_mr = guarded<advise_mr>;
  all->alloc_null_mr = guarded<alloc_null_mr>;
  all->read_counters = guarded<read_counters>;
  all->attach_counters_point_flow = guarded<attach_counters_point_flow>;
  all->create_counters = guarded<create_counters>;
  all->destroy_counters = guarded<destroy_counters>;
  all->reg_dm_mr = guarded<reg_dm_mr>;
  all->alloc_dm = guarded<alloc_dm>;
  all->free_dm = guarded<free_dm>;
  all->modify_flow_action_esp = guarded<modify_flow_action_esp>;
  all->destroy_flow_action = guarded<destroy_flow_action>;
  all->create_flow_action_esp = guarded<create_flow_action_esp>;
  all->modify_qp_rate_limit = guarded<modify_qp_rate_limit>;
  all->alloc_parent_domain = guarded<alloc_parent_domain>;
  all->dealloc_td = guarded<dealloc_td>;
  all->alloc_td = guarded<alloc_td>;
  all->modify_cq = guarded<modify_cq>;
  all->post_srq_ops = guarded<post_srq_ops>;
  all->destroy_rwq_ind_table = guarded<destroy_rwq_ind_table>;
  all->create_rwq_ind_table = guarded<create_rwq_ind_table>;
  all->destroy_wq = guarded<destroy_wq>;
  all->modify_wq = guarded<modify_wq>;
  all->create_wq = guarded<create_wq>;
  all->query_rt_values = guarded<query_rt_values>;
  all->create_cq_ex = guarded<create_cq_ex>;
  all->priv = nullptr;
  all->query_device_ex = guarded<sized_query_device_ex>;
  all->ibv_destroy_flow = guarded<destroy_flow>;
  all->ABI_placeholder2 = nullptr;
  all->ibv_create_flow = guarded<create_flow>;
  all->ABI_placeholder1 = nullptr;
  all->open_qp = guarded<open_qp>;
  all->create_qp_ex = guarded<create_qp_ex>;
  all->get_srq_num = guarded<get_srq_num>;
  all->create_srq_ex = guarded<create_srq_ex>;
  all->open_xrcd = guarded<open_xrcd>;
  all->close_xrcd = guarded<close_xrcd>;
  all->_ABI_placeholder3 = 0;
  all->sz = sizeof *all;
}

}  // namespace vrdma::client
