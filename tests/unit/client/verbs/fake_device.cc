// Minimal devices that show which function a verb reached: they return arguments in the public
// fields of new objects. FAKE_DEVICES contains their names, separated by commas; without it there
// are none.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "client/verbs/events.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {

constexpr int kGidTableLength = 4;

int scan_devices(std::vector<FoundDevice>* found) {
  const char* names = std::getenv("FAKE_DEVICES");
  if (names == nullptr) return 0;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    FoundDevice device;
    device.name = name;
    device.session = "/fake/" + name + ".sock";
    device.node_guid = 0x1122334455667788;
    device.index = 42;
    found->push_back(device);
  }
  return 0;
}

ibv_context* open_device(VirtualDevice* device) {
  if (std::strcmp(device->ibv.name, "broken") == 0) {
    errno = EACCES;
    return nullptr;
  }
  auto* context = new verbs_context{};
  set_ops(context, device);
  return &context->context;
}

int close_device(ibv_context* context) {
  ::pthread_mutex_destroy(&context->mutex);
  delete verbs_get_ctx(context);
  return 0;
}

int query_device_ex(ibv_context*, ibv_device_attr_ex* attr) {
  attr->orig_attr.max_qp = 17;
  attr->phys_port_cnt_ex = 1;
  return 0;
}

int query_port(ibv_context*, uint32_t port_num, ibv_port_attr* attr) {
  if (port_num != 1) return EINVAL;
  attr->gid_tbl_len = kGidTableLength;
  attr->flags = 7;
  attr->active_speed = 8;  // 10 Gb/s a lane
  attr->active_width = 4;  // 8 lanes
  attr->port_cap_flags2 = 0xbeef;
  return 0;
}

// Entry 1 is empty; entries 2 (RoCE v1) and 3 (v2) hold ::ffff:10.0.0.1.
int query_gid_ex(ibv_context*, uint32_t port_num, uint32_t index, ibv_gid_entry* entry) {
  if (port_num != 1 || index >= kGidTableLength) return EINVAL;
  if (index == 1) return ENODATA;
  entry->gid_index = index;
  entry->port_num = 1;
  entry->gid_type = index == 2 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  entry->ndev_ifindex = 9;
  const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  const uint8_t local[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1};
  std::memcpy(entry->gid.raw, index == 0 ? local : mapped, sizeof entry->gid.raw);
  return 0;
}

ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries) {
  size_t count = 0;
  for (uint32_t i = 0; i < kGidTableLength && count < max_entries; ++i)
    if (query_gid_ex(context, 1, i, &entries[count]) == 0) ++count;
  return static_cast<ssize_t>(count);
}

int query_pkey(ibv_context*, uint32_t port_num, int index, uint16_t* pkey_be) {
  if (port_num != 1 || index < 0 || index > 1) return EINVAL;
  *pkey_be = index == 0 ? 0xffff : 0x0180;
  return 0;
}

ibv_pd* alloc_pd(ibv_context* context) { return new ibv_pd{context, 5}; }

int dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access) {
  return new ibv_mr{pd->context, pd, addr, length, access, static_cast<uint32_t>(iova), 0};
}

int rereg_mr(ibv_mr* mr, int flags, ibv_pd*, void*, size_t, unsigned int access) {
  mr->handle = access;
  mr->rkey = static_cast<uint32_t>(flags);
  return 0;
}

int dereg_mr(ibv_mr* mr) {
  delete mr;
  return 0;
}

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  return new ibv_comp_channel{context, -1, 0};
}

int destroy_comp_channel(ibv_comp_channel* channel) {
  if (!channel_is_unused(channel)) return EBUSY;
  delete channel;
  return 0;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  auto* cq = new ibv_cq_ex{};
  init_cq(ibv_cq_ex_to_cq(cq), context, attr->channel, attr->cq_context);
  cq->cqe = static_cast<int>(attr->cqe);
  cq->handle = static_cast<uint32_t>(attr->wc_flags);
  return cq;
}

// Reports two completion events and one asynchronous event as delivered.
int destroy_cq(ibv_cq* cq) {
  finish_cq(cq, 2, 1);
  delete reinterpret_cast<ibv_cq_ex*>(cq);
  return 0;
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  auto* srq = new ibv_srq{};
  init_srq(srq, context, attr->pd, attr->srq_context);
  srq->handle = attr->comp_mask;
  attr->attr.max_wr = 64;
  return srq;
}

int destroy_srq(ibv_srq* srq) {
  finish_srq(srq, 1);
  delete srq;
  return 0;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  auto* qp = new ibv_qp{};
  init_qp(qp, context, *attr);
  qp->handle = attr->comp_mask;
  attr->cap.max_send_wr = 128;
  return qp;
}

int destroy_qp(ibv_qp* qp) {
  finish_qp(qp, 1);
  delete qp;
  return 0;
}

int post_send(ibv_qp*, ibv_send_wr* wr, ibv_send_wr**) {
  wr->wr_id = 77;
  return 0;
}

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return new ibv_ah{pd->context, pd, attr->grh.sgid_index};
}

int destroy_ah(ibv_ah* ah) {
  delete ah;
  return 0;
}

}  // namespace vrdma::client
