// Memory regions.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "client/device/memory/raw_memory.h"
#include "client/device/memory/table.h"
#include "client/device/objects.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {

namespace {

// The arguments of a registration.
struct Wish {
  ibv_pd* pd;
  uint64_t addr;
  size_t length;
  uint64_t iova;
  unsigned int access;
  [[nodiscard]] bool on_demand() const { return (access & IBV_ACCESS_ON_DEMAND) != 0; }
};

// How the daemon is told to get at the memory: in place, if it can be. Memory on demand may be
// missing or change later, so it is reached. Sets `request`; 0, or an errno.
int prepare(const Wish& wish, ipc::RegMrRequest* request) {
  ipc::Way way = ipc::Way::kReached;
  ipc::Reached why = ipc::Reached::kOnDemand;
  // As ib_umem_get() in umem.c of the kernel: it counts pages, so that of no bytes the address
  // decides.
  const bool empty = wish.length == 0 && page_down(wish.addr) == wish.addr;
  if ((empty || wish.addr + wish.length < wish.addr) && !wish.on_demand()) return EINVAL;
  if (!wish.on_demand())
    if (const int error = MemoryTable::instance().acquire(
            wish.addr, wish.length, (wish.access & IBV_ACCESS_LOCAL_WRITE) != 0,
            Context::of(wish.pd->context)->asker(), &way, &why);
        error != 0)
      return error;
  const uint64_t iova = (wish.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : wish.iova;
  *request = {wish.addr,
              wish.length,
              iova,
              wish.pd->handle,
              wish.access,
              static_cast<uint32_t>(way),
              static_cast<uint32_t>(why)};
  return 0;
}

// Before the daemon learns of the region.
ReachedMemory keep_out(const ipc::RegMrRequest& region) {
  if (region.way != static_cast<uint32_t>(ipc::Way::kReached)) return {};
  return {region.addr, region.length};
}

// Waits for the end of stores to what `ibv` named.
void wait_for_initiators(Context& context, const ibv_mr& ibv) {
  const Mr& mr = *Mr::of(const_cast<ibv_mr*>(&ibv));
  if (mr.fixed || mr.memory != nullptr)
    client::wait_for_initiators(context);
  else
    client::wait_for_initiators(context, reinterpret_cast<uint64_t>(ibv.addr), ibv.length);
}

// The caller allocates `mr` before the daemon's call, so that nothing can fail afterwards.
ibv_mr* complete(std::unique_ptr<Mr> mr, ibv_pd* pd, const ipc::RegMrReply& reply) {
  mr->pd = Use(&Pd::of(pd)->users);
  mr->context = Within(pd->context);
  mr->ibv.context = pd->context;
  mr->ibv.pd = pd;
  mr->ibv.handle = reply.handle;
  mr->ibv.lkey = reply.key;
  return &mr.release()->ibv;
}

}  // namespace

namespace {

// `request` is what the daemon is told of `wish`.
ibv_mr* make(const Wish& wish, ipc::Request& request) {
  ipc::Reply reply;
  auto mr = std::make_unique<Mr>();
  request.call = ipc::Call::kRegMr;
  mr->reached = keep_out(request.reg_mr);
  if (const int error = Context::of(wish.pd->context)->session.call(request, &reply); error != 0) {
    errno = error;
    return nullptr;
  }
  ibv_mr* ibv = complete(std::move(mr), wish.pd, reply.reg_mr);
  ibv->addr = reinterpret_cast<void*>(wish.addr);
  ibv->length = wish.length;
  ibv->rkey = reply.reg_mr.key;
  Mr::of(ibv)->iova = wish.iova;
  Mr::of(ibv)->access = wish.access;
  return ibv;
}

}  // namespace

ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access) {
  const Wish wish{pd, reinterpret_cast<uint64_t>(addr), length, iova, access};
  ipc::Request request;
  if (const int error = prepare(wish, &request.reg_mr); error != 0) {
    errno = error;
    return nullptr;
  }
  return make(wish, request);
}

ibv_mr* reg_shown_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access) {
  const Wish wish{pd, reinterpret_cast<uint64_t>(addr), length, iova, access};
  ipc::Request request;
  request.reg_mr = {
      wish.addr, length, iova, pd->handle, access, static_cast<uint32_t>(ipc::Way::kInPlace), 0};
  return make(wish, request);
}

int show_memory(ibv_context* context, std::span<const int> files) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kShowMemory;
  request.show_memory = {static_cast<uint32_t>(files.size()), 0};
  return Context::of(context)->session.call(request, &reply, {files.begin(), files.end()});
}

// On failure the region is unchanged, which is more than IBV_REREG_MR_ERR_CMD promises.
int rereg_mr(ibv_mr* ibv, int flags, ibv_pd* pd, void* addr, size_t length, unsigned int access) {
  Mr* mr = Mr::of(ibv);
  if (mr->fixed || mr->memory != nullptr) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  Wish wish{ibv->pd, reinterpret_cast<uint64_t>(ibv->addr), ibv->length, mr->iova, mr->access};
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) wish.pd = pd;
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) wish.access = access;
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    wish.addr = wish.iova = reinterpret_cast<uint64_t>(addr);
    wish.length = length;
  }
  Context& context = *Context::of(ibv->context);
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kReregMr;
  request.rereg_mr = {ibv->handle, 0, {}};
  int error = prepare(wish, &request.rereg_mr.to);
  ReachedMemory reached;
  if (error == 0) reached = keep_out(request.rereg_mr.to);
  if (error == 0) error = context.session.call(request, &reply);
  if (error != 0) {
    errno = error;
    return IBV_REREG_MR_ERR_CMD;
  }
  wait_for_initiators(context, *ibv);
  mr->reached = std::move(reached);
  mr->iova = wish.iova;
  mr->access = wish.access;
  mr->pd = Use(&Pd::of(wish.pd)->users);
  ibv->pd = wish.pd;
  ibv->addr = reinterpret_cast<void*>(wish.addr);
  ibv->length = wish.length;
  return 0;
}

int dereg_mr(ibv_mr* ibv) {
  Context& context = *Context::of(ibv->context);
  const int error = context.session.call(ipc::Call::kDeregMr, ibv->handle);
  // A dead daemon no longer uses memory.
  if (error != 0 && error != EIO) return error;
  wait_for_initiators(context, *ibv);
  if (Mr::of(ibv)->memory != nullptr) Mr::of(ibv)->memory->users.fetch_sub(1);
  delete Mr::of(ibv);
  return 0;
}

// Only the lkey is valid (ibv_alloc_null_mr(3)).
ibv_mr* alloc_null_mr(ibv_pd* pd) {
  ipc::Request request;
  ipc::Reply reply;
  auto mr = std::make_unique<Mr>();
  request.call = ipc::Call::kRegMr;
  request.reg_mr = {
      0, 0, 0, pd->handle, IBV_ACCESS_LOCAL_WRITE, static_cast<uint32_t>(ipc::Way::kNull), 0};
  if (const int error = Context::of(pd->context)->session.call(request, &reply); error != 0) {
    errno = error;
    return nullptr;
  }
  ibv_mr* ibv = complete(std::move(mr), pd, reply.reg_mr);
  ibv->length = SIZE_MAX;
  Mr::of(ibv)->fixed = true;
  return ibv;
}

// The address is unknown; only the exporter knows it (ibv_import_mr(3)).
ibv_mr* import_mr(ibv_pd* pd, uint32_t handle) {
  ipc::Request request;
  ipc::Reply reply;
  auto mr = std::make_unique<Mr>();
  request.call = ipc::Call::kImportMr;
  request.import_mr = {pd->handle, handle};
  if (const int error = Context::of(pd->context)->session.call(request, &reply); error != 0) {
    errno = error;
    return nullptr;
  }
  ibv_mr* ibv = complete(std::move(mr), pd, reply.reg_mr);
  ibv->rkey = reply.reg_mr.key;
  ibv->length = reply.reg_mr.length;
  Mr::of(ibv)->fixed = true;
  return ibv;
}

void unimport_mr(ibv_mr* ibv) { (void)dereg_mr(ibv); }

namespace {

// Populates the pages of [addr, addr + length). False: some do not exist.
bool populate(uint64_t addr, uint64_t length, bool writable) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t start = addr / page * page;
  const int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  // EINVAL: a kernel before 5.14, or a mapping without ordinary pages; these fault in when used.
  return ::madvise(reinterpret_cast<void*>(start), addr + length - start, advice) == 0 ||
         errno == EINVAL || errno == EAGAIN;
}

}  // namespace

// The errors of ibv_advise_mr(3), with the kernel's mlx5 driver as the model.
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sg_list,
              uint32_t num_sge) {
  if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
  if ((flags & ~uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || num_sge == 0) return EINVAL;
  const bool writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  const ipc::KeyEntry* keys = Context::of(pd->context)->keys();
  for (uint32_t i = 0; i < num_sge; ++i) {
    const ibv_sge& sge = sg_list[i];
    rdma::Region region;
    if (!rdma::find_region(keys, sge.lkey, &region)) return ENOENT;
    if (region.window) return EINVAL;
    if ((region.access & IBV_ACCESS_ON_DEMAND) == 0) return ENOENT;
    if (region.pd != pd->handle) return EPERM;
    if (writes && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0) return EPERM;
    uint64_t addr = 0;
    if (!region.locate(sge.addr, sge.length, &addr)) return EFAULT;
    if (sge.length == 0 || advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) continue;
    if (!populate(addr, sge.length, writes) && (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0)
      return EFAULT;
  }
  return 0;
}

}  // namespace vrdma::client
