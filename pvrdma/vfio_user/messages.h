// The messages of vfio-user: how a VMM reaches a device in another process.
// Source: docs/interop/vfio-user.rst of QEMU; the numbers of linux/vfio.h, which it uses. Both ends
// are on one host, so integers are in its order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace vrdma::pvrdma::vfio {

enum class Message : uint16_t {
  kVersion = 1,
  kDmaMap,
  kDmaUnmap,
  kDeviceInfo,
  kRegionInfo,
  kRegionIoFds,
  kIrqInfo,
  kSetIrqs,
  kRegionRead,
  kRegionWrite,
  kDmaRead,
  kDmaWrite,
  kReset,
  kRegionWriteMulti = 15,
  kFeature,
  kMigrationRead,
  kMigrationWrite,
};

// The specification's name, without VFIO_USER_.
[[nodiscard]] inline std::string name_of(uint16_t message) {
  static constexpr std::array kNames = {"",
                                        "VERSION",
                                        "DMA_MAP",
                                        "DMA_UNMAP",
                                        "DEVICE_GET_INFO",
                                        "DEVICE_GET_REGION_INFO",
                                        "DEVICE_GET_REGION_IO_FDS",
                                        "DEVICE_GET_IRQ_INFO",
                                        "DEVICE_SET_IRQS",
                                        "REGION_READ",
                                        "REGION_WRITE",
                                        "DMA_READ",
                                        "DMA_WRITE",
                                        "DEVICE_RESET",
                                        "",
                                        "REGION_WRITE_MULTI",
                                        "DEVICE_FEATURE",
                                        "MIG_DATA_READ",
                                        "MIG_DATA_WRITE"};
  if (message < kNames.size() && *kNames[message] != 0) return kNames[message];
  return "message " + std::to_string(message);
}

struct Header {
  uint16_t id;
  uint16_t message;
  uint32_t size;  // with the header
  uint32_t flags;
  uint32_t error;  // an errno, with kError
};
static_assert(sizeof(Header) == 16);
constexpr uint32_t kTypeMask = 0xf, kCommandType = 0, kReplyType = 1;  // of flags
constexpr uint32_t kNoReply = 0x10, kError = 0x20;

// Followed by JSON text that ends with NUL.
struct Version {
  uint16_t major, minor;
};
static_assert(sizeof(Version) == 4);

// `argsz` of the structs that follow: in a request, how long its answer may be, or, where the
// answer has no payload, how long the request is; in an answer, how long the whole answer would be.

struct DmaMap {
  uint32_t argsz, flags;
  uint64_t offset, address, size;
};
static_assert(sizeof(DmaMap) == 32);
constexpr uint32_t kMayRead = 1, kMayWrite = 2;

struct DmaUnmap {
  uint32_t argsz, flags;
  uint64_t address, size;
};
static_assert(sizeof(DmaUnmap) == 24);
constexpr uint32_t kUnmapAll = 2;

struct DeviceInfo {
  uint32_t argsz, flags, regions, irqs;
};
static_assert(sizeof(DeviceInfo) == 16);
constexpr uint32_t kCanReset = 1, kIsPci = 2;

struct RegionInfo {
  uint32_t argsz, flags, index, capability;
  uint64_t size, offset;
};
static_assert(sizeof(RegionInfo) == 32);
constexpr uint32_t kCanRead = 1, kCanWrite = 2, kCanMap = 4, kHasCapability = 8;
// VFIO_REGION_INFO_CAP_SPARSE_MMAP with one area.
struct SparseMap {
  uint16_t id, version;
  uint32_t next, areas, reserved;
  uint64_t offset, size;
};
static_assert(sizeof(SparseMap) == 32);

struct IrqInfo {
  uint32_t argsz, flags, index, count;
};
static_assert(sizeof(IrqInfo) == 16);
constexpr uint32_t kEventfds = 1, kFixedCount = 8;

// Followed by what the flags say.
struct SetIrqs {
  uint32_t argsz, flags, index, start, count;
};
static_assert(sizeof(SetIrqs) == 20);
constexpr uint32_t kDataNone = 1, kDataBool = 2, kDataEventfd = 4;  // one of these
constexpr uint32_t kMask = 8, kUnmask = 16, kTrigger = 32;          // and one of these

// Followed by `count` bytes.
struct RegionAccess {
  uint64_t offset;
  uint32_t region, count;
};
static_assert(sizeof(RegionAccess) == 16);

// Of kRegionWriteMulti: a uint64_t, and so many of these.
struct PostedWrite {
  uint64_t offset;
  uint32_t region, count;
  uint8_t bytes[8];
};
static_assert(sizeof(PostedWrite) == 24);

constexpr uint32_t kMostFds = 8;            // in a message; the VMM is told so
constexpr uint32_t kMostBytes = 64 * 1024;  // of a message; QEMU's longest has 4,824

}  // namespace vrdma::pvrdma::vfio
