// XRC domains and target queue pairs (core/rdma/xrc.h). A target has no queues in this process: its
// Qp has a private block that stays in RESET, so that nothing can be posted.
#include <fcntl.h>

#include <cerrno>

#include "client/device/objects.h"
#include "client/verbs/events.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {

namespace {

ibv_qp* make_target(Context& context, ipc::Request& request, const ibv_qp_init_attr_ex& attr) {
  ipc::Reply reply;
  const std::lock_guard creating(context.numbers_mutex);
  if (const int error = context.session.call(request, &reply); error != 0) {
    errno = error;
    return nullptr;
  }
  Made theirs(context.session, ipc::Call::kDestroyQp, reply.create_qp.handle);
  auto qp = std::make_unique<Qp>();
  qp->alive = Within(context.ibv());
  qp->context = &context;
  qp->own_block = std::make_unique<ipc::QpBlock>();
  qp->block = qp->own_block.get();
  ibv_qp& base = qp->ibv.qp_base;
  init_qp(&base, context.ibv(), attr);
  base.pd = nullptr;
  base.send_cq = base.recv_cq = nullptr;
  base.srq = nullptr;
  base.handle = reply.create_qp.handle;
  base.qp_num = reply.create_qp.qpn;
  const std::lock_guard lock(context.mutex);
  context.qps.emplace(base.handle, qp.get());
  theirs.keep();
  return &qp.release()->ibv.qp_base;
}

}  // namespace

ibv_xrcd* open_xrcd(ibv_context* ibv, ibv_xrcd_init_attr* attr) {
  constexpr uint32_t kWanted = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr->comp_mask != kWanted) {
    errno = EINVAL;
    return nullptr;
  }
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kOpenXrcd;
  request.open_xrcd = {attr->fd != -1 ? 1u : 0u, static_cast<uint32_t>(attr->oflags)};
  std::vector<int> file;
  if (attr->fd != -1) file.push_back(attr->fd);
  // An invalid descriptor would make sendmsg(2) fail with EBADF, which would look like a lost
  // session.
  if (attr->fd != -1 && ::fcntl(attr->fd, F_GETFD) < 0) return nullptr;
  if (const int error = Context::of(ibv)->session.call(request, &reply, file); error != 0) {
    errno = error;
    return nullptr;
  }
  Made theirs(Context::of(ibv)->session, ipc::Call::kCloseXrcd, reply.handle.handle);
  auto* xrcd = new Xrcd{};
  theirs.keep();
  xrcd->ibv.context = ibv;
  xrcd->context = Within(ibv);
  xrcd->handle = reply.handle.handle;
  return &xrcd->ibv;
}

int close_xrcd(ibv_xrcd* xrcd) {
  const int error =
      Context::of(xrcd->context)->session.call(ipc::Call::kCloseXrcd, Xrcd::of(xrcd)->handle);
  if (error != 0 && error != EIO) return error;
  delete Xrcd::of(xrcd);
  return 0;
}

ibv_qp* create_target(ibv_context* context, const ibv_qp_init_attr_ex& attr) {
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attr.xrcd == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  ipc::Request request;
  request.call = ipc::Call::kCreateQp;
  request.create_qp = {};
  request.create_qp.type = IBV_QPT_XRC_RECV;
  request.create_qp.xrcd = Xrcd::of(attr.xrcd)->handle;
  return make_target(*Context::of(context), request, attr);
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
  constexpr uint32_t kWanted = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if ((attr->comp_mask & kWanted) != kWanted || attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED ||
      attr->qp_type != IBV_QPT_XRC_RECV || attr->xrcd == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  ipc::Request request;
  request.call = ipc::Call::kOpenQp;
  request.open_qp = {Xrcd::of(attr->xrcd)->handle, attr->qp_num};
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  if ((attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0) init.qp_context = attr->qp_context;
  return make_target(*Context::of(context), request, init);
}

}  // namespace vrdma::client
