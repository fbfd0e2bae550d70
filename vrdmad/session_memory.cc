// Protection domains, memory regions and address handles of a session.
#include <algorithm>

#include "core/base/asymmetric_fence.h"
#include "vrdmad/session.h"

namespace vrdma::vrdmad {

using provisioning::Kind;

int Session::alloc_pd(Answer* answer) {
  auto pd = std::make_unique<rdma::Pd>();
  if (const int error = charge(Kind::kPd, 1, &pd->charges); error != 0) return error;
  answer->reply.handle.handle = context_->pds.add(std::move(pd))->handle;
  return 0;
}

int Session::dealloc_pd(uint32_t handle) {
  const rdma::Pd* pd = context_->pds.find(handle);
  if (pd == nullptr) return EINVAL;
  if (pd->users > 0) return EBUSY;
  context_->pds.remove(handle);
  return 0;
}

// Whether the pages are as the request says is the program's affair: a key can only ever name the
// memory of the process that registered it.
int Session::reg_mr(const ipc::RegMrRequest& request, Answer* answer) {
  rdma::Context& context = *context_;
  rdma::Pd* pd = context.pds.find(request.pd);
  if (pd == nullptr) return EINVAL;
  if ((request.access &
       ~static_cast<uint32_t>(verbs::kAccessKnown | verbs::kOnDemand | verbs::kZeroBased)) != 0)
    return EOPNOTSUPP;
  // IBTA 10.6.3.1: who lets others write must let himself.
  const bool remote_writes = (request.access & (verbs::kRemoteWrite | verbs::kRemoteAtomic)) != 0;
  if (remote_writes && (request.access & verbs::kLocalWrite) == 0) return EINVAL;
  if (request.addr + request.length < request.addr ||
      request.addr + request.length > ipc::kMemoryArenaSize ||
      request.iova + request.length < request.iova)
    return EINVAL;
  const auto way = static_cast<ipc::Way>(request.way);
  if (way != ipc::Way::kInPlace && way != ipc::Way::kReached) return EINVAL;

  auto mr = std::make_unique<rdma::Mr>();
  if (const int error = charge(Kind::kMr, 1, &mr->charges); error != 0) return error;
  if (const int error = charge(Kind::kMrBytes, request.length, &mr->charges); error != 0)
    return error;
  if (context.mr_by_slot.size() + 1 >= ipc::kMaxKeys) return ENOMEM;
  while (context.next_key_slot == 0 || context.mr_by_slot.contains(context.next_key_slot))
    context.next_key_slot = (context.next_key_slot + 1) % ipc::kMaxKeys;
  const uint32_t slot =
      std::exchange(context.next_key_slot, (context.next_key_slot + 1) % ipc::kMaxKeys);
  mr->key = slot << 8 | ++context.next_key_tag;
  mr->pd = pd;
  ++pd->users;

  rdma::Region region;
  region.pd = pd->handle;
  region.access = request.access;
  region.addr = request.addr;
  region.length = request.length;
  region.iova = request.iova;
  region.way = way;
  rdma::write_key(context.keys(), mr->key, &region);

  rdma::Mr* made = context.mrs.add(std::move(mr));
  context.mr_by_slot.emplace(slot, made);
  answer->reply.reg_mr = {made->handle, made->key};
  return 0;
}

// When the answer goes out, no worker touches the memory any more: those in place are used within
// one turn of this thread, those reached by jobs, which are waited for. Initiators on direct links
// either see that the key has gone or are marked busy, and the program waits for them.
int Session::dereg_mr(uint32_t handle, Answer* answer) {
  rdma::Mr* mr = context_->mrs.find(handle);
  if (mr == nullptr) return EINVAL;
  rdma::write_key(context_->keys(), mr->key, nullptr);
  base::AsymmetricFence::heavy();
  context_->mr_by_slot.erase(mr->key >> 8);
  --mr->pd->users;
  context_->mrs.remove(handle);
  answer->deferred = true;
  busy_ = true;
  context_->process->reach()->barrier([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired() && !over_) send_answer({});
  });
  return 0;
}

int Session::create_ah(const verbs::AddressVector& av, Answer* answer) {
  if (av.is_global == 0 || av.port_num != 1 || av.sgid_index >= vdevice_->device.gids.size())
    return EINVAL;
  auto ah = std::make_unique<rdma::Context::Ah>();
  if (const int error = charge(Kind::kAh, 1, &ah->charges); error != 0) return error;
  answer->reply.handle.handle = context_->ahs.add(std::move(ah))->handle;
  return 0;
}

int Session::destroy_ah(uint32_t handle) {
  if (context_->ahs.find(handle) == nullptr) return EINVAL;
  context_->ahs.remove(handle);
  return 0;
}

}  // namespace vrdma::vrdmad
