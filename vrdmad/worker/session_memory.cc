// Protection domains, memory regions, windows and address handles of a session.
#include "core/base/asymmetric_fence.h"
#include "core/rdma/window.h"
#include "vrdmad/worker/session_objects.h"

namespace vrdma::vrdmad {

using provisioning::Kind;

int SessionObjects::alloc_pd(Answer* answer) {
  auto pd = std::make_unique<rdma::Pd>();
  if (const int error = charge(Kind::kPd, 1, &pd->charges); error != 0) return error;
  answer->reply.handle.handle = context_->pds.add(std::move(pd), wanted())->handle;
  return 0;
}

int SessionObjects::dealloc_pd(uint32_t handle) {
  const rdma::Pd* pd = context_->pds.find(handle);
  if (pd == nullptr) return EINVAL;
  if (pd->users > 0) return EBUSY;
  context_->pds.remove(handle);
  return 0;
}

namespace {

// A region on demand that is all of the process's address space.
bool is_implicit(const ipc::RegMrRequest& request) {
  return (request.access & verbs::kOnDemand) != 0 && request.addr == 0 &&
         request.length == UINT64_MAX;
}

// Whether the pages are as the request says is the program's affair: a key can only ever name the
// memory of the process that registered it.
int check_region(const ipc::RegMrRequest& request, rdma::Region* region) {
  if ((request.access & ~static_cast<uint32_t>(verbs::kAccessKnown)) != 0) return EOPNOTSUPP;
  // IBTA 10.6.3.1: who lets others write must let himself.
  const bool remote_writes = (request.access & (verbs::kRemoteWrite | verbs::kRemoteAtomic)) != 0;
  if (remote_writes && (request.access & verbs::kLocalWrite) == 0) return EINVAL;
  const auto way = static_cast<ipc::Way>(request.way);
  switch (way) {
    case ipc::Way::kInPlace:
    case ipc::Way::kReached:
      if (is_implicit(request)) break;
      if (request.addr + request.length < request.addr ||
          request.addr + request.length > ipc::kMemoryArenaSize ||
          request.iova + request.length < request.iova)
        return EINVAL;
      break;
    case ipc::Way::kNull:
      if (request.length != 0 || request.access != verbs::kLocalWrite) return EINVAL;
      break;
    default:
      return EINVAL;
  }
  if (request.reached > static_cast<uint32_t>(ipc::kLastReached)) return EINVAL;
  region->pd = request.pd;
  region->access = request.access;
  region->addr = request.addr;
  region->length = request.length;
  region->iova = request.iova;
  region->way = is_implicit(request) ? ipc::Way::kReached : way;
  return 0;
}

// Nothing stands behind an implicit region until it is used.
uint64_t bytes_of(const rdma::Region& region) {
  return region.length == UINT64_MAX ? 0 : region.length;
}

}  // namespace

// Memory is reached to be read only until the first region that may be written. The process must
// still be what it was when it connected.
int SessionObjects::reach_to_write(const rdma::Region& region) {
  rdma::Reach& reach = *context_->process->reach();
  if (region.way != ipc::Way::kReached || (region.access & verbs::kLocalWrite) == 0 ||
      reach.may_write())
    return 0;
  auto opened = caller_->open(true);
  if (!opened) return EPERM;
  reach.replace(std::move(opened->memory));
  return 0;
}

int SessionObjects::reg_mr(const ipc::RegMrRequest& request, Answer* answer) {
  rdma::Context& context = *context_;
  rdma::Pd* pd = context.pds.find(request.pd);
  if (pd == nullptr) return EINVAL;
  auto mr = std::make_unique<rdma::Mr>();
  if (const int error = check_region(request, &mr->region); error != 0) return error;
  if (const int error = reach_to_write(mr->region); error != 0) return error;
  if (const int error = charge(Kind::kMr, 1, &mr->charges); error != 0) return error;
  if (const int error = charge(Kind::kMrBytes, bytes_of(mr->region), &mr->bytes); error != 0)
    return error;
  mr->key = forced_ == nullptr ? context.take_key({mr.get(), nullptr})
                               : context.take_key({mr.get(), nullptr}, forced_->reg_mr.key);
  if (mr->key == 0) return ENOMEM;
  mr->pd = pd;
  ++pd->users;
  if (forced_ == nullptr) count_reached(request);
  context.set_key(mr->key, &mr->region);
  const rdma::Mr* made = context.mrs.add(std::move(mr), wanted());
  answer->reply.reg_mr = {made->handle, made->key, made->region.length};
  return 0;
}

// The reason is the program's word; that the region is reached is not.
void SessionObjects::count_reached(const ipc::RegMrRequest& request) {
  if (request.way != static_cast<uint32_t>(ipc::Way::kReached)) return;
  const auto said = static_cast<ipc::Reached>(request.reached);
  ++vdevice_->counters
        .reached[static_cast<size_t>(said == ipc::Reached::kNot ? ipc::Reached::kOther : said)];
}

// The program's other threads stand still from the answer on, until it says in its HoldWords that
// it is done. So it must want one.
int SessionObjects::hold(const ipc::HoldRequest& request, Answer* answer) {
  if (!owner_.is_awaited()) return EINVAL;
  ++vdevice_->counters.holds;
  Stopper* const stopper = vdevice_->stops->stopper();
  if (stopper == nullptr) {
    answer->reply.hold.reached = static_cast<uint32_t>(ipc::Reached::kRefused);
    return 0;
  }
  answer->deferred = true;
  const rdma::Process& process = *context_->process;
  held_ = stopper->hold(vdevice_->stops,
                        {process.peer(), request.thread, process.pidfd(), context_->arena_fd.get()},
                        loop(), [this, alive = std::weak_ptr(alive_)](Stopper::Answer came) {
                          if (alive.expired()) return;
                          Answer late;
                          late.reply.hold = {came.serial, static_cast<uint32_t>(came.reached)};
                          owner_.answer(std::move(late));
                        });
  return 0;
}

int SessionObjects::import_pd(uint32_t handle, Answer* answer) {
  const rdma::Context* exporter = context_->find_exporter();
  const rdma::Pd* origin = exporter != nullptr ? exporter->pds.find(handle) : nullptr;
  if (origin == nullptr || origin->origin.context != 0) return EINVAL;
  auto pd = std::make_unique<rdma::Pd>();
  if (const int error = charge(Kind::kPd, 1, &pd->charges); error != 0) return error;
  pd->origin = {exporter->id, handle, 0};
  answer->reply.handle.handle = context_->pds.add(std::move(pd))->handle;
  return 0;
}

bool SessionObjects::may_import() const {
  const rdma::Context* exporter = context_->find_exporter();
  return exporter != nullptr && exporter->process->may_share_with(*context_->process);
}

int SessionObjects::restore_imported_pd(uint32_t handle, const rdma::Origin& origin) {
  auto pd = std::make_unique<rdma::Pd>();
  if (const int error = charge(Kind::kPd, 1, &pd->charges); error != 0) return error;
  pd->origin = origin;
  (void)context_->pds.add(std::move(pd), handle);
  return 0;
}

// Whether the origin is still there, and what it is, is found at each use (Context::resolve).
int SessionObjects::restore_imported_mr(uint32_t handle, uint32_t key, uint32_t pd_handle,
                                        const rdma::Origin& origin) {
  rdma::Pd* pd = context_->pds.find(pd_handle);
  if (pd == nullptr) return EINVAL;
  auto mr = std::make_unique<rdma::Mr>();
  if (const int error = charge(Kind::kMr, 1, &mr->charges); error != 0) return error;
  if (!context_->key_record.take({mr.get(), nullptr}, key)) return EEXIST;
  mr->key = key;
  mr->origin = origin;
  add_imported(std::move(mr), *pd, handle);
  return 0;
}

rdma::Mr* SessionObjects::add_imported(std::unique_ptr<rdma::Mr> mr, rdma::Pd& pd,
                                       uint32_t handle) {
  mr->pd = &pd;
  ++pd.users;
  mr->region.pd = pd.handle;
  mr->region.way = ipc::Way::kImported;
  context_->set_key(mr->key, &mr->region);
  return context_->mrs.add(std::move(mr), handle);
}

// The key is the exporter's if its slot is free here, so that peers may know it already.
int SessionObjects::import_mr(const ipc::ImportMrRequest& request, Answer* answer) {
  rdma::Pd* pd = context_->pds.find(request.pd);
  const rdma::Context* exporter = context_->find_exporter();
  const rdma::Mr* origin = exporter != nullptr ? exporter->mrs.find(request.handle) : nullptr;
  if (pd == nullptr || origin == nullptr || origin->origin.context != 0 ||
      !rdma::shares_domain(*origin, exporter->id, *pd))
    return EINVAL;
  auto mr = std::make_unique<rdma::Mr>();
  if (const int error = charge(Kind::kMr, 1, &mr->charges); error != 0) return error;
  mr->key = context_->take_key({mr.get(), nullptr}, origin->key);
  if (mr->key == 0) return ENOMEM;
  mr->origin = {exporter->id, origin->handle, origin->key};
  const uint64_t length = origin->region.length;
  const rdma::Mr* made = add_imported(std::move(mr), *pd, 0);
  answer->reply.reg_mr = {made->handle, made->key, length};
  return 0;
}

// The key stays, and what it names changes at once. An error leaves all as it was.
int SessionObjects::rereg_mr(const ipc::ReregMrRequest& request, Answer* answer) {
  rdma::Mr* mr = context_->mrs.find(request.handle);
  if (mr == nullptr || mr->region.way == ipc::Way::kNull || mr->origin.context != 0) return EINVAL;
  if (mr->windows > 0) return EBUSY;
  rdma::Pd* pd = context_->pds.find(request.to.pd);
  if (pd == nullptr || request.to.way == static_cast<uint32_t>(ipc::Way::kNull)) return EINVAL;
  rdma::Region region;
  if (const int error = check_region(request.to, &region); error != 0) return error;
  if (const int error = reach_to_write(region); error != 0) return error;
  rdma::Charges bytes;
  const uint64_t held = bytes_of(mr->region), needed = bytes_of(region);
  if (needed > held)
    if (const int error = charge(Kind::kMrBytes, needed - held, &bytes); error != 0) return error;
  auto* account = static_cast<provisioning::Charge*>(mr->bytes.front().get());
  if (needed > held)
    account->absorb(std::move(*static_cast<provisioning::Charge*>(bytes.front().get())));
  else
    account->shrink_to(needed);
  --mr->pd->users;
  ++pd->users;
  mr->pd = pd;
  mr->region = region;
  count_reached(request.to);
  context_->set_key(mr->key, &region);
  answer_when_key_unused(answer);
  return 0;
}

int SessionObjects::dereg_mr(uint32_t handle, Answer* answer) {
  const rdma::Mr* mr = context_->mrs.find(handle);
  if (mr == nullptr) return EINVAL;
  if (mr->windows > 0) return EBUSY;
  context_->set_key(mr->key, nullptr);
  context_->give_back_key(mr->key);
  --mr->pd->users;
  context_->mrs.remove(handle);
  answer_when_key_unused(answer);
  return 0;
}

// After this an initiator on a direct link is either marked busy or sees that the key has ended.
// (Fabric::cut_out does the same for links.)
void SessionObjects::answer_when_key_unused(Answer* answer) {
  base::AsymmetricFence::heavy();
  answer_when_unreached(answer);
}

// A key or a queue pair has ended. When the answer goes out, no worker uses memory by way of it any
// more: what is in place is used within one turn of this thread, what is reached by jobs, which are
// waited for. Initiators on direct links either see that it has ended or are marked busy, and the
// program waits for them.
void SessionObjects::answer_when_unreached(Answer* answer) {
  answer_when(answer, [](rdma::Reach& reach, const rdma::Reach* exporter, auto done) {
    if (exporter != nullptr)
      reach.release(*exporter, std::move(done));
    else
      reach.barrier(std::move(done));
  });
}

// Calls `each` for every reach that works on this session's memory: its own, and those of importers
// with `exporter`. The answer goes out when each has called `done`.
template <class Each>
void SessionObjects::answer_when(Answer* answer, Each each) {
  auto left = std::make_shared<size_t>(1);  // this function itself
  const auto one_less = [this, left, reply = answer->reply, alive = std::weak_ptr(alive_)] {
    if (--*left > 0 || alive.expired()) return;
    Answer late;
    late.reply = reply;
    owner_.answer(std::move(late));
  };
  rdma::Reach& own = *context_->process->reach();
  // Those of importers work on this memory too.
  for (const rdma::Context* other : vdevice_->device.contexts) {
    if (other->exporter != context_->id) continue;
    ++*left;
    each(*other->process->reach(), &own, one_less);
  }
  ++*left;
  each(own, nullptr, one_less);
  answer->deferred = --*left > 0;
}

namespace {

bool meet(const rdma::Region& region, const ipc::ReachRequest& range) {
  return region.way == ipc::Way::kInPlace && region.addr < range.addr + range.length &&
         range.addr < region.addr + region.length;
}

}  // namespace

// All of it is checked before any of it is done.
int SessionObjects::reach(const ipc::ReachRequest& request, Answer* answer) {
  made_reached_.clear();
  if (request.length == 0) {
    end_pauses();
    return 0;
  }
  if (request.addr + request.length < request.addr) return EINVAL;
  rdma::Context& context = *context_;
  if (context.device->fabric->has_died(request.peer)) {
    answer->reply.reach.peer_died = 1;
    return 0;
  }
  int error = 0;
  context.mrs.each([&](const rdma::Mr& mr) {
    rdma::Region reached = mr.region;
    reached.way = ipc::Way::kReached;
    if (error == 0 && meet(mr.region, request)) error = reach_to_write(reached);
  });
  if (error != 0) return error;
  context.mws.each([&](const rdma::Mw& mw) {
    if (mw.mr == nullptr || !meet(mw.mr->region, request)) return;
    rdma::Region region = *context.key_record.find(mw.key);
    region.way = ipc::Way::kReached;
    context.set_key(mw.key, &region);
  });
  context.mrs.each([&](rdma::Mr& mr) {
    if (!meet(mr.region, request)) return;
    mr.region.way = ipc::Way::kReached;
    context.set_key(mr.key, &mr.region);
    made_reached_.push_back(mr.handle);
  });
  ++vdevice_->counters.reached[static_cast<size_t>(ipc::Reached::kLate)];
  base::AsymmetricFence::heavy();                  // as for a key that has ended
  const auto before = std::exchange(paused_, {});  // goes on until these pauses have begun
  answer_when(answer, [this](rdma::Reach& reach, const rdma::Reach* exporter, auto ready) {
    if (exporter != nullptr) {
      reach.release(*exporter, std::move(ready));
      paused_.push_back(reach.pause([] {}));
    } else {
      paused_.push_back(reach.pause(std::move(ready)));
    }
  });
  return 0;
}

int SessionObjects::alloc_mw(const ipc::AllocMwRequest& request, Answer* answer) {
  rdma::Pd* pd = context_->pds.find(request.pd);
  if (pd == nullptr || request.type < 1 || request.type > 2) return EINVAL;
  auto mw = std::make_unique<rdma::Mw>();
  if (const int error = charge(Kind::kMw, 1, &mw->charges); error != 0) return error;
  mw->key = forced_ == nullptr ? context_->take_key({nullptr, mw.get()})
                               : context_->take_key({nullptr, mw.get()}, forced_->alloc_mw.key);
  if (mw->key == 0) return ENOMEM;
  mw->type_2 = request.type == 2;
  mw->pd = pd;
  ++pd->users;
  const rdma::Mw* made = context_->mws.add(std::move(mw), wanted());
  answer->reply.alloc_mw = {made->handle, made->key};
  return 0;
}

int SessionObjects::dealloc_mw(uint32_t handle, Answer* answer) {
  rdma::Mw* mw = context_->mws.find(handle);
  if (mw == nullptr) return EINVAL;
  rdma::unbind_window(*context_, *mw);
  context_->give_back_key(mw->key);
  --mw->pd->users;
  context_->mws.remove(handle);
  answer_when_key_unused(answer);
  return 0;
}

int SessionObjects::create_ah(const verbs::AddressVector& av, Answer* answer) {
  if (forced_ == nullptr &&
      (av.is_global == 0 || av.port_num != 1 || !vdevice_->device.has_gid(av.sgid_index)))
    return EINVAL;
  auto ah = std::make_unique<rdma::Context::Ah>();
  if (const int error = charge(Kind::kAh, 1, &ah->charges); error != 0) return error;
  answer->reply.handle.handle = context_->ahs.add(std::move(ah), wanted())->handle;
  return 0;
}

int SessionObjects::destroy_ah(uint32_t handle) {
  if (context_->ahs.find(handle) == nullptr) return EINVAL;
  context_->ahs.remove(handle);
  return 0;
}

}  // namespace vrdma::vrdmad
