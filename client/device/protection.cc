// Protection domains, memory regions and address handles.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "client/device/memory_table.h"
#include "client/device/objects.h"
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
  auto* pd = new Pd{};
  pd->ibv.context = context;
  pd->ibv.handle = reply.handle.handle;
  return &pd->ibv;
}

int dealloc_pd(ibv_pd* pd) {
  if (Pd::of(pd)->ahs.load() != 0) return EBUSY;
  const int error = Context::of(pd->context)->session.call(ipc::Call::kDeallocPd, pd->handle);
  if (error != 0 && error != EIO) return error;
  delete Pd::of(pd);
  return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access) {
  const auto address = reinterpret_cast<uint64_t>(addr);
  ipc::Way way = ipc::Way::kReached;
  if (address + length < address) {
    errno = EINVAL;
    return nullptr;
  }
  const bool writable = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  int error = MemoryTable::instance().acquire(address, length, writable, &way);
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kRegMr;
  request.reg_mr = {address, length, iova, pd->handle, access, static_cast<uint32_t>(way), 0};
  error = Context::of(pd->context)->session.call(request, &reply);
  if (error != 0) {
    if (way == ipc::Way::kInPlace) MemoryTable::instance().release(address, length);
    errno = error;
    return nullptr;
  }
  auto* mr = new Mr{};
  mr->registered = way == ipc::Way::kInPlace;
  mr->ibv.context = pd->context;
  mr->ibv.pd = pd;
  mr->ibv.addr = addr;
  mr->ibv.length = length;
  mr->ibv.handle = reply.reg_mr.handle;
  mr->ibv.lkey = mr->ibv.rkey = reply.reg_mr.key;
  return &mr->ibv;
}

int dereg_mr(ibv_mr* ibv) {
  Context& context = *Context::of(ibv->context);
  const int error = context.session.call(ipc::Call::kDeregMr, ibv->handle);
  // A daemon that has died uses no memory any more.
  if (error != 0 && error != EIO) return error;
  wait_for_initiators(context);
  Mr* mr = Mr::of(ibv);
  if (mr->registered)
    MemoryTable::instance().release(reinterpret_cast<uint64_t>(ibv->addr), ibv->length);
  if (mr->memory != nullptr) mr->memory->users.fetch_sub(1);
  delete mr;
  return 0;
}

void wait_for_initiator(Qp& qp) {
  Direct* direct = qp.direct.get();
  if (direct == nullptr || qp.block->inbox_direct.load(std::memory_order_acquire) == 0) return;
  const ipc::Word& busy = direct->block->busy;
  const uint32_t mark = busy.load(std::memory_order_acquire);
  if ((mark & 1) == 0 || mark == direct->stuck_mark) return;
  // A peer that stopped or died in the middle is waited for once: what it still stores goes to
  // pages that nobody reads any more, or that are registered for it anyway.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (busy.load(std::memory_order_acquire) == mark) {
    if (std::chrono::steady_clock::now() >= deadline) {
      direct->stuck_mark = mark;
      return;
    }
    std::this_thread::yield();
  }
}

void wait_for_initiators(Context& context) {
  const std::lock_guard lock(context.mutex);
  for (const auto& [handle, qp] : context.qps) wait_for_initiator(*qp);
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
  auto* ah = new Ah{};
  ah->ibv.context = pd->context;
  ah->ibv.pd = pd;
  ah->ibv.handle = reply.handle.handle;
  ah->attr = *attr;
  Pd::of(pd)->ahs.fetch_add(1);
  return &ah->ibv;
}

int destroy_ah(ibv_ah* ah) {
  const int error = Context::of(ah->context)->session.call(ipc::Call::kDestroyAh, ah->handle);
  if (error != 0 && error != EIO) return error;
  Pd::of(ah->pd)->ahs.fetch_sub(1);
  delete Ah::of(ah);
  return 0;
}

}  // namespace vrdma::client
