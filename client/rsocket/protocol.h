// The wire protocol of stream sockets over RDMA (rsocket(7), docs/rsocket of rdma-core): its
// messages and its two flow controls. Touches no device.
//
// Each side writes the stream by RDMA into the peer's receive buffer. The buffer has two halves.
// The receiver publishes a half by writing an Area into the sender's list of two; the sender fills
// it completely before it begins the next. Each write carries 32 bits of immediate data, the
// message. Data messages have credits, so that the receiver has room for each length; control
// messages rely on RNR retries.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "core/base/endian.h"

namespace vrdma::client {

enum class RsMessage : uint32_t { kData = 0, kCredit = 4, kIomap = 6, kControl = 7 };
enum class RsControl : uint32_t { kDisconnect = 0, kKeepalive = 1, kShutdown = 2 };

constexpr uint32_t kRsDataBits = 29;
[[nodiscard]] constexpr uint32_t rs_message(RsMessage type, uint32_t data) {
  return static_cast<uint32_t>(type) << kRsDataBits | (data & ((1U << kRsDataBits) - 1));
}
[[nodiscard]] constexpr RsMessage rs_type(uint32_t message) {
  return static_cast<RsMessage>(message >> kRsDataBits);
}
[[nodiscard]] constexpr uint32_t rs_data(uint32_t message) {
  return message & ((1U << kRsDataBits) - 1);
}

// A memory area of the peer; list entries have the byte order of the host that reads them.
struct RsArea {
  uint64_t address = 0;
  uint32_t key = 0;
  uint32_t length = 0;
};
static_assert(sizeof(RsArea) == 16);

// An entry of the list of buffers that riowrite() may write to.
struct RsIomap {
  uint64_t offset = 0;
  RsArea area;
};
static_assert(sizeof(RsIomap) == 24);

constexpr uint32_t kRsAreas = 2;
// Control messages that may be in flight at once.
constexpr uint32_t kRsControls = 4;

// The length of an iomap list in one byte: exact up to 128, above in units of 256.
[[nodiscard]] constexpr uint8_t rs_to_scale(uint32_t value) {
  return static_cast<uint8_t>(value <= 128 ? value : 128 | std::min(value >> 8, 127U));
}
[[nodiscard]] constexpr uint32_t rs_from_scale(uint8_t value) {
  return value <= 128 ? value : static_cast<uint32_t>(value & 0x7f) << 8;
}

// The private data of REQ and REP.
struct RsHello {
  uint16_t credits = 0;
  uint8_t iomaps = 0;  // scaled
  RsArea list;         // length: entries
  RsArea buffer;       // the first half

  static constexpr size_t kSize = 40;
  [[nodiscard]] std::array<uint8_t, kSize> encode() const;
  // Nothing if the data is invalid or of the other byte order.
  [[nodiscard]] static std::optional<RsHello> decode(std::span<const uint8_t> from);
};

// The number of data messages that the peer can receive.
class SendCredits {
 public:
  explicit SendCredits(uint16_t credits = 0) : limit_(credits) {}
  [[nodiscard]] bool any() const { return sent_ != limit_; }
  void use() { ++sent_; }
  void extend(uint32_t limit) { limit_ = static_cast<uint16_t>(limit); }

 private:
  uint16_t sent_ = 0;
  uint16_t limit_;  // total number of messages since the beginning
};

// The buffer that holds data until it has been sent: first in, first out.
class SendRing {
 public:
  explicit SendRing(uint32_t size = 0) : size_(size) {}
  // Contiguous. 0 while little is free, because small pieces would leave small gaps permanently.
  [[nodiscard]] uint32_t space() const {
    const uint32_t free = size_ - used_;
    return free < size_ / 4 ? 0 : std::min(free, size_ - next_);
  }
  // The offset of the next `bytes` of space().
  uint32_t put(uint32_t bytes) {
    const uint32_t at = next_;
    next_ = (next_ + bytes) % size_;
    used_ += bytes;
    return at;
  }
  void release(uint32_t bytes) { used_ -= bytes; }

 private:
  uint32_t size_;
  uint32_t next_ = 0;
  uint32_t used_ = 0;
};

// State of the receive buffer: published to the peer, filled by the peer, read by the program.
class ReceiveRing {
 public:
  ReceiveRing() : ReceiveRing(2, 1) {}
  // `size` is even. Half of it is published by RsHello, the other half is the first grant.
  ReceiveRing(uint32_t size, uint16_t messages)
      : half_(size / 2),
        published_(size / 2),
        free_(size / 2),
        free_at_(size / 2),
        next_grant_(messages / 2),
        lengths_(messages) {}

  // A message reports that the peer has filled `bytes`. False: more than was published.
  [[nodiscard]] bool put(uint32_t bytes);
  // A message that took a credit but has no data for the program.
  void skip() { ++taken_; }

  [[nodiscard]] uint32_t filled() const { return filled_; }
  [[nodiscard]] uint32_t offset() const { return read_at_; }
  // Contiguous, from offset().
  [[nodiscard]] uint32_t piece() const { return std::min(filled_, 2 * half_ - read_at_); }
  void take(uint32_t bytes);

  // A new grant is worth sending to the peer.
  [[nodiscard]] bool owes() const {
    return free_ >= half_ || static_cast<int16_t>(taken_ - next_grant_) >= 0;
  }
  struct Grant {
    uint32_t credits;  // the new limit
    uint32_t offset;
    uint32_t length;  // 0: nothing new is published
  };
  Grant grant();

 private:
  uint32_t half_;
  uint32_t published_;  // and not yet filled
  uint32_t filled_ = 0;
  uint32_t read_at_ = 0;
  uint32_t free_;  // and not yet published
  uint32_t free_at_;
  uint16_t taken_ = 0;  // messages
  uint16_t next_grant_;
  std::vector<uint32_t> lengths_;  // of the messages, a ring
  size_t first_ = 0, count_ = 0;
};

}  // namespace vrdma::client
