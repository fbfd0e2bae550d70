// The PCI function 15ad:0820 as a VM sees it: configuration space, registers, doorbells, vectors.
//
// The driver attaches by telling its shared region, and what it makes then lives in an Attachment.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "core/base/event_loop.h"
#include "pvrdma/function/attachment.h"
#include "pvrdma/vfio_user/function.h"

namespace vrdma::pvrdma {

class PciFunction final : public Function, Interrupts {
 public:
  // `loop` and `adapter` must outlive it.
  [[nodiscard]] static base::Result<std::unique_ptr<PciFunction>> create(base::EventLoop& loop,
                                                                         Adapter& adapter);

  [[nodiscard]] const Counts& counts() const { return counts_; }

  [[nodiscard]] RegionShape region(uint32_t index) const override;
  [[nodiscard]] uint32_t vectors() const override { return kVectors; }
  void read(uint32_t region, uint64_t offset, std::span<uint8_t> bytes) override;
  void write(uint32_t region, uint64_t offset, std::span<const uint8_t> bytes) override;
  void answered() override;
  [[nodiscard]] int map(const DmaRange& range, base::Fd file) override;
  [[nodiscard]] int unmap(uint64_t address, uint64_t length) override;
  void unmap_all() override { ram_->unmap_all(); }
  void set_vector(uint32_t vector, base::Fd eventfd) override;
  void reset() override;

 private:
  static constexpr size_t kConfigSize = 256;
  PciFunction(base::EventLoop& loop, Adapter& adapter);
  void write_config(uint64_t offset, std::span<const uint8_t> bytes);
  void write_register(uint64_t offset, uint32_t value);
  [[nodiscard]] uint32_t read_register(uint64_t offset) const;
  [[nodiscard]] uint64_t bar(uint32_t index) const;
  void attach(uint64_t address);
  void go_on();
  void raise(uint32_t vector) override;

  base::EventLoop& loop_;
  Adapter& adapter_;
  Counts counts_;
  base::Fd unused_page_;  // the VMM may map it; nobody looks at it
  std::array<uint8_t, kConfigSize> config_{};
  std::array<base::Fd, kVectors> vectors_;
  uint32_t region_low_ = 0, error_ = 0, mask_ = UINT32_MAX;
  std::unique_ptr<GuestRam> ram_;
  std::unique_ptr<Attachment> attachment_;
  base::EventLoop::Timer more_;
};

}  // namespace vrdma::pvrdma
