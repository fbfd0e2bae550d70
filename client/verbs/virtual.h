// The operations of a virtual device, one function for each verb.
//
// The library's exported symbols (exports_*.cc) and the inline functions of <infiniband/verbs.h>
// (through the operation tables that set_ops() fills) call these functions for virtual objects, and
// never for real ones.
//
// Each function has a weak definition in unsupported.cc that answers EOPNOTSUPP. To provide a verb,
// a device defines the function; nothing else changes.
//
// Conventions, as in the man pages of libibverbs:
//   - functions that return a pointer return nullptr and set errno on failure;
//   - functions that return int return 0 or a positive errno value, unless said otherwise here.
// Any thread may call these functions. They throw nothing.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The macros of verbs.h would rename our own functions of the same name.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace vrdma::client {

// ---- Devices ----------------------------------------------------------------------------------

// A vdevice in the device list; the device behind an `ibv_device*` of this library.
//
// Owner: the device list (device_list.cc). It counts references: one for each list that is not yet
// freed, one for each open context. While a vdevice is referenced, a new scan returns it at the
// same address. The fields never change after creation and are read without a lock.
struct VirtualDevice {
  ibv_device
      ibv;  // first: programs hold &ibv. dev_name is the name, dev_path and ibdev_path are empty
  // Providers identify their devices (mlx5dv_is_supported, efadv_...) by the word after ibv_device,
  // which points to the provider's table; for a vdevice it points to a block of zeros.
  const void* provider_ops;
  uint64_t node_guid;   // big endian, as ibv_get_device_guid returns it
  int index;            // ibv_get_device_index; -1: unknown
  char session[256];    // path of the session socket
  uint64_t generation;  // distinguishes vdevices that reuse a name and path
};

// One vdevice as scan_devices() finds it. Two finds are the same device if name, session, node_guid
// and generation are equal. The session path alone is not enough, because another vdevice may reuse
// it.
struct FoundDevice {
  std::string name;  // shorter than IBV_SYSFS_NAME_MAX
  std::string session;
  uint64_t node_guid = 0;
  int index = -1;
  uint64_t generation = 0;
  ibv_node_type node_type = IBV_NODE_CA;
  ibv_transport_type transport_type = IBV_TRANSPORT_IB;
};

// Appends the vdevices that this process may use, in a stable order; none if there is no daemon.
// Each ibv_get_device_list() calls it, possibly on several threads at once. While nothing changes
// it should cost no more than a directory listing. May throw std::bad_alloc.
// 0; EMFILE: this program has no descriptor to look with.
int scan_devices(std::vector<FoundDevice>* found);

// Opens a context, which begins with the struct that set_ops() expects. The caller holds a
// reference on `device` until close_device() returns 0. Objects of a closed context may still be
// destroyed: they keep its memory and `device`. EINVAL: the context is closed already.
ibv_context* open_device(VirtualDevice* device);
int close_device(ibv_context* context);

// The name of the vdevice whose context has the command descriptor `cmd_fd`; empty: not a vdevice.
std::string exported_device(int cmd_fd);
// ibv_import_device; `device` as in open_device(). On success the context owns `cmd_fd`.
ibv_context* import_device(VirtualDevice* device, int cmd_fd);

// True for an object of this library. `device` and `context` must be live objects of any
// libibverbs.
bool is_virtual(const ibv_device* device);
inline bool is_virtual(const ibv_context* context) { return is_virtual(context->device); }

// The device of an object for which is_virtual() is true.
inline VirtualDevice* virtual_device(ibv_device* device) {
  return reinterpret_cast<VirtualDevice*>(device);
}
inline VirtualDevice* virtual_device(const ibv_context* context) {
  return virtual_device(context->device);
}

// Fills both operation tables (context.ops and the verbs_context in front of it) with the functions
// of this header, and sets abi_compat, sz, device and the context's mutex. open_device() sets all
// other fields (cmd_fd, async_fd, num_comp_vectors). The device embeds the verbs_context in its own
// struct.
void set_ops(verbs_context* context, VirtualDevice* device);

// Runs once at a normal exit of the process: in the library's destructor, not at dlclose, because
// the library is never unloaded. Also runs in a forked child that calls exit(3).
void at_exit_goodbye();

// ---- Queries ----------------------------------------------------------------------------------

// The caller has zeroed `attr`. ibv_query_device uses the same answer (orig_attr).
int query_device_ex(ibv_context* context, ibv_device_attr_ex* attr);
// The caller has zeroed `attr`. EINVAL: no such port.
int query_port(ibv_context* context, uint32_t port_num, ibv_port_attr* attr);
// ENODATA: the table entry is empty; EINVAL: no such port or entry. ibv_query_gid (zero GID for an
// empty entry), ibv_query_gid_type and sgid lookups use this function.
int query_gid_ex(ibv_context* context, uint32_t port_num, uint32_t gid_index, ibv_gid_entry* entry);
// Copies the valid entries of all ports. Returns their number or -errno; -EINVAL if there are more
// than `max_entries`.
ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries);
// EINVAL: no such port or index. ibv_get_pkey_index tries one index after another.
int query_pkey(ibv_context* context, uint32_t port_num, int index, uint16_t* pkey_be);
int query_rt_values(ibv_context* context, ibv_values_ex* values);

// ---- Protection domains, memory regions and windows -------------------------------------------

ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* pd);
ibv_pd* import_pd(ibv_context* context, uint32_t handle);
void unimport_pd(ibv_pd* pd);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);

// Serves ibv_reg_mr, _iova and _iova2. `iova` is the address in work requests (equal to `addr` for
// ibv_reg_mr). `access` comes without the optional flags, which are hints (relaxed ordering). The
// new MR has all its public fields set.
ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access);
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                      unsigned int access);
// Returns 0, or IBV_REREG_MR_ERR_* (negative) with errno set. The caller has rejected unknown and
// empty flags and removed the optional access flags. pd, addr, length and access are valid only if
// `flags` name them.
int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, unsigned int access);
int dereg_mr(ibv_mr* mr);
ibv_mr* alloc_null_mr(ibv_pd* pd);
ibv_mr* import_mr(ibv_pd* pd, uint32_t handle);
void unimport_mr(ibv_mr* mr);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sg_list,
              uint32_t num_sge);

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr);
int free_dm(ibv_dm* dm);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned int access);
ibv_dm* import_dm(ibv_context* context, uint32_t handle);
void unimport_dm(ibv_dm* dm);

// ---- Completion queues and events -------------------------------------------------------------

ibv_comp_channel* create_comp_channel(ibv_context* context);
// EBUSY while a CQ uses it (refcnt, see events.h).
int destroy_comp_channel(ibv_comp_channel* channel);
// Also serves ibv_create_cq, with only cqe, cq_context, channel, comp_vector and the standard
// wc_flags set. The callee checks the bounds (cqe < 1, comp_vector): EINVAL.
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);
int resize_cq(ibv_cq* cq, int cqe);
int destroy_cq(ibv_cq* cq);
int poll_cq(ibv_cq* cq, int num_entries, ibv_wc* wc);  // number of completions, or < 0
int req_notify_cq(ibv_cq* cq, int solicited_only);
// Blocks unless channel->fd is O_NONBLOCK. Returns 0, or -1 with errno.
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
// Blocks unless context->async_fd is O_NONBLOCK. Returns 0, or -1 with errno.
int get_async_event(ibv_context* context, ibv_async_event* event);
// events.cc serves ibv_ack_cq_events and ibv_ack_async_event from the public fields alone.

// ---- Shared receive queues --------------------------------------------------------------------

// Also serves ibv_create_srq (comp_mask TYPE | PD, IBV_SRQT_BASIC). On success attr->attr holds the
// granted values.
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int attr_mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attr);
int get_srq_num(ibv_srq* srq, uint32_t* srq_num);
int destroy_srq(ibv_srq* srq);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int post_srq_ops(ibv_srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr);
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr);
int close_xrcd(ibv_xrcd* xrcd);

// ---- Queue pairs ------------------------------------------------------------------------------

// Also serves ibv_create_qp (comp_mask PD). On success attr->cap holds the granted values.
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr);
// nullptr with errno if the QP was created without send_ops_flags.
ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp);
// The callee sets qp->state on success.
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask);
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr);
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init_attr);
int query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, uint32_t flags);  // 1 or 0 (default: 0)
int destroy_qp(ibv_qp* qp);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);
int set_ece(ibv_qp* qp, ibv_ece* ece);
int query_ece(ibv_qp* qp, ibv_ece* ece);

// ---- Address handles --------------------------------------------------------------------------

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr);
int destroy_ah(ibv_ah* ah);
// Returns 0, or -1 with errno. The definition in address.cc serves any device that implements
// query_gid_ex. ibv_create_ah_from_wc calls it and create_ah.
int init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh,
                    ibv_ah_attr* attr);
int resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, uint8_t eth_mac[6],
                            uint16_t* vid);

// ---- fork -------------------------------------------------------------------------------------

// ibv_fork_init affects the whole process, so it also calls the real library's, if there is one.
int fork_init();                        // default: 0
ibv_fork_status is_fork_initialized();  // called only without a real library; default: UNNEEDED

// ---- Work queues, flows, counters --------------------------------------------------------------

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr);
int modify_wq(ibv_wq* wq, ibv_wq_attr* attr);
int destroy_wq(ibv_wq* wq);
ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attr);
int destroy_rwq_ind_table(ibv_rwq_ind_table* table);
ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr);
int destroy_flow(ibv_flow* flow);
ibv_flow_action* create_flow_action_esp(ibv_context* context, ibv_flow_action_esp_attr* attr);
int modify_flow_action_esp(ibv_flow_action* action, ibv_flow_action_esp_attr* attr);
int destroy_flow_action(ibv_flow_action* action);
ibv_counters* create_counters(ibv_context* context, ibv_counters_init_attr* attr);
int destroy_counters(ibv_counters* counters);
int attach_counters_point_flow(ibv_counters* counters, ibv_counter_attach_attr* attr,
                               ibv_flow* flow);
int read_counters(ibv_counters* counters, uint64_t* values, uint32_t count, uint32_t flags);

}  // namespace vrdma::client
