// The protocol of sockets over RDMA (rsocket(7), docs/rsocket of rdma-core): its messages, and the
// arithmetic of its two flow controls. Nothing here touches a device.
//
// Each side writes the stream by RDMA into the receive buffer of the other. A buffer has two
// halves; a half is published by writing an Area into the sender's list of two, and is filled to
// its end before the next is begun. Each write brings 32 bits of immediate data, a message. The
// messages that carry data have credits of their own, so that the receiver has a place for each
// length; those of control rely on "receiver not ready".
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

// Memory of the other side; in lists as the host that reads them has it.
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
// Messages without data that may be on their way at once.
constexpr uint32_t kRsControls = 4;

// The count of a list of iomaps has one byte: exact up to 128, above in units of 256.
[[nodiscard]] constexpr uint8_t rs_to_scale(uint32_t value) {
  return static_cast<uint8_t>(value <= 128 ? value : 128 | std::min(value >> 8, 127U));
}
[[nodiscard]] constexpr uint32_t rs_from_scale(uint8_t value) {
  return value <= 128 ? value : static_cast<uint32_t>(value & 0x7f) << 8;
}

// What both sides tell in the private data of request and reply.
struct RsHello {
  uint16_t credits = 0;
  uint8_t iomaps = 0;  // scaled
  RsArea list;         // length: entries
  RsArea buffer;       // the first half

  static constexpr size_t kSize = 40;
  [[nodiscard]] std::array<uint8_t, kSize> encode() const;
  // Nothing for what no peer of ours sends, and for one of the other byte order.
  [[nodiscard]] static std::optional<RsHello> decode(std::span<const uint8_t> from);
};

// How many messages with data the peer has a place for.
class SendCredits {
 public:
  explicit SendCredits(uint16_t credits = 0) : limit_(credits) {}
  [[nodiscard]] bool any() const { return sent_ != limit_; }
  void use() { ++sent_; }
  void extend(uint32_t limit) { limit_ = static_cast<uint16_t>(limit); }

 private:
  uint16_t sent_ = 0;
  uint16_t limit_;  // counted from the first message of all
};

// The memory that what is being sent stays in until it has arrived: first in, first out.
class SendRing {
 public:
  explicit SendRing(uint32_t size = 0) : size_(size) {}
  // In one piece. Nothing as long as little is free: small pieces would leave small gaps for good.
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

// The receive buffer: what of it the peer may fill, what it has filled, what the program has read.
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

  // A message says that the peer has filled so much. False: it could not.
  [[nodiscard]] bool put(uint32_t bytes);
  // A message that took a credit but has no data for the program.
  void skip() { ++taken_; }

  [[nodiscard]] uint32_t filled() const { return filled_; }
  [[nodiscard]] uint32_t offset() const { return read_at_; }
  // In one piece from offset().
  [[nodiscard]] uint32_t piece() const { return std::min(filled_, 2 * half_ - read_at_); }
  void take(uint32_t bytes);

  // There is something worth telling the peer.
  [[nodiscard]] bool owes() const {
    return free_ >= half_ || static_cast<int16_t>(taken_ - next_grant_) >= 0;
  }
  struct Grant {
    uint32_t credits;  // the new limit
    uint32_t offset;
    uint32_t length;  // 0: no more of the buffer
  };
  Grant grant();

 private:
  uint32_t half_;
  uint32_t published_;  // and not filled
  uint32_t filled_ = 0;
  uint32_t read_at_ = 0;
  uint32_t free_;  // and not published
  uint32_t free_at_;
  uint16_t taken_ = 0;  // messages
  uint16_t next_grant_;
  std::vector<uint32_t> lengths_;  // of the messages, a ring
  size_t first_ = 0, count_ = 0;
};

}  // namespace vrdma::client
