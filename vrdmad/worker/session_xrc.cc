// XRC domains of a session, and the target queue pairs in them.
#include <fcntl.h>

#include "core/rdma/xrc.h"
#include "vrdmad/worker/session_objects.h"

namespace vrdma::vrdmad {

using provisioning::Kind;

namespace {

void tell(const rdma::Target& target, ipc::CreateQpReply* reply) {
  reply->handle = target.handle | ipc::kTargetHandle;
  reply->qpn = target.qp->qpn;
}

}  // namespace

// The errors are those of the kernel's ib_uverbs_open_xrcd.
int SessionObjects::open_xrcd(const ipc::OpenXrcdRequest& request, Fds fds, Answer* answer) {
  const bool named = request.has_file != 0;
  std::pair<uint64_t, uint64_t> file;
  if (const intake::Verdict* shown = fds.only(); named && shown != nullptr) {
    if (shown->error != 0) return static_cast<int>(shown->error);
    file = {shown->device, shown->inode};
  } else if (named || !fds.empty()) {
    return EBADF;
  }
  auto xrcd = std::make_unique<rdma::Xrcd>();
  if (const int error = charge(Kind::kPd, 1, &xrcd->charges); error != 0) return error;
  auto& domains = vdevice_->device.xrc_domains;
  std::erase_if(domains, [](const auto& entry) { return entry.second.expired(); });
  if (named) {
    const auto it = domains.find(file);
    if (it != domains.end() && (request.oflags & O_EXCL) != 0) return EINVAL;
    if (it == domains.end() && (request.oflags & O_CREAT) == 0) return EAGAIN;
    if (it != domains.end()) xrcd->domain = it->second.lock();
  }
  if (xrcd->domain == nullptr) xrcd->domain = std::make_shared<rdma::XrcDomain>();
  if (named) domains[file] = xrcd->domain;
  answer->reply.handle.handle = context_->xrcds.add(std::move(xrcd))->handle;
  return 0;
}

int SessionObjects::close_xrcd(uint32_t handle) {
  const rdma::Xrcd* xrcd = context_->xrcds.find(handle);
  if (xrcd == nullptr) return EINVAL;
  if (xrcd->users > 0) return EBUSY;
  context_->xrcds.remove(handle);
  return 0;
}

int SessionObjects::create_target(const ipc::CreateQpRequest& request, Answer* answer) {
  rdma::Xrcd* xrcd = context_->xrcds.find(request.xrcd);
  if (xrcd == nullptr) return EINVAL;
  rdma::Charges charges;
  if (const int error = charge(Kind::kQp, 1, &charges); error != 0) return error;
  const rdma::Target* target = rdma::make_target(*context_, *xrcd);
  target->qp->charges = std::move(charges);
  tell(*target, &answer->reply.create_qp);
  return 0;
}

int SessionObjects::open_qp(const ipc::OpenQpRequest& request, Answer* answer) {
  rdma::Xrcd* xrcd = context_->xrcds.find(request.xrcd);
  if (xrcd == nullptr) return EINVAL;
  rdma::Qp* qp = xrcd->domain->find_target(request.qpn);
  if (qp == nullptr) return EINVAL;
  constexpr size_t kMaxOpeners = 1024;
  if (qp->openers.size() >= kMaxOpeners) return ENOMEM;
  rdma::Charges charges;
  if (const int error = charge(Kind::kQp, 1, &charges); error != 0) return error;
  rdma::Target* target = rdma::open_target(*context_, *xrcd, *qp);
  target->charges = std::move(charges);
  tell(*target, &answer->reply.create_qp);
  return 0;
}

}  // namespace vrdma::vrdmad
