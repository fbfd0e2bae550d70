#include "core/rdma/window.h"

#include <algorithm>

#include "core/base/asymmetric_fence.h"

namespace vrdma::rdma {

using verbs::WcStatus;

namespace {

constexpr auto kPatience = std::chrono::milliseconds(100);
constexpr uint32_t kWindowAccess = verbs::kLocalWrite | verbs::kAccessRemote | verbs::kZeroBased;

// Whether the region lets a window of this shape be bound to it.
bool covers(const Mr& mr, const Mw& mw, uint32_t access, uint64_t first, uint64_t length) {
  const bool writes = (access & (verbs::kRemoteWrite | verbs::kRemoteAtomic)) != 0;
  uint64_t addr = 0;
  return mr.pd == mw.pd && (mr.region.access & verbs::kMwBind) != 0 &&
         (mr.region.access & verbs::kZeroBased) == 0 &&
         (!writes || (mr.region.access & verbs::kLocalWrite) != 0) &&
         mr.region.locate(first, length, &addr);
}

bool is_lawful(const Qp& qp, const Mw& mw, const Mr* mr, const ipc::SendWqe& wqe) {
  const auto& bind = wqe.bind;
  if (mw.pd != qp.pd || (bind.rkey ^ mw.key) >> 8 != 0) return false;
  if ((bind.access & ~kWindowAccess) != 0) return false;
  if (mw.type_2) {
    if (mw.mr != nullptr || bind.length == 0) return false;
  } else {
    if ((bind.access & verbs::kZeroBased) != 0) return false;
    if (bind.length == 0) return true;
  }
  return mr != nullptr && covers(*mr, mw, bind.access, bind.addr, bind.length);
}

void tell(const Context& context, const Mw& mw) {
  if (context.on_window_changed) context.on_window_changed(mw);
}

void bind(Context& context, Mw& mw, const Binding& to) {
  Region region = to.mr->region;
  region.addr = to.addr;
  region.length = to.length;
  region.iova = to.iova;
  region.access = to.access;
  region.window = true;
  region.qpn = to.qp != nullptr ? to.qp->qpn : 0;
  context.set_key(mw.key, &region);
  mw.mr = to.mr;
  ++to.mr->windows;
  mw.qp = to.qp;
  if (to.qp != nullptr) ++to.qp->windows;
}

void unbind(Context& context, Mw& mw) {
  context.set_key(mw.key, nullptr);
  --mw.mr->windows;
  mw.mr = nullptr;
  if (mw.qp != nullptr) --mw.qp->windows;
  mw.qp = nullptr;
}

}  // namespace

bool may_bind(const Qp& qp, const ipc::SendWqe& wqe) {
  const Mw* mw = qp.context->mws.find(wqe.bind.window);
  return mw != nullptr && is_lawful(qp, *mw, qp.context->mrs.find(wqe.bind.mr), wqe);
}

WcStatus bind_window(Qp& qp, const ipc::SendWqe& wqe) {
  if (!may_bind(qp, wqe)) return WcStatus::kWindowBindError;
  Context& context = *qp.context;
  const auto& wanted = wqe.bind;
  Mw& mw = *context.mws.find(wanted.window);
  if (mw.mr != nullptr) unbind(context, mw);
  mw.key = wanted.rkey;
  if (wanted.length > 0) {
    Mr& mr = *context.mrs.find(wanted.mr);
    const uint64_t iova = (wanted.access & verbs::kZeroBased) != 0 ? 0 : wanted.addr;
    bind(context, mw,
         {mw.key, &mr, mw.type_2 ? &qp : nullptr, wanted.access & verbs::kAccessRemote,
          mr.region.addr + (wanted.addr - mr.region.iova), wanted.length, iova});
  }
  tell(context, mw);
  return WcStatus::kSuccess;
}

Binding binding_of(const Context& context, const Mw& mw) {
  const Region* region = mw.mr != nullptr ? context.key_record.find(mw.key) : nullptr;
  if (region == nullptr) return {mw.key, nullptr, nullptr, 0, 0, 0, 0};
  return {mw.key, mw.mr, mw.qp, region->access, region->addr, region->length, region->iova};
}

bool restore_binding(Context& context, Mw& mw, const Binding& binding) {
  if ((binding.key ^ mw.key) >> 8 != 0) return false;
  mw.key = binding.key;
  // A dead daemon may have written the table only.
  if (binding.mr == nullptr) context.set_key(mw.key, nullptr);
  if (binding.mr == nullptr) return true;
  const Region& whole = binding.mr->region;
  if (mw.type_2 != (binding.qp != nullptr) || (binding.access & ~verbs::kAccessRemote) != 0 ||
      binding.length == 0 || binding.addr < whole.addr ||
      !covers(*binding.mr, mw, binding.access, whole.iova + (binding.addr - whole.addr),
              binding.length) ||
      (binding.qp != nullptr && binding.qp->pd != mw.pd))
    return false;
  bind(context, mw, binding);
  return true;
}

Mw* invalidatable(const Qp& qp, uint32_t key) {
  Mw* mw = qp.context->key_record.object(key).mw;
  return mw != nullptr && mw->key == key && mw->qp == &qp ? mw : nullptr;
}

void unbind_window(Context& context, Mw& mw) {
  if (mw.mr == nullptr) return;
  unbind(context, mw);
  tell(context, mw);
}

// The fence pairs with AsymmetricFence::light of the program: either it sees the new key, or its
// mark is odd here.
KeyUsers::KeyUsers(const Context& context, const Qp* qp)
    : until_(base::Clock::steady().now() + kPatience) {
  base::AsymmetricFence::heavy();
  if (qp != nullptr)
    add(*qp);
  else
    context.qps.each([this](const Qp& each) { add(each); });
}

void KeyUsers::add(const Qp& qp) {
  if (qp.link.in == nullptr || !qp.link.in->link.out_direct) return;
  const ipc::Word& busy = qp.link.in->block->busy;
  const uint32_t mark = busy.load(std::memory_order_acquire);
  if ((mark & 1) != 0) users_.push_back({qp.link.in->alive, &busy, mark});
}

bool KeyUsers::gone() {
  std::erase_if(users_, [](const User& user) {
    return user.alive.expired() || user.busy->load(std::memory_order_acquire) != user.mark;
  });
  return users_.empty() || base::Clock::steady().now() >= until_;
}

}  // namespace vrdma::rdma
