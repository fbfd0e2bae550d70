// What a device can do, whatever a quota leaves of it: the content of ibv_query_device_ex(3) and
// ibv_query_port(3) that never changes. The device's parent decides it.
//
// Values are those of <infiniband/verbs.h>; client/device asserts this.
#pragma once

#include <cstdint>

#include "core/verbs/types.h"

namespace vrdma::verbs {

// ibv_device_cap_flags.
enum DeviceFlag : uint32_t {
  kUdAvPortEnforce = 1u << 6,
  kCurrentQpStateModify = 1u << 7,
  kPortActiveEvent = 1u << 10,
  kSystemImageGuid = 1u << 11,
  kRnrNakGeneration = 1u << 12,
  kMemoryWindows = 1u << 17,
  kXrc = 1u << 20,
  kMemoryManagementExtensions = 1u << 21,
  kMemoryWindowsType2b = 1u << 24,
  kManagedFlowSteering = 1u << 29,
};

// ibv_atomic_cap.
enum class AtomicScope : uint32_t {
  kNone = 0,
  kDevice = 1,  // atomic with other operations of the device
  kGlobal = 2,  // and with those of processors
};

// ibv_odp_general_caps, ibv_odp_transport_cap_bits.
enum OdpFlag : uint32_t { kOdp = 1u << 0, kOdpImplicit = 1u << 1 };
enum OdpTransport : uint32_t {
  kOdpSend = 1u << 0,
  kOdpReceive = 1u << 1,
  kOdpWrite = 1u << 2,
  kOdpRead = 1u << 3,
  kOdpAtomic = 1u << 4,
  kOdpSharedReceive = 1u << 5,
};

constexpr uint32_t kPortCm = 1u << 16;  // ibv_port_cap_flags

// ibv_port_attr.active_width and active_speed.
enum class LinkWidth : uint32_t { k1x = 1, k4x = 2, k8x = 4, k12x = 8, k2x = 16 };
enum class LinkSpeed : uint32_t {
  kSdr = 1,
  kDdr = 2,
  kQdr = 4,
  kFdr10 = 8,
  kFdr = 16,
  kEdr = 32,
  kHdr = 64,
  kNdr = 128,
  kXdr = 256,
};

// Travels in messages: fields keep their place, and new ones are appended.
struct Capabilities {
  uint32_t stated;  // 0: the daemon states none
  uint32_t vendor_id, vendor_part_id, hardware_version;
  uint32_t flags;    // DeviceFlag
  uint32_t atomics;  // AtomicScope
  uint64_t page_sizes;
  uint64_t max_message;        // bytes
  uint64_t max_device_memory;  // bytes per context
  uint32_t max_sge, max_inline, max_rd_atomic;
  uint32_t max_mcast_groups, max_mcast_attach;
  uint32_t ack_delay;  // a code: 4.096 us * 2^code
  uint32_t odp, odp_rc, odp_uc, odp_ud, odp_xrc;
  uint32_t port_flags;
  uint32_t width, speed;
  uint32_t max_mtu;  // ibv_mtu
  uint32_t reserved;
  bool operator==(const Capabilities&) const = default;
};
static_assert(sizeof(Capabilities) == 112);

namespace soft {
constexpr uint32_t kOdpDatagrams = kOdpSend | kOdpReceive | kOdpSharedReceive;
constexpr uint32_t kOdpReliable = kOdpDatagrams | kOdpWrite | kOdpRead | kOdpAtomic;
}  // namespace soft

// Those of the parent `soft`. A daemon that states none has no other parent, so these must not
// change; the parent may state others.
inline constexpr Capabilities kSoftCapabilities = {
    .stated = 1,
    // An unassigned OUI: the bit for locally administered addresses is set.
    .vendor_id = 0x027672,
    .vendor_part_id = 1,
    .hardware_version = 1,
    .flags = kUdAvPortEnforce | kCurrentQpStateModify | kPortActiveEvent | kSystemImageGuid |
             kRnrNakGeneration | kMemoryWindows | kXrc | kMemoryManagementExtensions |
             kMemoryWindowsType2b,
    .atomics = static_cast<uint32_t>(AtomicScope::kDevice),
    .page_sizes = 0xfffff000,
    .max_message = kMaxMessage,
    .max_device_memory = 256u << 10,
    .max_sge = 16,
    .max_inline = 512,
    .max_rd_atomic = 128,
    .max_mcast_groups = 8192,
    .max_mcast_attach = 1024,
    .ack_delay = 15,
    // Memory on demand is reached, like any memory that is not in place.
    .odp = kOdp | kOdpImplicit,
    .odp_rc = soft::kOdpReliable,
    .odp_uc = soft::kOdpDatagrams | kOdpWrite,
    .odp_ud = soft::kOdpDatagrams,
    .odp_xrc = soft::kOdpReliable,
    .port_flags = kPortCm,
    // 8X FDR10, as the kernel's software devices report.
    .width = static_cast<uint32_t>(LinkWidth::k8x),
    .speed = static_cast<uint32_t>(LinkSpeed::kFdr10),
    .max_mtu = 5,
    .reserved = 0,
};

}  // namespace vrdma::verbs
