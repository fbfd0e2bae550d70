#include "vrdmad/worker/session_objects.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "transport/hole_guard.h"
#include "vrdmad/worker/calls.h"

namespace vrdma::vrdmad {

using ipc::Call;

namespace {

// Between a death without goodbye and the errors of its peers: long enough for what the dead had
// delivered to be taken first.
constexpr auto kBereavement = std::chrono::milliseconds(300);

// How long a goodbye waits for jobs that reach memory.
constexpr auto kFarewell = std::chrono::seconds(1);

// Windows of 1 GiB onto a process's memory that are mapped at a time. A key that its owner forged
// can name any address, and the number of our own mappings is limited (vm.max_map_count).
constexpr size_t kMaxWindows = 256;

}  // namespace

SessionObjects::SessionObjects(Owner& owner, std::shared_ptr<Vdevice> vdevice,
                               std::shared_ptr<Caller> caller)
    : owner_(owner),
      vdevice_(std::move(vdevice)),
      caller_(std::move(caller)),
      context_(std::make_unique<rdma::Context>()) {}

SessionObjects::~SessionObjects() = default;

base::Result<std::unique_ptr<SessionObjects>> SessionObjects::make(
    Owner& owner, std::shared_ptr<Vdevice> vdevice, std::shared_ptr<Caller> caller,
    std::shared_ptr<rdma::Process> process, const std::string& cgroup) {
  std::unique_ptr<SessionObjects> objects(
      new SessionObjects(owner, std::move(vdevice), std::move(caller)));
  objects->cgroup_ = objects->vdevice_->cgroup(cgroup);
  rdma::Context& context = *objects->context_;
  if (const int error = objects->charge(provisioning::Kind::kContexts, 1, &context.charges);
      error != 0)
    return base::fail(error, "the vdevice has too many contexts");
  context.process = std::move(process);
  return objects;
}

base::Result<std::unique_ptr<rdma::AddressSpace>> SessionObjects::space_of(base::Fd memory) {
  return rdma::AddressSpace::of_arena(std::move(memory), {kMaxWindows, transport::HoleGuard::watch,
                                                          !transport::HoleGuard::started()});
}

int SessionObjects::furnish(SessionKit& kit) {
  rdma::Context& context = *context_;
  auto arena_map =
      base::Mapping::shared(kit.arena, ipc::kQueueArenaSize, 0, PROT_READ | PROT_WRITE);
  auto bell_map = base::Mapping::shared(kit.bells, ipc::kBellFileSize, 0, PROT_READ | PROT_WRITE);
  auto heap_fd = kit.arena.duplicate();
  auto claims_fd = kit.bells.duplicate();
  if (!arena_map || !bell_map) return ENOBUFS;
  if (!heap_fd || !claims_fd) return ENFILE;
  arena_id_ = kit.arena_id;
  auto space = space_of(std::move(kit.memory));
  if (!space) return space.error().code() == ENOMEM ? ENOBUFS : space.error().code();

  context.process->set_space(std::move(*space));
  if (const int error = show_again(kit); error != 0) return error;
  context.device = &vdevice_->device;
  context.arena_fd = std::move(kit.arena);
  context.arena_read_only = std::move(kit.arena_read_only);
  context.arena = std::make_shared<base::Mapping>(std::move(*arena_map));
  context.bell_fd = std::move(kit.bells);
  context.bells = std::move(*bell_map);
  context.heap = std::make_shared<rdma::ArenaHeap>(std::move(*heap_fd), context.arena->bytes(),
                                                   ipc::kHeapOffset, ipc::kQueueArenaSize,
                                                   vdevice_->reach_threads);
  context.claims_heap = std::make_shared<rdma::ArenaHeap>(
      std::move(*claims_fd), context.bells.bytes(), ipc::kClaimsOffset, ipc::kBellFileSize,
      vdevice_->reach_threads);
  context.on_corrupt = [this] { owner_.end_malformed(); };
  context.on_unsent_events = [this] { send_events_later(); };
  vdevice_->device.add(&context);
  return 0;
}

// The program reads slowly, or not at all.
void SessionObjects::send_events_later() {
  constexpr std::chrono::milliseconds kPause(10);
  if (!unsent_.active())
    unsent_ = loop().after(kPause, [this] {
      unsent_.reset();
      context_->send_events();
    });
}

int SessionObjects::charge(provisioning::Kind kind, uint64_t amount, rdma::Charges* charges) {
  auto charge = vdevice_->ledger.charge(kind, amount, cgroup_);
  if (!charge) return charge.error().code();
  charges->push_back(std::make_shared<provisioning::Charge>(std::move(*charge)));
  return 0;
}

int SessionObjects::serve(const ipc::Request& request, Fds fds, Answer* answer) {
  if (traits_of(request.call).needs == CallTraits::kVdevice && vdevice_->gone) return EIO;
  switch (request.call) {
    case Call::kProbe:
    case Call::kHello:
    case Call::kProve:
    case Call::kGoodbye:
    case Call::kResume:
      break;  // the session's own
    case Call::kQueryDevice:
      return query_device(answer);
    case Call::kQueryPort:
      return query_port(answer);
    case Call::kQueryGids:
      return query_gids(request.gids, answer);
    case Call::kAllocPd:
      return alloc_pd(answer);
    case Call::kDeallocPd:
      return dealloc_pd(request.handle.handle);
    case Call::kRegMr:
      return reg_mr(request.reg_mr, answer);
    case Call::kDeregMr:
      return dereg_mr(request.handle.handle, answer);
    case Call::kReregMr:
      return rereg_mr(request.rereg_mr, answer);
    case Call::kAllocMw:
      return alloc_mw(request.alloc_mw, answer);
    case Call::kImportDevice:
      return import_device(std::move(fds));
    case Call::kImportPd:
      return import_pd(request.handle.handle, answer);
    case Call::kImportMr:
      return import_mr(request.import_mr, answer);
    case Call::kDeallocMw:
      return dealloc_mw(request.handle.handle, answer);
    case Call::kCreateChannel:
      return create_channel(answer);
    case Call::kDestroyChannel:
      return destroy_channel(request.handle.handle);
    case Call::kCreateCq:
      return create_cq(request.create_cq, answer);
    case Call::kResizeCq:
      return resize_cq(request.resize_cq, answer);
    case Call::kDestroyCq:
      return destroy_cq(request.handle.handle);
    case Call::kCreateSrq:
      return create_srq(request.create_srq, answer);
    case Call::kModifySrq:
      return modify_srq(request.modify_srq);
    case Call::kQuerySrq:
      return query_srq(request.handle.handle, answer);
    case Call::kDestroySrq:
      return destroy_srq(request.handle.handle);
    case Call::kCreateQp:
      return create_qp(request.create_qp, std::move(fds), answer);
    case Call::kModifyQp:
      return modify_qp(request.modify_qp, answer);
    case Call::kQueryQp:
      return query_qp(request.handle.handle, answer);
    case Call::kDestroyQp:
      if (const int error = destroy_qp(request.handle.handle); error != 0) return error;
      answer_when_unreached(answer);
      return 0;
    case Call::kCreateAh:
      return create_ah(request.create_ah, answer);
    case Call::kDestroyAh:
      return destroy_ah(request.handle.handle);
    case Call::kAttachMcast:
      return mcast(request.mcast, true, answer);
    case Call::kDetachMcast:
      return mcast(request.mcast, false, answer);
    case Call::kOpenXrcd:
      return open_xrcd(request.open_xrcd, std::move(fds), answer);
    case Call::kCloseXrcd:
      return close_xrcd(request.handle.handle);
    case Call::kOpenQp:
      return open_qp(request.open_qp, answer);
    case Call::kCreateFlow:
      return create_flow(request.create_flow, answer);
    case Call::kDestroyFlow:
      return destroy_flow(request.handle.handle);
    case Call::kHold:
      return hold(request.hold, answer);
    case Call::kReach:
      return reach(request.reach, answer);
    case Call::kShowMemory:
      return show_memory(request.show_memory, fds, answer);
  }
  return EOPNOTSUPP;
}

int SessionObjects::serve_as(const ipc::Request& request, const ipc::Reply& wanted,
                             Answer* answer) {
  forced_ = &wanted;
  const int error = serve(request, {}, answer);
  forced_ = nullptr;
  return error;
}

// The caller holds the command descriptor of another session of this vdevice, and is of its user.
int SessionObjects::import_device(Fds fds) {
  const intake::Verdict* wanted = fds.only();
  if (wanted == nullptr || wanted->passed == 0 || context_->exporter != 0) return EINVAL;
  const rdma::Process& self = *context_->process;
  const SessionObjects* const other = owner_.find({wanted->device, wanted->inode});
  if (other == nullptr) return ENODEV;
  if (!other->context().process->may_share_with(self)) return EPERM;
  context_->exporter = other->context().id;
  return 0;
}

// The state of its queue pairs stays: other threads of the program, which has not ended yet, may
// poll, and must find no errors.
void SessionObjects::end_traffic(Answer* answer) {
  context_->qps.each([this](rdma::Qp& qp) { context_->device->fabric->cut(qp); });
  answer_when_unreached(answer);
  if (!answer->deferred) return;
  // A page that does not come must not keep a program from its end.
  unreached_ = loop().after(kFarewell, [this] { owner_.answer({}); });
}

void SessionObjects::device_gone() {
  context_->raise(verbs::Event::kDeviceFatal, 0);
  const auto fail = [](rdma::Qp& qp) {
    if (qp.state() != verbs::QpState::kReset) qp.fail();
  };
  context_->qps.each(fail);
  context_->targets.each([&](rdma::Target& target) { fail(*target.qp); });
}

// The peers that were linked to us learn of our death after a moment, unless they have gone on to
// another life (RESET) by then.
void SessionObjects::leave_survivors() {
  struct Survivor {
    rdma::Qp* qp;
    std::weak_ptr<int> alive;
    bool untold;  // our program may have died before it told of its last message
  };
  std::vector<Survivor> survivors;
  const auto bereave = [&](rdma::Qp& qp) {
    for (rdma::Qp* peer : {qp.link.out, qp.link.in}) {
      if (peer == nullptr || peer->context == context_.get()) continue;
      peer->link.peer_lost = true;  // which is written down when the link is cut
      const bool executed = qp.link.out == peer && qp.link.out_direct &&
                            qp.block->busy.load(std::memory_order_acquire) % 2 != 0;
      survivors.push_back({peer, peer->alive, executed});
    }
  };
  context_->qps.each(bereave);
  context_->targets.each([&](rdma::Target& target) {
    if (target.qp->openers.size() == 1) bereave(*target.qp);
  });
  if (survivors.empty()) return;
  auto timer = std::make_shared<base::EventLoop::Timer>();
  *timer = loop().after(kBereavement, [survivors, timer] {
    for (const auto& survivor : survivors) {
      if (survivor.alive.expired()) continue;
      if (survivor.untold) survivor.qp->recv_cq->notify_untold(survivor.qp->qpn);
      survivor.qp->fail();
    }
    timer->reset();
  });
}

void SessionObjects::kick(uint32_t qp) {
  if (qp == kAllQps) return scan_doorbells();
  const rdma::Qp* one = context_->qps.find(qp);
  if (one != nullptr && one->sender) one->sender->kick();
}

bool SessionObjects::gets_on(uint32_t qp) const {
  bool any = false;
  const auto look = [&](const rdma::Qp& one) {
    any = any || (one.sender && one.sender->gets_on());
  };
  if (qp == kAllQps)
    context_->qps.each(look);
  else if (const rdma::Qp* one = context_->qps.find(qp))
    look(*one);
  return any;
}

// The program published work in a queue that nobody executed, or a receive that a sender waits
// for. The bits say where; what they say is only a hint.
void SessionObjects::scan_doorbells() {
  auto* kicks =
      reinterpret_cast<std::atomic<uint64_t>*>(context_->arena->bytes() + ipc::kKickOffset);
  const size_t slots = context_->qps.capacity();
  for (size_t word = 0; word * 64 < slots; ++word) {
    uint64_t bits = kicks[word].exchange(0, std::memory_order_acquire);
    while (bits != 0) {
      const auto slot =
          static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(__builtin_ctzll(bits));
      bits &= bits - 1;
      rdma::Qp* qp = context_->qps.find(slot + 1);
      if (qp == nullptr) continue;
      if (qp->sender) qp->sender->kick();
      for (rdma::Sender* waiter : std::list(qp->waiters)) waiter->receive_posted();
    }
  }
  context_->srqs.each([](rdma::Srq& srq) {
    for (rdma::Sender* waiter : std::list(srq.waiters)) waiter->receive_posted();
  });
}

}  // namespace vrdma::vrdmad
