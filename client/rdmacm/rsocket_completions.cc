#include "client/rdmacm/rsocket_completions.h"

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
