// Completion channels, completion queues and shared receive queues of a session.
#include <algorithm>
#include <bit>

#include "core/ipc/event_ends.h"
#include "core/rdma/xrc.h"
#include "vrdmad/worker/descriptors.h"
#include "vrdmad/worker/session_objects.h"

namespace vrdma::vrdmad {

using base::Fd;
using provisioning::Kind;

// Each CQ has at most one message in its channel, which has room for all if the kernel permits it;
// else some wait until others were read (ipc::tell_instead).
constexpr uint32_t kMostCqsOfChannel = 8192;

// Each costs the daemon a descriptor, so a vdevice may have as many as completion queues.
int SessionObjects::create_channel(Answer* answer) {
  uint64_t channels = 0;
  for (const rdma::Context* context : vdevice_->device.contexts)
    channels += context->channels.count();
  if (channels >= vdevice_->ledger.limit(Kind::kCq)) return ENOMEM;
  if (!vdevice_->may_have_descriptors(2)) return ENOMEM;
  auto ends = ipc::make_event_ends(kMostCqsOfChannel);
  if (!ends) return ends.error().code();
  auto channel = std::make_unique<rdma::Channel>();
  channel->write_end = std::move(ends->write);
  answer->fds = {ends->read.get(), channel->write_end.get()};
  answer->owned.push_back(std::move(ends->read));
  answer->reply.create_channel.handle = context_->channels.add(std::move(channel))->handle;
  return 0;
}

int SessionObjects::destroy_channel(uint32_t handle) {
  const rdma::Channel* channel = context_->channels.find(handle);
  if (channel == nullptr) return EINVAL;
  if (channel->users > 0) return EBUSY;
  context_->channels.remove(handle);
  return 0;
}

int SessionObjects::create_cq(const ipc::CreateCqRequest& request, Answer* answer) {
  rdma::Channel* channel = nullptr;
  if (request.channel != ipc::kNoObject) {
    channel = context_->channels.find(request.channel);
    if (channel == nullptr) return EINVAL;
    if (channel->users >= kMostCqsOfChannel) return ENOMEM;
  }
  // Beyond what the device says it can do, which verbs calls invalid; there is no memory short.
  if (request.cqe == 0 || request.cqe > vdevice_->ledger.limit(Kind::kCqe)) return EINVAL;
  if (context_->cqs.count() >= ipc::kMaxCqSlots) return ENOMEM;
  auto cq = std::make_unique<rdma::Cq>();
  if (const int error = charge(Kind::kCq, 1, &cq->charges); error != 0) return error;
  if (const int error = charge(Kind::kCqe, request.cqe, &cq->charges); error != 0) return error;
  cq->cqe = request.cqe;
  rdma::Cq* made = context_->cqs.add(std::move(cq), wanted());
  made->slot = made->handle - 1;
  made->bell = context_->bells.at<ipc::CqBell>(uint64_t{made->slot} * sizeof(ipc::CqBell));
  if (forced_ == nullptr) made->bell->arm.store(ipc::arm_word(ipc::Arm::kNone));
  made->context = context_.get();
  made->channel = channel;
  if (channel != nullptr) ++channel->users;
  answer->reply.create_cq = {made->handle, made->cqe, made->slot};
  return 0;
}

int SessionObjects::resize_cq(const ipc::ResizeCqRequest& request, Answer* answer) {
  rdma::Cq* cq = context_->cqs.find(request.handle);
  if (cq == nullptr || request.cqe == 0 || request.cqe > vdevice_->ledger.limit(Kind::kCqe))
    return EINVAL;
  rdma::Charges fresh;
  if (const int error = charge(Kind::kCqe, request.cqe, &fresh); error != 0) return error;
  cq->charges.back() = std::move(fresh.back());
  cq->cqe = request.cqe;
  answer->reply.create_cq = {cq->handle, cq->cqe, cq->slot};
  return 0;
}

int SessionObjects::destroy_cq(uint32_t handle) {
  const rdma::Cq* cq = context_->cqs.find(handle);
  if (cq == nullptr) return EINVAL;
  if (cq->users > 0) return EBUSY;
  if (cq->channel != nullptr) --cq->channel->users;
  context_->cqs.remove(handle);
  return 0;
}

int SessionObjects::create_srq(const ipc::CreateSrqRequest& request, Answer* answer) {
  rdma::Pd* pd = context_->pds.find(request.pd);
  const bool xrc = request.xrcd != ipc::kNoObject;
  rdma::Xrcd* xrcd = context_->xrcds.find(request.xrcd);
  rdma::Cq* cq = context_->cqs.find(request.cq);
  if (xrc && (xrcd == nullptr || cq == nullptr)) return EINVAL;
  if (pd == nullptr || request.max_wr == 0 ||
      request.max_sge > vdevice_->device.capabilities.max_sge ||
      request.max_wr > ipc::kMaxQueueDepth)
    return EINVAL;
  if (xrc && forced_ != nullptr && xrcd->domain->find(forced_->create_srq.srqn) != nullptr)
    return EEXIST;
  auto srq = std::make_unique<rdma::Srq>();
  if (const int error = charge(Kind::kSrq, 1, &srq->charges); error != 0) return error;
  if (const int error = charge(Kind::kRecvWr, request.max_wr, &srq->charges); error != 0)
    return error;
  srq->max_wr = request.max_wr;
  srq->max_sge = request.max_sge;
  rdma::Srq::Places at{};
  if (forced_ != nullptr) at = {forced_->create_srq.block, forced_->create_srq.claims};
  if (auto made = srq->make(*context_, *pd, xrc, at); !made) return made.error().code();
  if (forced_ != nullptr) srq->limit = srq->block->limit.load();
  rdma::Srq& made = *context_->srqs.add(std::move(srq), wanted());
  if (xrc) {
    made.xrcd = xrcd;
    made.cq = cq;
    ++xrcd->users;
    ++cq->users;
    xrcd->domain->add(made, forced_ != nullptr ? forced_->create_srq.srqn : 0);
    if (forced_ != nullptr)
      made.inbox_head = made.inbox_taken_over = ipc::head_of(*made.inbox, made.depth);
  }
  auto& reply = answer->reply.create_srq;
  reply.handle = made.handle;
  reply.max_wr = made.max_wr;
  reply.max_sge = made.max_sge;
  reply.depth = made.depth;
  reply.block = made.range.offset();
  reply.claims = made.claims_range.offset();
  if (xrc)
    reply.inbox =
        static_cast<uint64_t>(reinterpret_cast<uint8_t*>(made.inbox) - context_->arena->bytes());
  reply.srqn = made.srqn;
  return 0;
}

int SessionObjects::modify_srq(const ipc::ModifySrqRequest& request) {
  rdma::Srq* srq = context_->srqs.find(request.handle);
  if (srq == nullptr) return EINVAL;
  constexpr uint32_t kKnown = verbs::kSrqMaxWr | verbs::kSrqLimit;
  if ((request.mask & ~kKnown) != 0) return EINVAL;
  const bool resizes = (request.mask & verbs::kSrqMaxWr) != 0;
  const bool limits = (request.mask & verbs::kSrqLimit) != 0;
  const uint32_t max_wr = resizes ? request.max_wr : srq->max_wr;
  const uint32_t limit = limits ? request.limit : srq->limit;
  if (max_wr == 0 || max_wr > ipc::kMaxQueueDepth || limit > max_wr) return EINVAL;
  if (max_wr > srq->depth) return ENOMEM;
  if (resizes)
    if (const int error = resize_srq(*srq, max_wr); error != 0) return error;
  if (limits) srq->set_limit(request.limit);
  return 0;
}

int SessionObjects::resize_srq(rdma::Srq& srq, uint32_t max_wr) {
  rdma::Charges fresh;
  if (const int error = charge(Kind::kRecvWr, max_wr, &fresh); error != 0) return error;
  srq.charges.back() = std::move(fresh.back());
  srq.max_wr = max_wr;
  return 0;
}

int SessionObjects::query_srq(uint32_t handle, Answer* answer) {
  const rdma::Srq* srq = context_->srqs.find(handle);
  if (srq == nullptr) return EINVAL;
  answer->reply.query_srq = {srq->max_wr, srq->max_sge, srq->limit};
  return 0;
}

int SessionObjects::destroy_srq(uint32_t handle) {
  rdma::Srq* srq = context_->srqs.find(handle);
  if (srq == nullptr) return EINVAL;
  if (srq->users > 0) return EBUSY;
  context_->destroy_srq(*srq);
  return 0;
}

}  // namespace vrdma::vrdmad
