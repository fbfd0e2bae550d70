#include "core/rdma/xrc.h"

#include <algorithm>

#include "core/base/random.h"

namespace vrdma::rdma {

Qp* XrcDomain::find_target(uint32_t qpn) const {
  const auto it = targets.find(qpn);
  return it == targets.end() ? nullptr : it->second.get();
}

void XrcDomain::add(Srq& srq, uint32_t wanted) {
  srq.srqn = wanted;
  while (srq.srqn == 0 || !srqs.emplace(srq.srqn, &srq).second)
    srq.srqn = base::random32() & verbs::kQpnMask;
}

void XrcDomain::remove(Srq& srq) {
  srqs.erase(srq.srqn);
  for (const auto& [qpn, target] : targets)
    if (target->link.in != nullptr && target->link.in->sender)
      target->link.in->sender->srq_gone(srq.srqn);
}

Target* make_target(Context& context, Xrcd& xrcd, WantedTarget wanted) {
  auto qp = std::make_unique<Qp>();
  qp->type = verbs::QpType::kXrcTarget;
  qp->domain = xrcd.domain.get();
  qp->context = &context;
  qp->own_block = std::make_unique<ipc::QpBlock>();
  qp->block = qp->own_block.get();
  if (wanted.qpn == 0)
    qp->qpn = context.device->take_qpn(qp.get());
  else if (context.device->take_qpn(qp.get(), wanted.qpn))
    qp->qpn = wanted.qpn;
  else
    return nullptr;
  qp->set_state(verbs::QpState::kReset);
  Qp& made = *qp;
  xrcd.domain->targets.emplace(made.qpn, std::move(qp));
  return open_target(context, xrcd, made, wanted.handle);
}

Target* open_target(Context& context, Xrcd& xrcd, Qp& qp, uint32_t wanted) {
  auto target = std::make_unique<Target>();
  target->qp = &qp;
  target->xrcd = &xrcd;
  ++xrcd.users;
  Target* opened = context.targets.add(std::move(target), wanted);
  qp.openers.push_back({&context, opened->handle | ipc::kTargetHandle});
  return opened;
}

void close_target(Context& context, Target& target) {
  Qp& qp = *target.qp;
  const uint32_t handle = target.handle | ipc::kTargetHandle;
  std::erase_if(qp.openers, [&](const Qp::Opener& opener) {
    return opener.context == &context && opener.handle == handle;
  });
  const auto domain = target.xrcd->domain;
  --target.xrcd->users;
  context.targets.remove(target.handle);
  if (!qp.openers.empty()) {
    qp.context = qp.openers.front().context;
    return;
  }
  context.device->fabric->cut(qp);
  const uint32_t qpn = qp.qpn;
  context.device->free_qpn(qpn);
  domain->targets.erase(qpn);
}

}  // namespace vrdma::rdma
