// The completion queue of a socket's queue pair, and a descriptor that becomes readable when the
// socket must poll. Any thread, one at a time; errors are negative errno values.
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
  // Creates the queue pair of the id; all its work completes here. `inline_bytes`: the minimum; set
  // to the granted value.
  int create_queue_pair(rdma_cm_id* id, ibv_qp_type type, uint32_t send_depth,
                        uint32_t receive_depth, uint32_t* inline_bytes);
  // The queue pair has been destroyed.
  void destroy();

  // nullptr, -1: not created.
  [[nodiscard]] ibv_cq* queue() const { return queue_; }
  [[nodiscard]] int fd() const { return channel_ != nullptr ? channel_->fd : -1; }

  // After arm(), fd() becomes readable with the next completion. The caller polls after arm(), and
  // calls disarm() after it has waited.
  void arm();
  void disarm();

 private:
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* queue_ = nullptr;
  bool armed_ = false;
};

}  // namespace vrdma::client
