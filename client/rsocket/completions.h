// What completes on a socket's queue pair: one completion queue, and a descriptor that says when to
// look. Any thread, one at a time; errors are negative errno values.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>

namespace vrdma::client {

class RsCompletions {
 public:
  RsCompletions() = default;
  ~RsCompletions() { destroy(); }
  RsCompletions(const RsCompletions&) = delete;
  RsCompletions& operator=(const RsCompletions&) = delete;

  int create(ibv_context* context, uint32_t entries);
  // For the id, all of whose work completes here. `inline_bytes`: as many at least; what it has.
  int create_queue_pair(rdma_cm_id* id, ibv_qp_type type, uint32_t send_depth,
                        uint32_t receive_depth, uint32_t* inline_bytes);
  // The queue pair is no more.
  void destroy();

  // nullptr, -1: not created.
  [[nodiscard]] ibv_cq* queue() const { return queue_; }
  [[nodiscard]] int fd() const { return channel_ != nullptr ? channel_->fd : -1; }

  // fd() becomes readable with what completes next. Whoever arms then polls, and disarms when he
  // has waited.
  void arm();
  void disarm();

 private:
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* queue_ = nullptr;
  bool armed_ = false;
};

}  // namespace vrdma::client
