#include "client/rsocket/protocol.h"

#include <bit>

namespace vrdma::client {

namespace {

struct WireArea {
  base::ub64 address;
  base::ub32 key;
  base::ub32 length;
};

struct WireHello {
  uint8_t version;
  uint8_t flags;
  base::ub16 credits;
  uint8_t reserved[3];
  uint8_t iomaps;
  WireArea list;
  WireArea buffer;
};
static_assert(sizeof(WireHello) == RsHello::kSize);

constexpr uint8_t kVersion = 1;
constexpr uint8_t kBigEndian = 1 << 0;
constexpr uint8_t kHasIomaps = 1 << 1;
constexpr uint8_t kOrder = std::endian::native == std::endian::big ? kBigEndian : 0;

void to_wire(const RsArea& from, WireArea* to) {
  to->address = from.address;
  to->key = from.key;
  to->length = from.length;
}

RsArea from_wire(const WireArea& from) { return {from.address, from.key, from.length}; }

}  // namespace

std::array<uint8_t, RsHello::kSize> RsHello::encode() const {
  WireHello wire{};
  wire.version = kVersion;
  wire.flags = kOrder | kHasIomaps;
  wire.credits = credits;
  wire.iomaps = iomaps;
  to_wire(list, &wire.list);
  to_wire(buffer, &wire.buffer);
  std::array<uint8_t, kSize> bytes{};
  std::memcpy(bytes.data(), &wire, sizeof wire);
  return bytes;
}

std::optional<RsHello> RsHello::decode(std::span<const uint8_t> from) {
  WireHello wire;
  if (from.size() < sizeof wire) return std::nullopt;
  std::memcpy(&wire, from.data(), sizeof wire);
  if (wire.version != kVersion || (wire.flags & kBigEndian) != kOrder) return std::nullopt;
  RsHello hello;
  hello.credits = wire.credits;
  hello.iomaps = (wire.flags & kHasIomaps) != 0 ? wire.iomaps : uint8_t{0};
  hello.list = from_wire(wire.list);
  hello.buffer = from_wire(wire.buffer);
  if (hello.credits == 0 || hello.list.length == 0) return std::nullopt;
  return hello;
}

bool ReceiveRing::put(uint32_t bytes) {
  if (bytes > published_ || count_ == lengths_.size()) return false;
  if (bytes == 0) {
    skip();
    return true;
  }
  lengths_[(first_ + count_++) % lengths_.size()] = bytes;
  published_ -= bytes;
  filled_ += bytes;
  return true;
}

void ReceiveRing::take(uint32_t bytes) {
  filled_ -= bytes;
  free_ += bytes;
  read_at_ = (read_at_ + bytes) % (2 * half_);
  while (bytes > 0) {
    uint32_t& length = lengths_[first_];
    const uint32_t step = std::min(length, bytes);
    length -= step;
    bytes -= step;
    if (length > 0) break;
    first_ = (first_ + 1) % lengths_.size();
    --count_;
    ++taken_;
  }
}

ReceiveRing::Grant ReceiveRing::grant() {
  const auto messages = static_cast<uint16_t>(lengths_.size());
  next_grant_ = static_cast<uint16_t>(taken_ + messages / 2);
  Grant grant{static_cast<uint16_t>(taken_ + messages), 0, 0};
  if (free_ >= half_) {
    grant.offset = free_at_;
    grant.length = half_;
    free_ -= half_;
    free_at_ = (free_at_ + half_) % (2 * half_);
    published_ += half_;
  }
  return grant;
}

}  // namespace vrdma::client
