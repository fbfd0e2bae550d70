// Rings in guest memory: how driver and device hand entries to each other.
//
// A ring of n entries, a power of two, has two indices that run to 2n - 1: the producer's, where
// the next entry comes, and the consumer's. They are equal if it is empty, and differ by n if it is
// full. The producer writes an entry, then its index; the consumer reads the entry, then writes
// his. Source: pvrdma_ring.h of Linux 6.1.
//
// The guest may write anything anywhere at any time. So each side keeps its own index here and only
// publishes it; what the guest's index says is checked; an entry is copied before it is looked at.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>

namespace vrdma::pvrdma {

struct Indices {
  std::atomic<uint32_t> producer, consumer;
};
static_assert(sizeof(Indices) == 8);

// Of both: no entry can be had ever again, because the guest's index is none.
enum class RingState : uint8_t { kReady, kNotReady, kBroken };

namespace detail {
// How many entries a ring of n holds, or nothing if `producer` or `consumer` is no index of it.
[[nodiscard]] inline std::optional<uint32_t> standing(uint32_t producer, uint32_t consumer,
                                                      uint32_t n) {
  const uint32_t wrap = 2 * n - 1;
  if (((producer | consumer) & ~wrap) != 0) return std::nullopt;
  const uint32_t count = (producer - consumer) & wrap;
  if (count > n) return std::nullopt;
  return count;
}
}  // namespace detail

// A queue's first page has two pairs: of a queue pair's sends and receives; of other rings the
// device uses the second, of which it produces or consumes.
[[nodiscard]] inline Indices* first_pair(uint8_t* page) { return reinterpret_cast<Indices*>(page); }
[[nodiscard]] inline Indices* second_pair(uint8_t* page) { return first_pair(page) + 1; }

// What the guest produces.
class Incoming {
 public:
  Incoming() = default;
  // `entries` of `stride` bytes from `first` on, in guest memory that stays mapped.
  Incoming(Indices* indices, const uint8_t* first, uint32_t entries, uint32_t stride)
      : indices_(indices), first_(first), n_(entries), stride_(stride) {}

  [[nodiscard]] bool valid() const { return n_ != 0; }
  // Whether an entry lies there.
  [[nodiscard]] RingState look() const {
    const auto count =
        detail::standing(indices_->producer.load(std::memory_order_acquire), consumer_, n_);
    if (!count) return RingState::kBroken;
    return *count > 0 ? RingState::kReady : RingState::kNotReady;
  }
  // After kReady: a copy of `bytes` of the entry from `offset` on; they lie within the stride.
  void copy(void* to, size_t offset, size_t bytes) const {
    std::memcpy(to, first_ + uint64_t{consumer_ & (n_ - 1)} * stride_ + offset, bytes);
  }
  void advance() {
    consumer_ = (consumer_ + 1) & (2 * n_ - 1);
    indices_->consumer.store(consumer_, std::memory_order_release);
  }
  // The driver has emptied the ring.
  void rewind() { consumer_ = 0; }
  // From `position` on, which may be anything: once more what was taken since, as far as the driver
  // has not put something else there.
  void resume(uint32_t position) {
    const uint32_t producer = indices_->producer.load(std::memory_order_acquire);
    const uint32_t published = indices_->consumer.load(std::memory_order_relaxed);
    const uint32_t wrap = 2 * n_ - 1;
    const uint32_t taken = (published - position) & wrap, standing = (producer - published) & wrap;
    if (taken > n_)
      consumer_ = published & wrap;  // no position that can be
    else
      consumer_ = (taken + standing <= n_ ? position : producer - n_) & wrap;
    indices_->consumer.store(consumer_, std::memory_order_release);
  }

  [[nodiscard]] uint32_t entries() const { return n_; }
  // Where the next entry is, from 0 to 2n - 1; and how many there are from another position to it.
  [[nodiscard]] uint32_t position() const { return consumer_; }
  [[nodiscard]] uint32_t since(uint32_t position) const {
    return (consumer_ - position) & (2 * n_ - 1);
  }
  [[nodiscard]] uint32_t after(uint32_t position) const { return (position + 1) & (2 * n_ - 1); }

 private:
  Indices* indices_ = nullptr;
  const uint8_t* first_ = nullptr;
  uint32_t n_ = 0, stride_ = 0, consumer_ = 0;
};

// What the device produces.
template <class Entry>
class Outgoing {
 public:
  Outgoing() = default;
  Outgoing(Indices* indices, uint8_t* first, uint32_t entries)
      : indices_(indices), first_(first), n_(entries) {}

  [[nodiscard]] uint32_t entries() const { return n_; }
  // Goes on where another process has published that it was.
  void resume() { producer_ = indices_->producer.load() & (2 * n_ - 1); }
  // What push() will publish.
  [[nodiscard]] uint32_t next() const { return (producer_ + 1) & (2 * n_ - 1); }
  [[nodiscard]] uint32_t position() const { return producer_; }
  // kNotReady: the ring is full.
  [[nodiscard]] RingState push(const Entry& entry) {
    const auto count = standing();
    if (!count) return RingState::kBroken;
    if (*count == n_) return RingState::kNotReady;
    std::memcpy(first_ + uint64_t{producer_ & (n_ - 1)} * sizeof(Entry), &entry, sizeof entry);
    producer_ = (producer_ + 1) & (2 * n_ - 1);
    indices_->producer.store(producer_, std::memory_order_release);
    return RingState::kReady;
  }
  // How many the guest has not taken. Nothing: its index is none.
  [[nodiscard]] std::optional<uint32_t> standing() const {
    return detail::standing(producer_, indices_->consumer.load(std::memory_order_acquire), n_);
  }

 private:
  Indices* indices_ = nullptr;
  uint8_t* first_ = nullptr;
  uint32_t n_ = 0, producer_ = 0;
};

}  // namespace vrdma::pvrdma
