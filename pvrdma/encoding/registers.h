// The registers of a PVRDMA function (BAR 1) and its doorbells (BAR 2), and its configuration
// space. Source: drivers/infiniband/hw/vmw_pvrdma/pvrdma_dev_api.h of Linux 6.1, which Linux 7.3
// still has.
#pragma once

#include <cstdint>

namespace vrdma::pvrdma {

constexpr uint64_t kPageSize = 4096;  // of the interface, whatever pages the guest uses

// PCI. The driver looks for a vmxnet3 at function 0 of the same slot.
constexpr uint16_t kVendor = 0x15ad, kDeviceId = 0x0820;
constexpr uint32_t kMsixBar = 0, kRegisterBar = 1, kDoorbellBar = 2;
constexpr uint64_t kMsixBarSize = 4 * kPageSize;  // MSI-X table at 0
constexpr uint64_t kPendingBits = 0x2000;
constexpr uint64_t kUnusedPage = 0x3000;  // of the MSI-X BAR: for the VMM to map
constexpr uint64_t kRegisterBarSize = kPageSize;

// Vectors.
constexpr uint32_t kVectors = 3;
constexpr uint32_t kResponseVector = 0, kEventVector = 1, kCompletionVector = 2;

// Registers of 32 bits.
constexpr uint64_t kRegVersion = 0x00;     // read
constexpr uint64_t kRegRegionLow = 0x04;   // write
constexpr uint64_t kRegRegionHigh = 0x08;  // write; the shared region is looked at then
constexpr uint64_t kRegControl = 0x0c;     // write
constexpr uint64_t kRegRequest = 0x10;     // write 0: the slot holds a command
constexpr uint64_t kRegError = 0x14;       // read: 0, or the last command or control failed
constexpr uint64_t kRegMask = 0x1c;        // not 0: no interrupts

constexpr uint32_t kActivate = 0, kUnquiesce = 1, kReset = 2;

// 20: page frame numbers of 64 bits; a queue pair's number is not its handle. A driver of a version
// before it would take the one for the other, and cannot attach.
constexpr uint32_t kInterfaceVersion = 20;

// Doorbells: a page for each context; page 0 is the guest kernel's.
constexpr uint32_t kDoorbellPages = 256;
constexpr uint64_t kDoorbellBarSize = kDoorbellPages * kPageSize;
constexpr uint64_t kQpDoorbell = 0, kCqDoorbell = 4, kSrqDoorbell = 8;
constexpr uint32_t kHandleMask = 0x00ffffff;
constexpr uint32_t kQpSend = 1u << 30, kQpReceive = 1u << 31;
constexpr uint32_t kCqArmSolicited = 1u << 29, kCqArm = 1u << 30, kCqPoll = 1u << 31;
constexpr uint32_t kSrqReceive = 1u << 30;

}  // namespace vrdma::pvrdma
