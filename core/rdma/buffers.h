// The bytes that a worker holds for a vdevice: messages of datagrams, and slices of messages whose
// memory must be reached. A page that never comes holds them for as long as its owner likes.
//
// Belongs to one thread; the buffers themselves may be dropped by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/counter.h"
#include "core/rdma/line.h"

namespace vrdma::rdma {

using Buffer = std::shared_ptr<std::vector<uint8_t>>;

// Any thread reads it.
struct BufferCounters {
  std::atomic<uint64_t> held = 0;  // bytes; the thread that drops a buffer changes it
  base::Counter refused;           // or had to wait
};

class Buffers {
 public:
  explicit Buffers(base::EventLoop& loop,
                   std::shared_ptr<BufferCounters> counts_in = std::make_shared<BufferCounters>());

  // Bytes at least 1. No buffer is made while there are as many: what is held exceeds the limit by
  // less than one buffer.
  void set_limit(uint64_t bytes);
  // nullptr: not now; `sender` is called when it may ask again.
  [[nodiscard]] Buffer make(size_t length, Sender& sender);
  // nullptr: not now, and nobody waits.
  [[nodiscard]] Buffer make(size_t length);
  // Before `sender` goes, or when it needs no buffer any more.
  void leave(Sender& sender) { line_.leave(sender); }

  [[nodiscard]] bool is_half_full() const { return held() >= limit_ / 2; }
  [[nodiscard]] uint64_t held() const { return counters_->held.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t refused() const { return counters_->refused; }

 private:
  [[nodiscard]] Buffer hold(size_t length);
  [[nodiscard]] bool is_full() const { return held() >= limit_; }

  uint64_t limit_ = UINT64_MAX;
  const std::shared_ptr<BufferCounters> counters_;  // shared with the buffers
  Line line_;
};

// Of a device without Buffers nobody counts them.
[[nodiscard]] Buffer make_buffer(Buffers* of, size_t length, Sender& sender);
[[nodiscard]] Buffer make_buffer(Buffers* of, size_t length);

}  // namespace vrdma::rdma
