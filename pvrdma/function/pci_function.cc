#include "pvrdma/function/pci_function.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "core/base/log.h"
#include "core/base/mapping.h"

namespace vrdma::pvrdma {

namespace {

// Offsets in the configuration space (PCI Local Bus Specification 3.0, section 6.1).
constexpr uint64_t kCommand = 0x04, kCacheLine = 0x0c, kBars = 0x10, kBarsEnd = 0x28,
                   kInterruptLine = 0x3c, kMsixCapability = 0x40;
constexpr uint64_t kMsixControlHigh = kMsixCapability + 3;

constexpr std::array<uint64_t, 6> kBarSizes{kMsixBarSize, kRegisterBarSize, kDoorbellBarSize};

constexpr base::Duration kRetry = std::chrono::milliseconds(1);

template <class Value>
void put(std::array<uint8_t, 256>& config, uint64_t offset, Value value) {
  std::memcpy(config.data() + offset, &value, sizeof value);
}

}  // namespace

PciFunction::PciFunction(base::EventLoop& loop, Adapter& adapter, Image& image, Custody& custody)
    : loop_(loop), adapter_(adapter), image_(image), custody_(custody) {
  put(config_, 0x00, kVendor);
  put(config_, 0x02, kDeviceId);
  put<uint16_t>(config_, 0x06, 1 << 4);  // it has capabilities
  put<uint8_t>(config_, 0x08, 1);        // revision
  put<uint16_t>(config_, 0x0a, 0x0280);  // network controller, other
  put(config_, 0x2c, kVendor);
  put(config_, 0x2e, kDeviceId);
  put<uint8_t>(config_, 0x34, kMsixCapability);
  put<uint8_t>(config_, kMsixCapability, 0x11);
  put<uint16_t>(config_, kMsixCapability + 2, kVectors - 1);
  put<uint32_t>(config_, kMsixCapability + 4, kMsixBar);
  put<uint32_t>(config_, kMsixCapability + 8, kPendingBits | kMsixBar);
}

base::Result<std::unique_ptr<PciFunction>> PciFunction::create(
    base::EventLoop& loop, Adapter& adapter, Image& image, Custody& custody,
    const std::function<base::Fd(uint32_t slot)>& held) {
  std::unique_ptr<PciFunction> made(new PciFunction(loop, adapter, image, custody));
  auto ram = GuestRam::create(&adapter);
  if (!ram) return base::pass(std::move(ram.error()));
  auto page = base::make_memfd("vrdma-pvrdma-bar", kMsixBarSize);
  if (!page) return base::pass(std::move(page.error()));
  made->ram_ = std::move(*ram);
  made->unused_page_ = std::move(*page);
  made->restore(held);
  made->tell();
  return made;
}

// --- the image ---

void PciFunction::restore(const std::function<base::Fd(uint32_t slot)>& held) {
  const uint64_t cleared = image_.progress.cleared;
  std::vector<bool> is_held(kSlots);
  image_.each(image_.vectors, cleared, [&](uint32_t i, const ImagedVector&) {
    vectors_[i] = held(i);
    is_held[i] = true;
  });
  image_.each(image_.ranges, cleared, [&](uint32_t i, ImagedRange& range) {
    // What is none, or overlaps, is not of this class.
    if (range.length == 0 || (range.address | range.length | range.offset) % kPageSize != 0 ||
        range.address > UINT64_MAX - range.length || range.length > INT64_MAX ||
        range.offset > INT64_MAX - range.length ||
        ram_->map(range.address, range.length, held(kVectors + i), range.offset) != 0) {
      range.life = {};
      return;
    }
    records_[range.address] = i;
    is_held[kVectors + i] = true;
  });
  // Of messages that were not noted, or whose end the process before did not see.
  for (uint32_t i = 0; i < kSlots; ++i)
    if (!is_held[i] && held(i).valid()) custody_.drop(i);
  const uint64_t noted = image_.progress.noted;
  if (noted <= cleared) return;
  const Image::Registers registers = image_.registers[noted % 2];
  config_ = registers.config;
  region_low_ = registers.region_low;
  error_ = registers.error;
  mask_ = registers.mask;
  reset_ = registers.reset;
  shared_region_ = registers.shared_region;
  if (registers.is_attached != 0) restore_attachment(registers);
}

// The session of the process before ends at vrdmad after the process, and until then its quota is
// used, and queue pair 1 is its.
void PciFunction::restore_attachment(const Image::Registers& registers) {
  constexpr uint32_t kMostAttempts = 2;
  constexpr std::chrono::milliseconds kPatience{2000}, kPause{10};
  std::string why = "processes died of it";
  bool may_try = ++image_.attempts <= kMostAttempts;
  for (const auto end = std::chrono::steady_clock::now() + kPatience; may_try;) {
    auto made =
        Attachment::create(adapter_, *ram_, *this, image_, shared_region_, [this] { go_on(); });
    auto done = made
                    ? (*made)->restore(std::max<uint64_t>(registers.reset, image_.progress.cleared))
                    : base::pass(made.error());
    if (done) {
      attachment_ = std::move(*made);
      image_.attempts = 0;
      base::log_info("the guest's driver has its device again; its programs must open it anew");
      go_on();
      return;
    }
    why = done.error().message();
    const int error = done.error().code();  // EINVAL, EFAULT: the image, or the guest's memory
    may_try = error != EINVAL && error != EFAULT && std::chrono::steady_clock::now() < end;
    if (may_try) std::this_thread::sleep_for(kPause);
  }
  image_.attempts = 0;
  error_ = 1;
  reset_ = image_.now();
  base::log_warning(
      "the device has nothing any more of what the guest's driver made, which must be "
      "removed and loaded again: " +
      why);
}

void PciFunction::before_note() {
  image_.registers[image_.now() % 2] = {
      config_,        region_low_, error_, mask_, attachment_ != nullptr ? 1u : 0u,
      shared_region_, reset_};
}

void PciFunction::noted() {
  for (const uint32_t slot : std::exchange(to_drop_, {})) custody_.drop(slot);
}

void PciFunction::clear() {
  attachment_.reset();
  ram_->unmap_all();
  records_.clear();
  to_drop_.clear();
  for (base::Fd& vector : vectors_) vector.reset();
  mask_ = UINT32_MAX;
  error_ = region_low_ = 0;
  image_.progress.clear();
  tell();
}

void PciFunction::detach() {
  attachment_.reset();
  reset_ = image_.now();
}

RegionShape PciFunction::region(uint32_t index) const {
  RegionShape shape;
  if (index < kBarSizes.size()) shape.size = kBarSizes[index];
  if (index == kConfigRegion) shape.size = kConfigSize;
  // QEMU posts writes to a device without a mappable page, so that the driver would look at its
  // shared region before the device had.
  if (index == kMsixBar) shape.mappable = {kUnusedPage, kPageSize, &unused_page_};
  return shape;
}

void PciFunction::read(uint32_t region, uint64_t offset, std::span<uint8_t> bytes) {
  ++image_.counts.registers;
  std::ranges::fill(bytes, uint8_t{0});
  if (region == kConfigRegion) {
    std::copy_n(config_.begin() + static_cast<ptrdiff_t>(offset), bytes.size(), bytes.begin());
  } else if (region == kRegisterBar) {
    const uint32_t value = read_register(offset);
    std::memcpy(bytes.data(), &value, std::min(bytes.size(), sizeof value));
  }
}

// Doorbells are counted by the attachment; without one they are nobody's.
void PciFunction::write(uint32_t region, uint64_t offset, std::span<const uint8_t> bytes) {
  if (region != kDoorbellBar || attachment_ == nullptr) ++image_.counts.registers;
  if (region == kConfigRegion) {
    write_config(offset, bytes);
    return;
  }
  uint32_t value = 0;
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  if (region == kRegisterBar)
    write_register(offset, value);
  else if (region == kDoorbellBar && attachment_ != nullptr)
    attachment_->doorbell(offset / kPageSize, offset % kPageSize, value);
}

void PciFunction::answered() { go_on(); }

void PciFunction::go_on() {
  using Rest = Attachment::Rest;
  const Rest rest = attachment_ != nullptr ? attachment_->work() : Rest::kNothing;
  tell();
  if (rest == Rest::kNothing) return;
  more_ = loop_.after(rest == Rest::kMore ? base::Duration{} : kRetry, [this] { go_on(); });
}

// A dozen stores, against an exit of the machine.
void PciFunction::tell() {
  ipc::ExportState& to = adapter_.export_state();
  to.set_driver(attachment_ != nullptr ? std::optional(attachment_->driver_version())
                                       : std::nullopt);
  to.set_counts(image_.counts);
}

// --- configuration space ---

void PciFunction::write_config(uint64_t offset, std::span<const uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint64_t at = offset + i;
    if ((at >= kBars && at < kBarsEnd) || at == kCommand || at == kCommand + 1 ||
        at == kCacheLine || at == kInterruptLine)
      config_[at] = bytes[i];
    if (at == kMsixControlHigh)
      config_[at] = static_cast<uint8_t>((config_[at] & 0x3f) | (bytes[i] & 0xc0));
  }
  // The low bits of a BAR's address are always 0, which also tells its size.
  for (uint32_t i = 0; i < kBarSizes.size(); ++i) {
    uint32_t address = 0;
    std::memcpy(&address, config_.data() + kBars + 4 * i, sizeof address);
    address &= kBarSizes[i] != 0 ? ~static_cast<uint32_t>(kBarSizes[i] - 1) : 0;
    put(config_, kBars + 4 * i, address);
  }
}

uint64_t PciFunction::bar(uint32_t index) const {
  uint32_t address = 0;
  std::memcpy(&address, config_.data() + kBars + 4 * index, sizeof address);
  return address;
}

// --- registers ---

uint32_t PciFunction::read_register(uint64_t offset) const {
  switch (offset) {
    case kRegVersion:
      return kInterfaceVersion;
    case kRegError:
      return error_;
    case kRegMask:
      return mask_;
    default:
      return 0;
  }
}

void PciFunction::write_register(uint64_t offset, uint32_t value) {
  switch (offset) {
    case kRegRegionLow:
      region_low_ = value;
      return;
    case kRegRegionHigh:
      attach(uint64_t{value} << 32 | region_low_);
      return;
    case kRegControl:
      if (value == kReset) detach();
      error_ = value == kReset || (value <= kUnquiesce && attachment_ != nullptr) ? 0 : 1;
      return;
    case kRegRequest:
      error_ = attachment_ != nullptr && attachment_->command(bar(kDoorbellBar)) ? 0 : 1;
      return;
    case kRegMask:
      mask_ = value;
      return;
    default:
      return;
  }
}

void PciFunction::attach(uint64_t address) {
  detach();
  error_ = 1;
  shared_region_ = address;
  auto made = Attachment::create(adapter_, *ram_, *this, image_, address, [this] { go_on(); });
  if (!made) {
    if (++image_.counts.attaches_refused <= kMostComplaints)
      base::log_warning("the guest's driver cannot attach: " + made.error().message());
    return;
  }
  attachment_ = std::move(*made);
  error_ = 0;
}

void PciFunction::reset() {
  detach();
  mask_ = UINT32_MAX;
  error_ = region_low_ = 0;
}

// --- memory and interrupts ---

int PciFunction::map(const DmaRange& range, base::Fd file) {
  if (!range.may_read || !range.may_write) file.reset();
  // A record of a range that has ended in this message is not free yet.
  uint32_t record = 0;
  while (record < image_.ranges.end && record < GuestRam::kMostRanges &&
         image_.counts_now(image_.ranges.all[record].life, image_.progress.cleared))
    ++record;
  if (record == GuestRam::kMostRanges) return ENOSPC;
  if (file.valid()) custody_.hold(kVectors + record, file);
  const int error = ram_->map(range.address, range.length, std::move(file), range.offset);
  if (error != 0) {
    let_go(kVectors + record);
    return error;
  }
  ImagedRange& made = image_.make(image_.ranges, record);
  made.address = range.address;
  made.length = range.length;
  made.offset = range.offset;
  records_[range.address] = record;
  return 0;
}

int PciFunction::unmap(uint64_t address, uint64_t length) {
  const int error = ram_->unmap(address, length);
  if (error != 0) return error;
  const auto found = records_.find(address);
  image_.end(image_.ranges, found->second);
  let_go(kVectors + found->second);
  records_.erase(found);
  return 0;
}

void PciFunction::unmap_all() {
  ram_->unmap_all();
  for (const auto& [address, record] : records_) {
    image_.end(image_.ranges, record);
    let_go(kVectors + record);
  }
  records_.clear();
}

// A descriptor that goes must be there for the next process until the message is noted; one that
// comes in its place is there from now on, and the VMM takes either.
void PciFunction::set_vector(uint32_t vector, base::Fd eventfd) {
  if (eventfd.valid()) {
    custody_.hold(vector, eventfd);
    (void)image_.make(image_.vectors, vector);
  } else if (vectors_[vector].valid()) {
    image_.end(image_.vectors, vector);
    let_go(vector);
  }
  vectors_[vector] = std::move(eventfd);
}

// The descriptor is the VMM's: it may be of anything, and must not stop this process.
void PciFunction::raise(uint32_t vector) {
  const base::Fd& to = vectors_[vector];
  if (mask_ != 0 || !to.valid()) return;
  pollfd room{to.get(), POLLOUT, 0};
  const uint64_t one = 1;
  if (::poll(&room, 1, 0) == 1 && ::write(to.get(), &one, sizeof one) == sizeof one)
    ++image_.counts.interrupts;
  tell();
}

}  // namespace vrdma::pvrdma
