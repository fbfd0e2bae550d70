// A PCI function as a VM sees it, behind a vfio-user server (server.h).
//
// The server calls it on its loop's thread, in the order in which the VMM sent. Everything that
// arrives has the form that the protocol asks for: regions exist, accesses lie within them, ranges
// do not wrap. What the guest wrote is as hostile as before.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/fd.h"

namespace vrdma::pvrdma {

// Numbers of regions and interrupt types (linux/vfio.h, VFIO_PCI_*_REGION_INDEX and _IRQ_INDEX).
constexpr uint32_t kBar0 = 0, kConfigRegion = 7, kRegions = 9;
constexpr uint32_t kMsix = 2, kInterruptTypes = 5;

constexpr uint64_t kMostAccess = 256;  // bytes: QEMU reads a configuration space at once

// Of a BAR, that the VMM may map into the guest: guest's accesses there reach nobody. Bytes, whole
// pages of 4096.
struct Mappable {
  uint64_t offset = 0, length = 0;  // in the region, and in `file`
  const base::Fd* file = nullptr;   // as long as the region; the function keeps it
};
struct RegionShape {
  uint64_t size = 0;  // bytes; 0: there is none
  Mappable mappable;  // length 0: nothing
};

// A range of the guest's physical addresses. Bytes, whole pages.
struct DmaRange {
  uint64_t address = 0, length = 0;
  uint64_t offset = 0;  // in the file
  bool may_read = false, may_write = false;
};

class Function {
 public:
  virtual ~Function() = default;

  [[nodiscard]] virtual RegionShape region(uint32_t index) const = 0;
  // MSI-X vectors.
  [[nodiscard]] virtual uint32_t vectors() const = 0;

  // An access of the guest, or of the VMM to the configuration space; 1 to kMostAccess bytes.
  virtual void read(uint32_t region, uint64_t offset, std::span<uint8_t> bytes) = 0;
  virtual void write(uint32_t region, uint64_t offset, std::span<const uint8_t> bytes) = 0;
  // After the answer to an access has been sent: for work that the guest need not wait for.
  virtual void answered() = 0;

  // The guest has memory there from now on. `file` is invalid where the VMM shares none (firmware).
  // Returns 0, or the errno that the VMM gets, which then ends.
  [[nodiscard]] virtual int map(const DmaRange& range, base::Fd file) = 0;
  // Exactly a range that was mapped. When it returns nothing is accessed there any more.
  [[nodiscard]] virtual int unmap(uint64_t address, uint64_t length) = 0;
  virtual void unmap_all() = 0;

  // Where an interrupt goes: an eventfd, to which 1 is written. Invalid: nowhere.
  virtual void set_vector(uint32_t vector, base::Fd eventfd) = 0;

  // The VM starts anew.
  virtual void reset() = 0;

  // Around the moment from which on a message counts, also for the next process (progress.h):
  // before, what the calls above changed must be in memory that outlives this one; after, what was
  // kept for the case that they did not count may go.
  virtual void before_note() {}
  virtual void noted() {}
};

}  // namespace vrdma::pvrdma
