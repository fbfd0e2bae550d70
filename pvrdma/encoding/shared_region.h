// The region of guest memory through which driver and device introduce themselves: the driver says
// where its command slots and rings are, the device what it can do.
// Source: struct pvrdma_device_shared_region of pvrdma_dev_api.h, Linux 6.1. Little-endian, except
// what says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vrdma::pvrdma {

struct RingPages {
  uint32_t pages;  // with the page of its indices
  uint32_t reserved;
  uint64_t directory;  // guest-physical
};

struct Capabilities {
  uint64_t fw_ver;
  uint64_t node_guid, sys_image_guid;  // big-endian
  uint64_t max_mr_size, page_size_cap, atomic_arg_sizes;
  uint32_t ex_comp_mask, device_cap_flags2, max_fa_bit_boundary, log_max_atomic_inline_arg;
  uint32_t vendor_id, vendor_part_id, hw_ver;
  uint32_t max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr;
  uint32_t max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom;
  uint32_t max_ee_init_rd_atom, max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp;
  uint32_t max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach, max_ah, max_fmr;
  uint32_t max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_uar, gid_tbl_len;
  uint16_t max_pkeys;
  uint8_t local_ca_ack_delay, phys_port_cnt, mode, atomic_ops, bmme_flags, gid_types;
  uint32_t max_fast_reg_page_list_len;
};
static_assert(sizeof(Capabilities) == 208 && offsetof(Capabilities, max_qp) == 76 &&
              offsetof(Capabilities, max_pd) == 108 && offsetof(Capabilities, max_srq) == 176 &&
              offsetof(Capabilities, gid_tbl_len) == 192 &&
              offsetof(Capabilities, gid_types) == 203);

struct SharedRegion {
  uint32_t driver_version, padding;
  uint32_t guest_os, padding2;
  uint64_t command_slot, response_slot;  // guest-physical, a page each
  RingPages events, completions;
  uint64_t doorbell_frame;  // of the kernel's page
  Capabilities capabilities;
};
static_assert(sizeof(SharedRegion) == 280 && offsetof(SharedRegion, events) == 32 &&
              offsetof(SharedRegion, capabilities) == 72);

// Of Capabilities.
constexpr uint8_t kRoceV2 = 2;                      // gid_types
constexpr uint8_t kAtomicSwap = 1, kAtomicAdd = 2;  // atomic_ops

// The driver gives both rings four pages and counts their entries as no power of two, so that it
// uses the first page of entries alone: as many as these.
constexpr uint32_t kEventEntries = 512, kCompletionEntries = 1024;

}  // namespace vrdma::pvrdma
