// Memory windows (rules: core/rdma/window.h). Binding is a work request: see post.cc.
#include <cerrno>

#include "client/device/objects.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kAllocMw;
  request.alloc_mw = {pd->handle, static_cast<uint32_t>(type)};
  if (const int error = Context::of(pd->context)->session.call(request, &reply); error != 0) {
    errno = error;
    return nullptr;
  }
  Made theirs(Context::of(pd->context)->session, ipc::Call::kDeallocMw, reply.alloc_mw.handle);
  auto* mw = new Mw{};
  theirs.keep();
  mw->pd = Use(&Pd::of(pd)->users);
  mw->ibv.context = pd->context;
  mw->context = Within(pd->context);
  mw->ibv.pd = pd;
  mw->ibv.rkey = reply.alloc_mw.key;
  mw->ibv.handle = reply.alloc_mw.handle;
  mw->ibv.type = type;
  return &mw->ibv;
}

int dealloc_mw(ibv_mw* ibv) {
  Context& context = *Context::of(ibv->context);
  const int error = context.session.call(ipc::Call::kDeallocMw, ibv->handle);
  if (error != 0 && error != EIO) return error;
  wait_for_initiators(context);
  delete Mw::of(ibv);
  return 0;
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  if ((bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) return EINVAL;
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags & ~unsigned{IBV_SEND_INLINE};
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = bind->bind_info;
  ibv_send_wr* bad = nullptr;
  const int error = post_send(qp, &wr, &bad);
  if (error == 0) mw->rkey = wr.bind_mw.rkey;
  return error;
}

}  // namespace vrdma::client
