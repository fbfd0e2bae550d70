#include "client/rsocket/completions.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

namespace vrdma::client {

int RsCompletions::create(ibv_context* context, uint32_t entries) {
  channel_ = ibv_create_comp_channel(context);
  if (channel_ == nullptr) return -errno;
  if (::fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) return -errno;
  queue_ = ibv_create_cq(context, static_cast<int>(entries), nullptr, channel_, 0);
  return queue_ != nullptr ? 0 : -errno;
}

int RsCompletions::create_queue_pair(rdma_cm_id* id, ibv_qp_type type, uint32_t send_depth,
                                     uint32_t receive_depth, uint32_t* inline_bytes) {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = queue_;
  attr.qp_type = type;
  attr.sq_sig_all = 1;
  attr.cap.max_send_wr = send_depth;
  attr.cap.max_recv_wr = receive_depth;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.cap.max_inline_data = *inline_bytes;
  if (rdma_create_qp(id, nullptr, &attr) != 0) return -errno;
  *inline_bytes = attr.cap.max_inline_data;
  return 0;
}

void RsCompletions::destroy() {
  if (queue_ != nullptr) ibv_destroy_cq(std::exchange(queue_, nullptr));
  if (channel_ != nullptr) ibv_destroy_comp_channel(std::exchange(channel_, nullptr));
  armed_ = false;
}

void RsCompletions::arm() {
  if (!armed_) armed_ = ibv_req_notify_cq(queue_, 0) == 0;
}

void RsCompletions::disarm() {
  if (!armed_) return;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_, &queue, &context) != 0) return;
  ibv_ack_cq_events(queue, 1);
  armed_ = false;
}

}  // namespace vrdma::client
