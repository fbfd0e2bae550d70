#include "core/rdma/window.h"

#include <algorithm>

#include "core/base/asymmetric_fence.h"

namespace vrdma::rdma {

using verbs::WcStatus;

namespace {

constexpr auto kPatience = std::chrono::milliseconds(100);
constexpr uint32_t kWindowAccess = verbs::kLocalWrite | verbs::kAccessRemote | verbs::kZeroBased;

// Whether the region lets a window of this shape be bound to it.
bool covers(const Mr& mr, const Mw& mw, const ipc::SendWqe& wqe) {
  const auto& bind = wqe.bind;
  const bool writes = (bind.access & (verbs::kRemoteWrite | verbs::kRemoteAtomic)) != 0;
  uint64_t addr = 0;
  return mr.pd == mw.pd && (mr.region.access & verbs::kMwBind) != 0 &&
         (mr.region.access & verbs::kZeroBased) == 0 &&
         (!writes || (mr.region.access & verbs::kLocalWrite) != 0) &&
         mr.region.locate(bind.addr, bind.length, &addr);
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
  return mr != nullptr && covers(*mr, mw, wqe);
}

}  // namespace

WcStatus bind_window(Qp& qp, const ipc::SendWqe& wqe) {
  Context& context = *qp.context;
  const auto& bind = wqe.bind;
  Mw* mw = context.mws.find(bind.window);
  Mr* mr = context.mrs.find(bind.mr);
  if (mw == nullptr || !is_lawful(qp, *mw, mr, wqe)) return WcStatus::kWindowBindError;
  unbind_window(context, *mw);
  mw->key = bind.rkey;
  if (bind.length == 0) return WcStatus::kSuccess;

  Region region = mr->region;
  region.addr += bind.addr - mr->region.iova;
  region.length = bind.length;
  region.iova = (bind.access & verbs::kZeroBased) != 0 ? 0 : bind.addr;
  region.access = bind.access & verbs::kAccessRemote;
  region.window = true;
  region.qpn = mw->type_2 ? qp.qpn : 0;
  context.set_key(mw->key, &region);
  mw->mr = mr;
  ++mr->windows;
  if (mw->type_2) {
    mw->qp = &qp;
    ++qp.windows;
  }
  return WcStatus::kSuccess;
}

Mw* invalidatable(const Qp& qp, uint32_t key) {
  Mw* mw = qp.context->key_record.object(key).mw;
  return mw != nullptr && mw->key == key && mw->qp == &qp ? mw : nullptr;
}

void unbind_window(Context& context, Mw& mw) {
  if (mw.mr == nullptr) return;
  context.set_key(mw.key, nullptr);
  --mw.mr->windows;
  mw.mr = nullptr;
  if (mw.qp != nullptr) --mw.qp->windows;
  mw.qp = nullptr;
}

// The fence pairs with AsymmetricFence::light of the program: either it sees the new key, or its
// mark is odd here.
KeyUsers::KeyUsers(const Context& context, const Qp* qp)
    : until_(base::EventLoop::now() + kPatience) {
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
  return users_.empty() || base::EventLoop::now() >= until_;
}

}  // namespace vrdma::rdma
