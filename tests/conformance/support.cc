// support: tries every verb, opcode and capability on a live device, and prints the result:
//
//   section <TAB> name <TAB> value        value: yes | no | a number | the error of a call
//
// support.h defines the values. support.py compares them with docs/verbs-support.md.
#include "tests/conformance/support.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

ibv_context* context;
ibv_pd* pd;
ibv_cq* cq;
ibv_mr* mr;
ibv_qp* rc;  // in RTS, connected to itself
ibv_srq* srq;
alignas(4096) char memory[4096];
int own_gid = 0;

ibv_qp* make_qp(ibv_qp_type type, uint64_t operations, ibv_xrcd* xrcd = nullptr) {
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = type;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = pd;
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {4, 4, 1, 1, 0};
  if (type == IBV_QPT_XRC_RECV) {
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd;
  }
  if (operations != 0) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = operations;
  }
  return ibv_create_qp_ex(context, &attr);
}

ibv_ah_attr own_address() {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.sgid_index = static_cast<uint8_t>(own_gid);
  attr.grh.hop_limit = 1;
  ibv_query_gid(context, 1, own_gid, &attr.grh.dgid);
  return attr;
}

void must(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "support: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

ibv_xrcd* open_domain() {
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = -1;
  attr.oflags = O_CREAT;
  return ibv_open_xrcd(context, &attr);
}

void set_up(const char* name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i)
    if (std::strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
  must(context != nullptr, name);
  ibv_free_device_list(list);
  must((pd = ibv_alloc_pd(context)) != nullptr, "PD");
  must((cq = ibv_create_cq(context, 64, nullptr, nullptr, 0)) != nullptr, "CQ");
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  must((mr = ibv_reg_mr(pd, memory, sizeof memory, kAccess)) != nullptr, "MR");
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {16, 1, 0};
  must((srq = ibv_create_srq(pd, &srq_attr)) != nullptr, "SRQ");
  must((rc = make_qp(IBV_QPT_RC, 0)) != nullptr, "QP");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  must(ibv_modify_qp(rc, &attr,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
       "INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = rc->qp_num;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
  attr.ah_attr = own_address();
  must(ibv_modify_qp(rc, &attr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
       "RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  must(ibv_modify_qp(rc, &attr,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
       "RTS");
}

void device_verbs() {
  verb("ibv_open_device", [] { return 0; });
  verb("ibv_import_device",
       [] { return made(ibv_import_device(::dup(context->cmd_fd)), ibv_close_device); });
  verb("ibv_query_device", [] {
    ibv_device_attr attr;
    return ibv_query_device(context, &attr);
  });
  verb("ibv_query_device_ex", [] {
    ibv_device_attr_ex attr;
    return ibv_query_device_ex(context, nullptr, &attr);
  });
  verb("ibv_query_port", [] {
    ibv_port_attr attr;
    return ibv_query_port(context, 1, &attr);
  });
  verb("ibv_query_gid", [] {
    ibv_gid gid;
    return result(ibv_query_gid(context, 1, 0, &gid));
  });
  verb("ibv_query_gid_ex", [] {
    ibv_gid_entry entry;
    return ibv_query_gid_ex(context, 1, 0, &entry, 0);
  });
  verb("ibv_query_gid_table", [] {
    std::vector<ibv_gid_entry> entries(256);
    const auto got = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
    return got < 0 ? static_cast<int>(-got) : 0;
  });
  verb("ibv_query_pkey", [] {
    __be16 pkey;
    return result(ibv_query_pkey(context, 1, 0, &pkey));
  });
  verb("ibv_get_pkey_index", [] { return ibv_get_pkey_index(context, 1, 0xffff) < 0 ? errno : 0; });
  verb("ibv_query_rt_values_ex", [] {
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    return ibv_query_rt_values_ex(context, &values);
  });
  verb("ibv_fork_init", [] { return ibv_fork_init(); });
}

void memory_verbs() {
  constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
  verb("ibv_alloc_pd", [] { return made(ibv_alloc_pd(context), ibv_dealloc_pd); });
  verb("ibv_import_pd", [] { return made(ibv_import_pd(context, pd->handle), ibv_unimport_pd); });
  verb("ibv_alloc_td", [] {
    ibv_td_init_attr attr{};
    return made(ibv_alloc_td(context, &attr), ibv_dealloc_td);
  });
  verb("ibv_alloc_parent_domain", [] {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd;
    return made(ibv_alloc_parent_domain(context, &attr), ibv_dealloc_pd);
  });
  verb("ibv_reg_mr", [] { return made(ibv_reg_mr(pd, memory, 64, kLocal), ibv_dereg_mr); });
  verb("ibv_reg_mr_iova",
       [] { return made(ibv_reg_mr_iova(pd, memory, 64, 4096, kLocal), ibv_dereg_mr); });
  verb("ibv_reg_mr (on demand)", [] {
    return made(ibv_reg_mr(pd, memory, 64, kLocal | IBV_ACCESS_ON_DEMAND), ibv_dereg_mr);
  });
  verb("ibv_reg_mr (on demand, implicit)", [] {
    return made(ibv_reg_mr(pd, nullptr, SIZE_MAX, kLocal | IBV_ACCESS_ON_DEMAND), ibv_dereg_mr);
  });
  verb("ibv_reg_mr (zero based)", [] {
    return made(ibv_reg_mr(pd, memory, 64, kLocal | IBV_ACCESS_ZERO_BASED), ibv_dereg_mr);
  });
  verb("ibv_reg_dmabuf_mr",
       [] { return made(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, kLocal), ibv_dereg_mr); });
  verb("ibv_rereg_mr", [] {
    ibv_mr* again = ibv_reg_mr(pd, memory, 64, kLocal);
    const int error = result(ibv_rereg_mr(again, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                                          kLocal | IBV_ACCESS_REMOTE_READ));
    ibv_dereg_mr(again);
    return error;
  });
  verb("ibv_import_mr", [] { return made(ibv_import_mr(pd, mr->handle), ibv_unimport_mr); });
  verb("ibv_alloc_null_mr", [] { return made(ibv_alloc_null_mr(pd), ibv_dereg_mr); });
  verb("ibv_advise_mr", [] {
    ibv_mr* on_demand = ibv_reg_mr(pd, memory, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    if (on_demand == nullptr) return errno;
    ibv_sge sge{reinterpret_cast<uintptr_t>(memory), 64, on_demand->lkey};
    const int error =
        ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
    ibv_dereg_mr(on_demand);
    return error;
  });
  verb("ibv_alloc_mw (type 1)",
       [] { return made(ibv_alloc_mw(pd, IBV_MW_TYPE_1), ibv_dealloc_mw); });
  verb("ibv_alloc_mw (type 2)",
       [] { return made(ibv_alloc_mw(pd, IBV_MW_TYPE_2), ibv_dealloc_mw); });
  verb("ibv_bind_mw", [] {
    ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    if (mw == nullptr) return errno;
    ibv_mr* bound = ibv_reg_mr(pd, memory, 64, kLocal | IBV_ACCESS_MW_BIND);
    if (bound == nullptr) return errno;
    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {bound, reinterpret_cast<uintptr_t>(memory), 64, IBV_ACCESS_REMOTE_READ};
    const int error = ibv_bind_mw(rc, mw, &bind);
    ibv_wc wc{};
    while (error == 0 && ibv_poll_cq(cq, 1, &wc) == 0) {
    }
    ibv_dealloc_mw(mw);
    ibv_dereg_mr(bound);
    return error != 0 ? error : wc.status == IBV_WC_SUCCESS ? 0 : EIO;
  });
  verb("ibv_alloc_dm", [] {
    ibv_alloc_dm_attr attr{};
    attr.length = 64;
    return made(ibv_alloc_dm(context, &attr), ibv_free_dm);
  });
  verb("ibv_import_dm", [] {
    ibv_alloc_dm_attr attr{};
    attr.length = 64;
    ibv_dm* dm = ibv_alloc_dm(context, &attr);
    if (dm == nullptr) return errno;
    const int error = made(ibv_import_dm(context, dm->handle), ibv_unimport_dm);
    ibv_free_dm(dm);
    return error;
  });
}

void completion_verbs() {
  verb("ibv_create_comp_channel",
       [] { return made(ibv_create_comp_channel(context), ibv_destroy_comp_channel); });
  verb("ibv_create_cq",
       [] { return made(ibv_create_cq(context, 8, nullptr, nullptr, 0), ibv_destroy_cq); });
  const auto extended = [](uint64_t flags) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 8;
    attr.wc_flags = flags;
    return made(ibv_create_cq_ex(context, &attr),
                [](ibv_cq_ex* made) { ibv_destroy_cq(ibv_cq_ex_to_cq(made)); });
  };
  verb("ibv_create_cq_ex", [&] { return extended(IBV_WC_STANDARD_FLAGS); });
  verb("ibv_create_cq_ex (timestamp)",
       [&] { return extended(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP); });
  verb("ibv_create_cq_ex (wall clock)",
       [&] { return extended(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK); });
  verb("ibv_create_cq_ex (VLAN)", [&] { return extended(IBV_WC_EX_WITH_CVLAN); });
  verb("ibv_create_cq_ex (flow tag)", [&] { return extended(IBV_WC_EX_WITH_FLOW_TAG); });
  verb("ibv_create_cq_ex (tag matching)", [&] { return extended(IBV_WC_EX_WITH_TM_INFO); });
  verb("ibv_modify_cq", [] {
    ibv_modify_cq_attr attr{IBV_CQ_ATTR_MODERATE, {1, 1}};
    return ibv_modify_cq(cq, &attr);
  });
  verb("ibv_resize_cq", [] { return ibv_resize_cq(cq, 128); });
  verb("ibv_req_notify_cq", [] { return ibv_req_notify_cq(cq, 0); });
  verb("ibv_create_srq", [] {
    ibv_srq_init_attr attr{};
    attr.attr = {4, 1, 0};
    return made(ibv_create_srq(pd, &attr), ibv_destroy_srq);
  });
  const auto srq_of = [](ibv_srq_type type, ibv_xrcd* xrcd) {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {4, 1, 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = type;
    attr.pd = pd;
    attr.cq = cq;
    attr.xrcd = xrcd;
    if (xrcd != nullptr) attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
    if (type == IBV_SRQT_TM) {
      attr.comp_mask |= IBV_SRQ_INIT_ATTR_TM;
      attr.tm_cap = {1, 1};
    }
    return ibv_create_srq_ex(context, &attr);
  };
  verb("ibv_create_srq_ex (basic)",
       [&] { return made(srq_of(IBV_SRQT_BASIC, nullptr), ibv_destroy_srq); });
  verb("ibv_create_srq_ex (tag matching)",
       [&] { return made(srq_of(IBV_SRQT_TM, nullptr), ibv_destroy_srq); });
  verb("ibv_query_srq", [] {
    ibv_srq_attr attr;
    return ibv_query_srq(srq, &attr);
  });
  verb("ibv_modify_srq (limit)", [] {
    ibv_srq_attr attr{0, 0, 1};
    return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
  });
  verb("ibv_modify_srq (size)", [] {
    ibv_srq_attr attr{32, 0, 0};
    return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
  });
  verb("ibv_post_srq_recv", [] {
    ibv_recv_wr wr{}, *bad;
    return ibv_post_srq_recv(srq, &wr, &bad);
  });
  verb("ibv_post_srq_ops", [] {
    ibv_ops_wr wr{}, *bad;
    wr.opcode = IBV_WR_TAG_SYNC;
    return ibv_post_srq_ops(srq, &wr, &bad);
  });
  ibv_xrcd* const domain = open_domain();
  const int no_domain = domain == nullptr ? errno : 0;
  verb("ibv_open_xrcd", [&] { return no_domain; });
  verb("ibv_create_srq_ex (XRC)", [&] {
    return domain == nullptr ? no_domain : made(srq_of(IBV_SRQT_XRC, domain), ibv_destroy_srq);
  });
  if (domain != nullptr) ibv_close_xrcd(domain);
}

void queue_verbs() {
  ibv_xrcd* const domain = open_domain();
  const std::pair<const char*, ibv_qp_type> types[] = {
      {"RC", IBV_QPT_RC},
      {"UC", IBV_QPT_UC},
      {"UD", IBV_QPT_UD},
      {"XRC_SEND", IBV_QPT_XRC_SEND},
      {"XRC_RECV", IBV_QPT_XRC_RECV},
      {"RAW_PACKET", IBV_QPT_RAW_PACKET},
      {"GSI", static_cast<ibv_qp_type>(1)},  // the kernel's IB_QPT_GSI
      {"DRIVER", IBV_QPT_DRIVER},
  };
  for (const auto& [name, type] : types)
    verb(std::string("ibv_create_qp_ex (") + name + ")",
         [&, kind = type] { return made(make_qp(kind, 0, domain), ibv_destroy_qp); });
  verb("ibv_open_qp", [&]() -> int {
    ibv_qp* target = domain == nullptr ? nullptr : make_qp(IBV_QPT_XRC_RECV, 0, domain);
    if (target == nullptr) return errno;
    ibv_qp_open_attr attr{};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = target->qp_num;
    attr.xrcd = domain;
    attr.qp_type = IBV_QPT_XRC_RECV;
    const int error = made(ibv_open_qp(context, &attr), ibv_destroy_qp);
    ibv_destroy_qp(target);
    return error;
  });
  if (domain != nullptr) ibv_close_xrcd(domain);
  verb("ibv_query_qp", [] {
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    return ibv_query_qp(rc, &attr, IBV_QP_STATE, &init);
  });
  verb("ibv_modify_qp_rate_limit", [] {
    ibv_qp_rate_limit_attr attr{};
    attr.rate_limit = 1000;
    return ibv_modify_qp_rate_limit(rc, &attr);
  });
  verb("ibv_query_ece", [] {
    ibv_ece ece;
    return ibv_query_ece(rc, &ece);
  });
  verb("ibv_set_ece", [] {
    ibv_ece ece{1, 1, 0};
    return ibv_set_ece(rc, &ece);
  });
  verb("ibv_attach_mcast", [] {
    ibv_gid group{};
    group.raw[0] = 0xff;
    group.raw[15] = 9;
    ibv_qp* ud = make_qp(IBV_QPT_UD, 0);
    const int error = ibv_attach_mcast(ud, &group, 0);
    if (error == 0) ibv_detach_mcast(ud, &group, 0);
    ibv_destroy_qp(ud);
    return error;
  });
  ibv_ah_attr address = own_address();
  verb("ibv_create_ah", [&] { return made(ibv_create_ah(pd, &address), ibv_destroy_ah); });
  verb("ibv_resolve_eth_l2_from_gid", [&] {
    uint8_t mac[6];
    uint16_t vlan;
    return result(ibv_resolve_eth_l2_from_gid(context, &address, mac, &vlan));
  });
  verb("ibv_create_wq", [] {
    ibv_wq_init_attr attr{};
    attr.max_wr = attr.max_sge = 1;
    attr.pd = pd;
    attr.cq = cq;
    return made(ibv_create_wq(context, &attr), ibv_destroy_wq);
  });
  verb("ibv_create_rwq_ind_table", [] {
    ibv_rwq_ind_table_init_attr attr{};
    return made(ibv_create_rwq_ind_table(context, &attr), ibv_destroy_rwq_ind_table);
  });
  verb("ibv_create_flow", [] {
    ibv_qp* raw = make_qp(IBV_QPT_RAW_PACKET, 0);
    ibv_flow_attr attr{};
    attr.type = IBV_FLOW_ATTR_SNIFFER;
    attr.size = sizeof attr;
    attr.port = 1;
    const int error = made(ibv_create_flow(raw != nullptr ? raw : rc, &attr), ibv_destroy_flow);
    if (raw != nullptr) ibv_destroy_qp(raw);
    return error;
  });
  verb("ibv_create_flow_action_esp", [] {
    ibv_flow_action_esp_attr attr{};
    return made(ibv_create_flow_action_esp(context, &attr), ibv_destroy_flow_action);
  });
  verb("ibv_create_counters", [] {
    ibv_counters_init_attr attr{};
    return made(ibv_create_counters(context, &attr), ibv_destroy_counters);
  });
}

void opcodes() {
  const std::pair<const char*, ibv_qp_type> types[] = {
      {"RC", IBV_QPT_RC}, {"UC", IBV_QPT_UC}, {"UD", IBV_QPT_UD}, {"XRC", IBV_QPT_XRC_SEND}};
  const std::pair<const char*, uint64_t> operations[] = {
      {"SEND", IBV_QP_EX_WITH_SEND},
      {"SEND_WITH_IMM", IBV_QP_EX_WITH_SEND_WITH_IMM},
      {"SEND_WITH_INV", IBV_QP_EX_WITH_SEND_WITH_INV},
      {"RDMA_WRITE", IBV_QP_EX_WITH_RDMA_WRITE},
      {"RDMA_WRITE_WITH_IMM", IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM},
      {"RDMA_READ", IBV_QP_EX_WITH_RDMA_READ},
      {"ATOMIC_CMP_AND_SWP", IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP},
      {"ATOMIC_FETCH_AND_ADD", IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD},
      {"ATOMIC_WRITE", IBV_QP_EX_WITH_ATOMIC_WRITE},
      {"LOCAL_INV", IBV_QP_EX_WITH_LOCAL_INV},
      {"BIND_MW", IBV_QP_EX_WITH_BIND_MW},
      {"TSO", IBV_QP_EX_WITH_TSO},
  };
  for (const auto& [type_name, type] : types)
    for (const auto& [name, operation] : operations)
      line("opcodes", std::string(type_name) + " " + name,
           answer(made(make_qp(type, operation), ibv_destroy_qp)));
}

void capabilities() {
  ibv_device_attr_ex attr{};
  must(ibv_query_device_ex(context, nullptr, &attr) == 0, "ibv_query_device_ex");
  ibv_port_attr port{};
  must(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
  const ibv_device_attr& device = attr.orig_attr;
#define FIELD(from, field) line("capabilities", #field, std::to_string(from.field))
  FIELD(device, max_mr_size);
  FIELD(device, page_size_cap);
  FIELD(device, max_qp);
  FIELD(device, max_qp_wr);
  FIELD(device, max_sge);
  FIELD(device, max_sge_rd);
  FIELD(device, max_cq);
  FIELD(device, max_cqe);
  FIELD(device, max_mr);
  FIELD(device, max_pd);
  FIELD(device, max_qp_rd_atom);
  FIELD(device, max_res_rd_atom);
  FIELD(device, max_qp_init_rd_atom);
  FIELD(device, atomic_cap);
  FIELD(device, max_mw);
  FIELD(device, max_mcast_grp);
  FIELD(device, max_mcast_qp_attach);
  FIELD(device, max_total_mcast_qp_attach);
  FIELD(device, max_ah);
  FIELD(device, max_srq);
  FIELD(device, max_srq_wr);
  FIELD(device, max_srq_sge);
  FIELD(device, max_pkeys);
  FIELD(device, local_ca_ack_delay);
  FIELD(device, phys_port_cnt);
  FIELD(attr, odp_caps.general_caps);
  FIELD(attr, odp_caps.per_transport_caps.rc_odp_caps);
  FIELD(attr, odp_caps.per_transport_caps.uc_odp_caps);
  FIELD(attr, odp_caps.per_transport_caps.ud_odp_caps);
  FIELD(attr, xrc_odp_caps);
  FIELD(attr, completion_timestamp_mask);
  FIELD(attr, hca_core_clock);
  FIELD(attr, device_cap_flags_ex);
  FIELD(attr, tso_caps.max_tso);
  FIELD(attr, rss_caps.supported_qpts);
  FIELD(attr, max_wq_type_rq);
  FIELD(attr, packet_pacing_caps.supported_qpts);
  FIELD(attr, raw_packet_caps);
  FIELD(attr, tm_caps.max_num_tags);
  FIELD(attr, cq_mod_caps.max_cq_count);
  FIELD(attr, max_dm_size);
  FIELD(attr, pci_atomic_caps.fetch_add);
  FIELD(port, max_mtu);
  FIELD(port, max_msg_sz);
  FIELD(port, pkey_tbl_len);
  FIELD(port, port_cap_flags);
#undef FIELD
#define FLAG(name) line("flags", #name, (device.device_cap_flags & name) != 0 ? "yes" : "no")
  FLAG(IBV_DEVICE_RESIZE_MAX_WR);
  FLAG(IBV_DEVICE_BAD_PKEY_CNTR);
  FLAG(IBV_DEVICE_BAD_QKEY_CNTR);
  FLAG(IBV_DEVICE_RAW_MULTI);
  FLAG(IBV_DEVICE_AUTO_PATH_MIG);
  FLAG(IBV_DEVICE_CHANGE_PHY_PORT);
  FLAG(IBV_DEVICE_UD_AV_PORT_ENFORCE);
  FLAG(IBV_DEVICE_CURR_QP_STATE_MOD);
  FLAG(IBV_DEVICE_SHUTDOWN_PORT);
  FLAG(IBV_DEVICE_INIT_TYPE);
  FLAG(IBV_DEVICE_PORT_ACTIVE_EVENT);
  FLAG(IBV_DEVICE_SYS_IMAGE_GUID);
  FLAG(IBV_DEVICE_RC_RNR_NAK_GEN);
  FLAG(IBV_DEVICE_SRQ_RESIZE);
  FLAG(IBV_DEVICE_N_NOTIFY_CQ);
  FLAG(IBV_DEVICE_MEM_WINDOW);
  FLAG(IBV_DEVICE_UD_IP_CSUM);
  FLAG(IBV_DEVICE_XRC);
  FLAG(IBV_DEVICE_MEM_MGT_EXTENSIONS);
  FLAG(IBV_DEVICE_MEM_WINDOW_TYPE_2A);
  FLAG(IBV_DEVICE_MEM_WINDOW_TYPE_2B);
  FLAG(IBV_DEVICE_RC_IP_CSUM);
  FLAG(IBV_DEVICE_RAW_IP_CSUM);
  FLAG(IBV_DEVICE_MANAGED_FLOW_STEERING);
#undef FLAG
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: support DEVICE\n", stderr);
    return 2;
  }
  set_up(argv[1]);
  device_verbs();
  memory_verbs();
  newer_verbs(context, pd);
  completion_verbs();
  queue_verbs();
  opcodes();
  capabilities();
  return 0;
}
