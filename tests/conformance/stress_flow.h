// One end of a connection under stress: it executes its own script, and checks that what arrives
// matches the peer's script.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tests/conformance/queue.h"
#include "tests/conformance/stress_script.h"

namespace conformance {

// Receives of several ends, each large enough for any message. Any thread may call.
class SharedReceives {
 public:
  explicit SharedReceives(const Side& side);
  // Checks the message in `slot` and posts the receive again.
  void take(uint64_t slot, size_t length, uint64_t key);
  Srq srq;

 private:
  void post(uint64_t slot);
  static constexpr size_t kSlots = 8;
  Buffer buffer_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<Piece> pieces_[kSlots];
};

struct FlowOptions {
  ibv_qp_type type = IBV_QPT_RC;
  uint64_t out_seed = 0, in_seed = 0;  // of its own script and of the peer's
  uint64_t count = 0;                  // operations of each
  SharedReceives* shared = nullptr;
  bool mixed_memory = false;  // half of the buffers are shared mappings
};

// The owner serializes calls of one end.
class Flow {
 public:
  Flow(const Side& side, Cq& cq, const FlowOptions& options);
  virtual ~Flow() = default;
  // Received from the peer before the first post.
  struct Address {
    Endpoint endpoint;
    Remote memory;
  };
  [[nodiscard]] Address address() const { return {qp.endpoint(), remote_of(memory)}; }
  void connect(const Address& peer);
  virtual void post_receives() = 0;
  // Posts as much as there is room for.
  virtual void pump() = 0;
  virtual void sent(const ibv_wc& wc) = 0;
  virtual void received(const ibv_wc& wc) = 0;
  [[nodiscard]] virtual bool finished() const = 0;
  // After both ends have finished and nothing is in flight.
  virtual void check_messages() {}
  // The expected content of the peer's memory, or nullptr.
  [[nodiscard]] virtual const std::vector<uint8_t>* shadow() const { return nullptr; }

  const FlowOptions options;

 protected:
  std::mt19937_64 random_;

 public:
  Qp qp;
  Buffer memory;  // the peer writes and reads here

 protected:
  // MAP_PRIVATE or MAP_SHARED, for a buffer.
  [[nodiscard]] int some_mapping();
  [[nodiscard]] std::vector<ibv_sge> sges(const Buffer& buffer, size_t slot,
                                          const std::vector<Piece>& pieces) const;
  void post(const Op& op, unsigned flags, std::vector<ibv_sge> list);

  const Side& side_;
  Script script_;
  Remote peer_memory_{};
  Endpoint peer_{};
  std::shared_ptr<ibv_ah> ah_;
};

std::unique_ptr<Flow> make_flow(const Side& side, Cq& cq, const FlowOptions& options);

}  // namespace conformance
