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
  FileId file;
  if (const intake::Verdict* shown = fds.only(); named && shown != nullptr) {
    if (shown->error != 0) return static_cast<int>(shown->error);
    file = {shown->device, shown->inode};
  } else if (named || !fds.empty()) {
    return EBADF;
  }
  rdma::Charges charges;
  if (const int error = charge(Kind::kPd, 1, &charges); error != 0) return error;
  auto& domains = vdevice_->device.xrc_domains;
  std::erase_if(domains, [](const auto& entry) { return entry.second.expired(); });
  if (named) {
    const bool exists = domains.contains({file.device, file.inode});
    if (exists && (request.oflags & O_EXCL) != 0) return EINVAL;
    if (!exists && (request.oflags & O_CREAT) == 0) return EAGAIN;
  }
  answer->reply.handle.handle = add_xrcd(file, std::move(charges), 0)->handle;
  return 0;
}

// The domain that the file names, or a domain of this session alone.
rdma::Xrcd* SessionObjects::add_xrcd(const FileId& file, rdma::Charges charges, uint32_t handle) {
  auto xrcd = std::make_unique<rdma::Xrcd>();
  xrcd->charges = std::move(charges);
  if (file == FileId{}) {
    xrcd->domain = std::make_shared<rdma::XrcDomain>();
  } else {
    auto& known = vdevice_->device.xrc_domains[{file.device, file.inode}];
    xrcd->domain = known.lock();
    if (xrcd->domain == nullptr) known = xrcd->domain = std::make_shared<rdma::XrcDomain>();
  }
  return context_->xrcds.add(std::move(xrcd), handle);
}

FileId SessionObjects::file_of(const rdma::Xrcd& xrcd) const {
  for (const auto& [file, domain] : vdevice_->device.xrc_domains)
    if (domain.lock() == xrcd.domain) return {file.first, file.second};
  return {};
}

int SessionObjects::restore_xrcd(uint32_t handle, const FileId& file) {
  rdma::Charges charges;
  if (const int error = charge(Kind::kPd, 1, &charges); error != 0) return error;
  (void)add_xrcd(file, std::move(charges), handle);
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

// The first session that had it open makes it.
int SessionObjects::restore_target(uint32_t handle, uint32_t xrcd_handle, uint32_t qpn) {
  rdma::Xrcd* xrcd = context_->xrcds.find(xrcd_handle);
  if (xrcd == nullptr) return EINVAL;
  rdma::Charges charges;
  if (const int error = charge(Kind::kQp, 1, &charges); error != 0) return error;
  handle &= ~ipc::kTargetHandle;
  if (rdma::Qp* there = xrcd->domain->find_target(qpn); there != nullptr) {
    rdma::open_target(*context_, *xrcd, *there, handle)->charges = std::move(charges);
    return 0;
  }
  const rdma::Target* made = rdma::make_target(*context_, *xrcd, {handle, qpn});
  if (made == nullptr) return EEXIST;
  made->qp->charges = std::move(charges);
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
