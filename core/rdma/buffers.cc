#include "core/rdma/buffers.h"

#include <utility>

namespace vrdma::rdma {

namespace {

// While there is no room: jobs end on threads that cannot wake this one.
constexpr auto kLookAgain = std::chrono::milliseconds(1);

struct Held {
  Held(size_t length, std::shared_ptr<BufferCounters> in) : bytes(length), counters(std::move(in)) {
    counters->held.fetch_add(bytes.size(), std::memory_order_relaxed);
  }
  ~Held() { counters->held.fetch_sub(bytes.size(), std::memory_order_relaxed); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  std::vector<uint8_t> bytes;
  const std::shared_ptr<BufferCounters> counters;
};

}  // namespace

Buffers::Buffers(base::EventLoop& loop, std::shared_ptr<BufferCounters> counts_in)
    : counters_(std::move(counts_in)), line_(loop, [this]() -> base::Duration {
        return is_full() ? base::Duration(kLookAgain) : base::Duration(0);
      }) {}

void Buffers::set_limit(uint64_t bytes) {
  limit_ = bytes;
  line_.look_again();
}

Buffer Buffers::make(size_t length, Sender& sender) {
  if (line_.admit(sender)) return hold(length);
  ++counters_->refused;
  return nullptr;
}

Buffer Buffers::make(size_t length) {
  if (!is_full()) return hold(length);
  ++counters_->refused;
  return nullptr;
}

Buffer Buffers::hold(size_t length) {
  const auto made = std::make_shared<Held>(length, counters_);
  return {made, &made->bytes};
}

Buffer make_buffer(Buffers* of, size_t length, Sender& sender) {
  return of != nullptr ? of->make(length, sender) : std::make_shared<std::vector<uint8_t>>(length);
}

Buffer make_buffer(Buffers* of, size_t length) {
  return of != nullptr ? of->make(length) : std::make_shared<std::vector<uint8_t>>(length);
}

}  // namespace vrdma::rdma
