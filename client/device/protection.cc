// Protection domains, parent and thread domains, address handles.
#include <cerrno>

#include "client/device/objects.h"
#include "client/verbs/newer_abi.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {

ibv_pd* alloc_pd(ibv_context* context) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kAllocPd;
  if (const int error = Context::of(context)->session.call(request, &reply); error != 0) {
    errno = error;
    return nullptr;
  }
  Made theirs(Context::of(context)->session, ipc::Call::kDeallocPd, reply.handle.handle);
  auto* pd = new Pd{};
  theirs.keep();
  pd->ibv.context = context;
  pd->context = Within(context);
  pd->ibv.handle = reply.handle.handle;
  return &pd->ibv;
}

int dealloc_pd(ibv_pd* ibv) {
  Pd* pd = Pd::of(ibv);
  if (pd->users.load() != 0) return EBUSY;
  if (!pd->is_parent()) {
    const int error = Context::of(ibv->context)->session.call(ipc::Call::kDeallocPd, ibv->handle);
    if (error != 0 && error != EIO) return error;
  }
  delete pd;
  return 0;
}

ibv_pd* import_pd(ibv_context* context, uint32_t handle) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kImportPd;
  request.handle.handle = handle;
  if (const int error = Context::of(context)->session.call(request, &reply); error != 0) {
    errno = error;
    return nullptr;
  }
  Made theirs(Context::of(context)->session, ipc::Call::kDeallocPd, reply.handle.handle);
  auto* pd = new Pd{};
  theirs.keep();
  pd->ibv.context = context;
  pd->context = Within(context);
  pd->ibv.handle = reply.handle.handle;
  return &pd->ibv;
}

// The program must have destroyed the objects in it.
void unimport_pd(ibv_pd* pd) { (void)dealloc_pd(pd); }

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) {
    errno = EINVAL;
    return nullptr;
  }
  auto* td = new Td{};
  td->ibv.context = context;
  td->context = Within(context);
  return &td->ibv;
}

int dealloc_td(ibv_td* ibv) {
  if (Td::of(ibv)->users.load() != 0) return EBUSY;
  delete Td::of(ibv);
  return 0;
}

// The allocators are for a driver's data structures in the program's memory. A vdevice's queues are
// in memory of the daemon, so they are never called.
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  constexpr uint32_t kKnown = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
                              IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
                              IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
  const bool allocators = (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  if (attr->pd == nullptr || attr->pd->context != context || (attr->comp_mask & ~kKnown) != 0 ||
      (attr->td != nullptr && attr->td->context != context) ||
      (allocators && (attr->alloc == nullptr || attr->free == nullptr))) {
    errno = EINVAL;
    return nullptr;
  }
  auto* pd = new Pd{};
  pd->ibv.context = context;
  pd->context = Within(context);
  pd->ibv.handle = attr->pd->handle;
  pd->within = Use(&Pd::of(attr->pd)->users);
  if (attr->td != nullptr) pd->thread = Use(&Td::of(attr->td)->users);
  return &pd->ibv;
}

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kCreateAh;
  request.create_ah = {};
  request.create_ah.is_global = attr->is_global;
  request.create_ah.port_num = attr->port_num;
  request.create_ah.sgid_index = attr->grh.sgid_index;
  if (const int error = Context::of(pd->context)->session.call(request, &reply); error != 0) {
    errno = error;
    return nullptr;
  }
  Made theirs(Context::of(pd->context)->session, ipc::Call::kDestroyAh, reply.handle.handle);
  auto* ah = new Ah{};
  theirs.keep();
  ah->ibv.context = pd->context;
  ah->context = Within(pd->context);
  ah->ibv.pd = pd;
  ah->ibv.handle = reply.handle.handle;
  ah->attr = *attr;
  ah->pd = Use(&Pd::of(pd)->users);
  return &ah->ibv;
}

int destroy_ah(ibv_ah* ah) {
  const int error = Context::of(ah->context)->session.call(ipc::Call::kDestroyAh, ah->handle);
  if (error != 0 && error != EIO) return error;
  delete Ah::of(ah);
  return 0;
}

}  // namespace vrdma::client
