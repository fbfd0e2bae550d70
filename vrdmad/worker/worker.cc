#include "vrdmad/worker/worker.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>
#include <tuple>
#include <utility>

#include "vrdmad/worker/raw_gsi.h"

namespace vrdma::vrdmad {

namespace {

// Of a vdevice: connections that have not said who they are.
constexpr size_t kMaxStrangers = 1024;

// The right of one more connection to be there. If there are too many, who has said nothing for
// longest has to go; if all have opened the vdevice, there is none.
base::Result<provisioning::Charge> make_room(Vdevice& vdevice, Sessions& sessions) {
  const auto is_stranger = [](const auto& session) { return session->objects() == nullptr; };
  for (;;) {
    const bool fits = sessions.size() < vdevice.device.contexts.size() + kMaxStrangers;
    if (!fits) vdevice.ledger.count_refusal(provisioning::Kind::kConns);
    auto charge = fits ? vdevice.ledger.charge(provisioning::Kind::kConns, 1)
                       : base::fail(ENOMEM, "too many say nothing");
    if (charge) return charge;
    const auto oldest = std::find_if(sessions.begin(), sessions.end(), is_stranger);
    if (oldest == sessions.end()) return charge;
    sessions.erase(oldest);
  }
}

// What the rings hold of what the parent allows.
verbs::Capabilities bounded(verbs::Capabilities all) {
  all.max_sge = std::min(all.max_sge, ipc::kMaxSge);
  all.max_inline = std::min(all.max_inline, ipc::kMaxInline);
  all.max_rd_atomic = std::min(all.max_rd_atomic, ipc::kMaxRdAtomic);
  all.max_message = std::min(all.max_message, verbs::kMaxMessage);
  return all;
}

base::Result<void> gone() { return base::fail(ENOENT, "the vdevice has gone"); }

std::vector<provisioning::Setting> settings_of(const std::vector<Limit>& limits) {
  std::vector<provisioning::Setting> settings;
  for (const Limit& one : limits)
    settings.push_back({std::string(provisioning::traits(one.kind).name), one.limit});
  return settings;
}

}  // namespace

base::Result<std::unique_ptr<Worker>> Worker::start(const SessionSettings& settings, unsigned index,
                                                    std::function<void(ToControl)> tell) {
  auto loop = base::EventLoop::create();
  if (!loop) return base::pass(std::move(loop.error()), "start a worker");
  std::unique_ptr<Worker> worker(
      new Worker(std::move(*loop), settings, budget_slot(index), std::move(tell)));
  worker->thread_ = std::thread([loop = worker->loop_.get()] { loop->run(); });
  ::pthread_setname_np(worker->thread_.native_handle(),
                       ("worker-" + std::to_string(index)).c_str());
  return worker;
}

Worker::~Worker() {
  call([this] {
    sessions_.clear();
    vdevices_.clear();
  });
  loop_->stop();
  thread_.join();
  // A thread that is in a program's memory for a session that is left will still post here.
  if (left_) (void)loop_.release();
}

void Worker::add(AddVdevice message, VdeviceShared shared) {
  shared_.put(message.vdevice, std::move(shared));
  send(std::move(message));
}

// A fabric stays as long as a Vdevice of it does, which may be longer than the vdevice is listed.
void Worker::on(const AddVdevice& message) {
  auto shared = shared_.take(message.vdevice);
  const auto permissions = provisioning::Permissions::of_bits(message.permissions);
  if (!shared || !permissions) return;
  provisioning::Ledger ledger(part(shared->page, &VdevicePage::quota));
  Rates rates;
  for (const auto& [budget, page] : {std::tie(message.tenant_budget, shared->tenant_budget),
                                     std::tie(message.parent_budget, shared->parent_budget)}) {
    if (auto pool = budgets_.pool(budget, page)) ledger.draw_from(std::move(pool));
    budgets_.add_rates(budget, page, &rates);
  }
  if (!ledger.set_limits(settings_of(message.limits))) return;
  auto& entry = fabrics_[message.fabric];
  if (entry.fabric == nullptr)
    entry.fabric = std::make_unique<rdma::Fabric>(message.fabric, shared->fabric_counters);
  ++entry.vdevices;
  std::shared_ptr<Vdevice> vdevice(
      new Vdevice(runner_, message.tenant, std::move(ledger), rates, std::move(shared->page)),
      [this, fabric = message.fabric](Vdevice* gone) {
        delete gone;
        if (--fabrics_[fabric].vdevices == 0) fabrics_.erase(fabric);
      });
  vdevice->id = message.vdevice;
  vdevice->label = message.label;
  vdevice->permissions = *permissions;
  if (shared->gsi.valid())
    vdevice->gsi =
        std::make_unique<RawGsi>(*loop_, std::move(shared->gsi), vdevice->counters.qp1_lost);
  vdevice->netns = message.netns;
  vdevice->intake = std::move(shared->intake);
  vdevice->stops = std::make_shared<Stopper::Account>(settings_.stopper);
  rdma::Device& device = vdevice->device;
  device.name = message.name;
  device.tenant = message.tenant;
  device.node_guid = message.node_guid;
  device.qp_numbers =
      std::make_unique<rdma::QpNumbers>(qp_numbers_.of(message.netns), shared->qp_numbers.get());
  device.capabilities = bounded(message.capabilities);
  vdevice->transports.parent = std::move(shared->parent_sender);
  entry.fabric->add(&device);
  vdevice->ibdev = message.ibdev;
  device.fabric->mediate(&device, rdma::Mediated::kNotDirect, message.no_direct);
  vdevice->apply_limits(message.limited);
  vdevices_.emplace(message.vdevice, std::move(vdevice));
}

void Worker::remove(uint64_t id) {
  Walk walk;
  while (call([&] { return collect_some(id, &walk); })) {
  }
  call([&] {
    const auto it = vdevices_.find(id);
    if (it == vdevices_.end()) return;
    const std::shared_ptr<Vdevice> vdevice = it->second;
    vdevices_.erase(it);
    vdevice->gone = true;
    vdevice->transports.parent = nullptr;
    const auto its = sessions_.find(vdevice.get());
    if (its != sessions_.end()) {
      for (auto& session : its->second)
        if (session->objects() != nullptr) session->objects()->device_gone();
      if (its->second.empty()) sessions_.erase(its);
    }
    vdevice->device.fabric->remove(&vdevice->device);
    vdevice->device.gids.clear();
  });
}

void Worker::send(ToWorker message) {
  loop_->post([this, message = std::move(message)]() mutable {
    std::visit([this](auto& one) { on(std::move(one)); }, message);
  });
}

Vdevice* Worker::find(uint64_t id) const {
  const auto it = vdevices_.find(id);
  return it != vdevices_.end() ? it->second.get() : nullptr;
}

void Worker::answer(uint64_t ticket, const base::Result<void>& done) const {
  if (ticket == 0) return;
  tell_(done ? Done{ticket, 0, {}} : Done{ticket, done.error().code(), done.error().message()});
}

void Worker::on(const SetPort& message) {
  Vdevice* const vdevice = find(message.vdevice);
  if (vdevice == nullptr) return;
  const PortStatus& status = message.status;
  rdma::Device& device = vdevice->device;
  const bool changed = device.port_active() != status.active;
  device.fabric->mediate(&device, rdma::Mediated::kPortDown, !status.active);
  device.mtu = status.mtu;
  device.ifindex = status.ifindex;
  device.mac = status.mac;
  if (!changed) return;
  const auto event = status.active ? verbs::Event::kPortActive : verbs::Event::kPortError;
  for (rdma::Context* context : device.contexts) context->raise(event, 1);
}

void Worker::on(SetGids message) {
  Vdevice* const vdevice = find(message.vdevice);
  if (vdevice == nullptr || vdevice->device.gids == message.gids) return;
  rdma::Device& device = vdevice->device;
  device.fabric->set_gids(&device, std::move(message.gids));
  for (rdma::Context* context : device.contexts) context->raise(verbs::Event::kGidChange, 1);
}

Session::Host Worker::host_of(const Sessions& sessions) {
  return {runner_, settings_, sessions,
          [this](const WantKit& wish, std::function<void(base::Result<SessionKit>)> then) {
            wanting_[wish.connection] = std::move(then);
            tell_(wish);
          },
          [this](Session* over) { forget(over); }};
}

void Worker::furnish(Kit answer, base::Result<SessionKit> kit) {
  if (kit)
    kits_.put(answer.connection, std::move(*kit));
  else
    answer.error = kit.error().code();
  send(answer);
}

void Worker::on(const Kit& message) {
  if (const Vdevice* const vdevice = find(message.vdevice))
    vdevice->cpu->spend(std::chrono::nanoseconds(message.used_ns));
  auto kit = kits_.take(message.connection);
  auto wanting = wanting_.extract(message.connection);
  if (wanting.empty()) return;
  if (kit)
    wanting.mapped()(std::move(*kit));
  else
    wanting.mapped()(base::fail(message.error != 0 ? message.error : EIO, "control has no kit"));
}

void Worker::adopt(std::vector<Furnisher::Adopted> found,
                   const std::map<uint64_t, base::Duration>& searched,
                   const std::set<std::string>& later) {
  call([&] {
    for (const auto& [id, used] : searched)
      if (const Vdevice* const vdevice = find(id)) vdevice->cpu->spend(used);
    for (const auto& [id, vdevice] : vdevices_)
      vdevice->awaits_others = later.contains(vdevice->device.fabric->name());
    std::vector<Session*> adopted;
    for (auto& one : found) {
      auto connection = std::make_unique<Connection>(one.connection, tell_);
      const auto it = vdevices_.find(one.vdevice);
      if (it == vdevices_.end()) continue;
      const std::string& label = it->second->label;
      const pid_t pid = one.caller->peer().pid;
      Sessions& sessions = sessions_[it->second.get()];
      auto session =
          Session::adopt(std::move(one), std::move(connection), it->second, host_of(sessions));
      if (!session) {
        spdlog::warn("vdevice {}: the session of process {} cannot be taken over: {}", label, pid,
                     session.error().message());
        continue;
      }
      spdlog::info("vdevice {}: took over the session of process {}", label, pid);
      if (auto room = it->second->ledger.charge(provisioning::Kind::kConns, 1))
        (*session)->pay(std::move(*room));
      adopted.push_back(session->get());
      sessions.push_back(std::move(*session));
    }
    for (Session* session : adopted) session->journal()->restore_pairs();
    for (Session* session : adopted) session->journal()->restore_links();
    for (Session* session : adopted) session->journal()->go_on();
  });
}

// They stay in memory, and their descriptors open, until this process ends: nothing that undoes
// anything is run.
void Worker::leave_sessions() {
  static auto* const left = new std::vector<std::shared_ptr<void>>;
  static std::mutex mutex;
  call([&] {
    const std::lock_guard lock(mutex);
    for (auto it = vdevices_.begin(); it != vdevices_.end();) {
      const auto its = sessions_.find(it->second.get());
      if (its == sessions_.end() ||
          std::none_of(its->second.begin(), its->second.end(),
                       [](const auto& one) { return one->journal() != nullptr; })) {
        ++it;
        continue;
      }
      const auto fabric = fabrics_.find(it->second->device.fabric->name());
      if (fabric != fabrics_.end() && fabric->second.fabric != nullptr)
        left->push_back(std::shared_ptr<rdma::Fabric>(std::move(fabric->second.fabric)));
      left->push_back(it->second);
      left->push_back(std::make_shared<SessionMap::node_type>(sessions_.extract(its)));
      left_ = true;
      it = vdevices_.erase(it);
    }
  });
}

void Worker::forget(Session* over) {
  const std::shared_ptr<Vdevice> vdevice = over->vdevice();
  const auto its = sessions_.find(vdevice.get());
  if (its == sessions_.end()) return;  // it is left for another daemon
  its->second.remove_if([over](const auto& session) { return session.get() == over; });
  if (vdevice->gone && its->second.empty()) sessions_.erase(its);
}

// Its entrance bounds how many of these a vdevice has.
struct Worker::Waiting {
  Arrival arrival;
  std::unique_ptr<Connection> connection;
  const Entrance::Waiting counted;
  Waiting(Arrival from, std::unique_ptr<Connection> of)
      : arrival(std::move(from)), connection(std::move(of)), counted(arrival.entrance) {}
  ~Waiting() {
    if (arrival.socket.valid()) close_connection(arrival.account, std::move(arrival.socket));
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
};

void Worker::accept(uint64_t id, uint64_t connection, Arrival arrival) {
  connections_.put(connection,
                   std::make_shared<Waiting>(std::move(arrival),
                                             std::make_unique<Connection>(connection, tell_)));
  send(NewConnection{id, connection});
}

// In the vdevice's turns: its neighbours do not wait for those who connect to it without end.
void Worker::on(const NewConnection& message) {
  const auto waiting = connections_.take(message.number);
  const auto it = vdevices_.find(message.vdevice);
  if (!waiting || it == vdevices_.end()) return;
  it->second->backlog.add([this, vdevice = std::weak_ptr(it->second), waiting = *waiting] {
    begin_session(vdevice.lock(), *waiting);
  });
}

void Worker::begin_session(const std::shared_ptr<Vdevice>& vdevice, Waiting& waiting) {
  if (vdevice->gone) return;
  Sessions& sessions = sessions_[vdevice.get()];
  auto room = make_room(*vdevice, sessions);
  if (!room) return;
  auto session = Session::start(std::move(waiting.arrival), std::move(waiting.connection), vdevice,
                                host_of(sessions));
  if (!session) return;
  (*session)->pay(std::move(*room));
  sessions.push_back(std::move(*session));
}

// The links of a table that grew meanwhile are looked at again.
bool Worker::collect_some(uint64_t id, Walk* walk) {
  constexpr size_t kBuckets = 1024;  // of the table, each about a queue pair
  const auto it = vdevices_.find(id);
  if (it == vdevices_.end()) return false;
  const auto& qps = it->second->device.qps;
  if (std::exchange(walk->buckets, qps.bucket_count()) != walk->buckets) walk->next = 0;
  const size_t end = std::min(walk->next + kBuckets, walk->buckets);
  for (; walk->next < end; ++walk->next)
    for (auto at = qps.begin(walk->next); at != qps.end(walk->next); ++at) {
      at->second->collect_direct();
      if (rdma::Qp* const in = at->second->link.in) in->collect_direct();  // what came in by it
    }
  return walk->next < walk->buckets;
}

void Worker::collect_rest(const Collect& message, Walk walk) {
  if (!collect_some(message.vdevice, &walk)) return answer(message.ticket, {});
  loop_->post([this, message, walk] { collect_rest(message, walk); });
}

void Worker::on(const Collect& message) { collect_rest(message, {}); }

void Worker::on(const CheckLimits& message) {
  const Vdevice* const vdevice = find(message.vdevice);
  answer(message.ticket,
         vdevice != nullptr ? vdevice->ledger.check_limits(settings_of(message.limits)) : gone());
}

void Worker::on(const SetLimits& message) {
  Vdevice* const vdevice = find(message.vdevice);
  if (vdevice == nullptr) return answer(message.ticket, gone());
  const auto set = vdevice->ledger.set_limits(settings_of(message.limits));
  if (set) vdevice->apply_limits(message.limited);
  answer(message.ticket, set);
}

void Worker::on(const AskCgroups& message) {
  CgroupUse use;
  use.ticket = message.ticket;
  const Vdevice* const vdevice = find(message.vdevice);
  if (vdevice == nullptr) return tell_(std::move(use));
  auto it = message.after.empty() ? vdevice->cgroups.begin()
                                  : vdevice->cgroups.upper_bound(message.after);
  for (; it != vdevice->cgroups.end() && !use.more; ++it) {
    const auto pool = it->second.lock();
    if (pool == nullptr) continue;
    CgroupUse::Group group{it->first, {}};
    for (const provisioning::Kind kind : provisioning::all_kinds())
      if (const uint64_t used = pool->used(kind); used > 0) group.used.push_back({kind, used});
    if (group.used.empty()) continue;
    use.more = use.groups.size() == CgroupUse::kMost;
    if (!use.more) use.groups.push_back(std::move(group));
  }
  tell_(std::move(use));
}

}  // namespace vrdma::vrdmad
