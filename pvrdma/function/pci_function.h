// The PCI function 15ad:0820 as a VM sees it: configuration space, registers, doorbells, vectors.
//
// The driver attaches by telling its shared region, and what it makes then lives in an Attachment.
// All that the next process needs to be the same function is in an Image, and the descriptors are
// in custody.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/base/event_loop.h"
#include "pvrdma/function/attachment.h"
#include "pvrdma/function/image.h"
#include "pvrdma/keeper/custody.h"
#include "pvrdma/vfio_user/function.h"

namespace vrdma::pvrdma {

class PciFunction final : public Function, Interrupts {
 public:
  // Slots of descriptors in custody: of vectors, and then of ranges of memory.
  static constexpr uint32_t kSlots = kVectors + GuestRam::kMostRanges;

  // As `image` says, which is of zeros at first; `held` gives what is in custody, once. All others
  // must outlive it.
  [[nodiscard]] static base::Result<std::unique_ptr<PciFunction>> create(
      base::EventLoop& loop, Adapter& adapter, Image& image, Custody& custody,
      const std::function<base::Fd(uint32_t slot)>& held);

  [[nodiscard]] const Counts& counts() const { return image_.counts; }
  // The VMM has gone, with its machine.
  void clear();

  [[nodiscard]] RegionShape region(uint32_t index) const override;
  [[nodiscard]] uint32_t vectors() const override { return kVectors; }
  void read(uint32_t region, uint64_t offset, std::span<uint8_t> bytes) override;
  void write(uint32_t region, uint64_t offset, std::span<const uint8_t> bytes) override;
  void answered() override;
  [[nodiscard]] int map(const DmaRange& range, base::Fd file) override;
  [[nodiscard]] int unmap(uint64_t address, uint64_t length) override;
  void unmap_all() override;
  void set_vector(uint32_t vector, base::Fd eventfd) override;
  void reset() override;
  void before_note() override;
  void noted() override;

 private:
  static constexpr size_t kConfigSize = 256;
  PciFunction(base::EventLoop& loop, Adapter& adapter, Image& image, Custody& custody);
  void restore(const std::function<base::Fd(uint32_t slot)>& held);
  void restore_attachment(const Image::Registers& registers);
  void let_go(uint32_t slot) { to_drop_.push_back(slot); }
  void detach();
  void write_config(uint64_t offset, std::span<const uint8_t> bytes);
  void write_register(uint64_t offset, uint32_t value);
  [[nodiscard]] uint32_t read_register(uint64_t offset) const;
  [[nodiscard]] uint64_t bar(uint32_t index) const;
  void attach(uint64_t address);
  void go_on();
  void tell();  // operators
  void raise(uint32_t vector) override;

  base::EventLoop& loop_;
  Adapter& adapter_;
  Image& image_;
  Custody& custody_;
  base::Fd unused_page_;  // the VMM may map it; nobody looks at it
  std::array<uint8_t, kConfigSize> config_{};
  std::array<base::Fd, kVectors> vectors_;
  uint32_t region_low_ = 0, error_ = 0, mask_ = UINT32_MAX;
  uint64_t reset_ = 0;  // the message that ended all objects
  uint64_t shared_region_ = 0;
  std::unique_ptr<GuestRam> ram_;
  std::map<uint64_t, uint32_t> records_;  // of ranges, by their address
  std::vector<uint32_t> to_drop_;         // when the message is noted
  std::unique_ptr<Attachment> attachment_;
  base::EventLoop::Timer more_;
};

}  // namespace vrdma::pvrdma
