#include "vrdmad/worker/worker.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "core/base/log.h"
#include "core/wire/roce.h"
#include "vrdmad/worker/descriptors.h"
#include "vrdmad/worker/raw_gsi.h"
#include "vrdmad/worker/silence.h"

namespace vrdma::vrdmad {

namespace {

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

Worker::Worker(base::EventLoop& loop, std::shared_ptr<Broker> broker,
               std::function<void(ToControl)> tell)
    : loop_(loop),
      runner_(loop),
      tell_(std::move(tell)),
      budgets_([this](uint64_t number) { tell_(WantRates{number}); }),
      refusals_(loop, tell_) {
  settings_.broker = std::move(broker);
  runner_.on_work([this] { work_ = loop_.after(SessionFile::kWorkTime, [this] { note_work(); }); });
}

Worker::~Worker() { end(); }

void Worker::end() {
  sessions_.clear();
  vdevices_.clear();
}

void Worker::take(Parcel parcel) {
  std::visit([&](auto& one) { on(one, std::move(parcel.beside)); }, parcel.message);
}

void Worker::on(const Begin& message, Beside beside) {
  settings_.epoch = message.epoch;
  settings_.grace_ms = message.grace_ms;
  budgets_.set_slot(std::min<size_t>(message.slot, provisioning::kBudgetSlots - 1));
  if (beside.size() != size_t{1} + (message.clients ? 2 : 0)) return;
  auto next = beside.begin();
  if (auto passes = base::SharedPage<base::EventLoop::Passes>::map(std::move(*next++)))
    loop_.show_passes(passes->get());
  if (message.clients) {
    intake_ = Intake::attach(std::move(*next++));
    stopper_ = Stopper::attach(std::move(*next++));
    settings_.intake = intake_.get();
    settings_.stopper = stopper_.get();
    // If one of them ends, control learns of it too.
    if (auto reports = intake_->watch(loop_, [] {})) reports_[0] = std::move(*reports);
    if (auto reports = stopper_->watch(loop_, [] {})) reports_[1] = std::move(*reports);
  }
}

// A fabric stays as long as a Vdevice of it does, which may be longer than the vdevice is listed.
void Worker::on(const AddVdevice& message, Beside beside) {
  auto parts = parts_of(std::move(beside));
  const auto permissions = provisioning::Permissions::of_bits(message.permissions);
  if (!parts || !permissions)
    return base::log_warning("vdevice " + message.label + ": its worker cannot serve it: " +
                             (parts ? "unknown permissions" : parts.error().message()));
  provisioning::Ledger ledger(part(parts->page.get(), &VdevicePage::quota));
  Rates rates;
  for (const auto& [budget, page] : {std::tie(message.tenant_budget, parts->tenant_budget),
                                     std::tie(message.parent_budget, parts->parent_budget)}) {
    ledger.draw_from(budgets_.pool(budget, page));
    budgets_.add_rates(budget, page, &rates);
  }
  if (!ledger.set_limits(settings_of(message.limits))) return;
  auto& entry = fabrics_[message.fabric];
  if (entry.fabric == nullptr)
    entry.fabric = std::make_unique<rdma::Fabric>(message.fabric, parts->fabric.get());
  ++entry.vdevices;
  std::shared_ptr<Vdevice> vdevice(
      new Vdevice(runner_, message.tenant, std::move(ledger), rates, parts->page.get()),
      [this, fabric = message.fabric](Vdevice* gone) {
        delete gone;
        if (--fabrics_[fabric].vdevices == 0) fabrics_.erase(fabric);
      });
  vdevice->id = message.vdevice;
  vdevice->label = message.label;
  vdevice->permissions = *permissions;
  if (parts->gsi.valid())
    vdevice->gsi =
        std::make_unique<RawGsi>(loop_, std::move(parts->gsi), vdevice->counters.qp1_lost);
  vdevice->netns = message.netns;
  vdevice->intake = std::make_shared<Intake::Account>(
      settings_.intake, part(parts->page.get(), &VdevicePage::intake_unfinished));
  vdevice->stops = std::make_shared<Stopper::Account>(settings_.stopper);
  vdevice->may_have_descriptors = [this, tenant = message.tenant](size_t count) {
    return may_have_descriptors(tenant, count);
  };
  rdma::Device& device = vdevice->device;
  device.name = message.name;
  device.tenant = message.tenant;
  device.node_guid = message.node_guid;
  device.qp_numbers =
      std::make_unique<rdma::QpNumbers>(qp_numbers_.of(message.netns), parts->qp_numbers.get());
  device.capabilities = bounded(message.capabilities);
  entry.fabric->add(&device);
  device.fabric->mediate(&device, rdma::Mediated::kNotDirect, message.no_direct);
  vdevice->apply_limits(message.limited);
  set_ways(*vdevice, message.ways);
  vdevices_.emplace(message.vdevice, std::move(vdevice));
}

void Worker::on(const RemoveVdevice& message, Beside) {
  collect(message.vdevice, {}, [this, message] {
    take_out(message.vdevice);
    answer(message.ticket, {});
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

void Worker::on(const SetPort& message, Beside) {
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

void Worker::on(const SetGids& message, Beside) {
  Vdevice* const vdevice = find(message.vdevice);
  if (vdevice == nullptr || vdevice->device.gids == message.gids) return;
  rdma::Device& device = vdevice->device;
  if (const size_t failed = device.fabric->set_gids(&device, message.gids); failed > 0)
    base::log_warning("vdevice " + vdevice->label + ": " + std::to_string(failed) +
                      " connected queue pairs failed, because their address is gone");
  if (vdevice->network != nullptr && vdevice->reaches_network)
    vdevice->network->addresses_changed();
  for (rdma::Context* context : device.contexts) context->raise(verbs::Event::kGidChange, 1);
}

void Worker::on(const SetWays& message, Beside) {
  if (Vdevice* const vdevice = find(message.vdevice)) set_ways(*vdevice, message.ways);
}

void Worker::set_ways(Vdevice& vdevice, const Ways& ways) {
  vdevice.device.island = ways.wire ? vdevice.netns : 0;
  if (!ways.network) return vdevice.leave_network();
  if (incoming_ == nullptr) incoming_ = std::make_shared<transport::roce::Incoming>();
  const uint64_t id = vdevice.id;
  vdevice.reach_network(ways.peers, incoming_,
                        {[&vdevice](const verbs::Gid& address) { return vdevice.is_peer(address); },
                         [this, id](const verbs::Gid& address) {
                           tell_(WantRoceSocket{id, address});
                         },
                         [this, id](const verbs::Gid& group) {
                           tell_(LeaveGroup{id, group});
                         },
                         [&vdevice](const std::string& sentence) {
                           base::log_warning("vdevice " + vdevice.label + ": " + sentence);
                         }});
}

void Worker::on(const RoceSocket& message, Beside beside) {
  Vdevice* const vdevice = find(message.vdevice);
  if (vdevice == nullptr || vdevice->network == nullptr) return;
  const auto sources = static_cast<size_t>(std::popcount(message.has_sources));
  if (message.error != 0 || beside.size() != 1 + sources)
    return vdevice->network->open(message.address, base::fail(message.error, "no socket"));
  auto next = beside.begin() + 1;
  std::vector<transport::roce::SourceSocket> all(message.sources);
  for (unsigned i = 0; i < all.size(); ++i) {
    all[i].port = verbs::few_source_port(i);
    if ((message.has_sources >> i & 1) != 0) all[i].socket = std::move(*next++);
  }
  vdevice->network->open(message.address, std::move(beside[0]), std::move(all));
}

bool Worker::may_have_descriptors(const std::string& tenant, size_t count) const {
  size_t taken = 0, its = 0;
  bool has_others = false;
  for (const auto& [id, vdevice] : vdevices_) {
    const size_t used = vdevice->descriptors();
    taken += used;
    if (vdevice->device.tenant == tenant)
      its += used;
    else
      has_others = true;
  }
  return (!has_others || is_within_share(taken, its, count)) && has_descriptors_for(count);
}

Session::Host Worker::host_of(const Vdevice& vdevice, const Sessions& sessions) {
  return {runner_,
          settings_,
          sessions,
          [this, may_have = vdevice.may_have_descriptors](
              const WantKit& wish, std::function<void(base::Result<SessionKit>)> then) {
            if (!may_have(kSessionDescriptors * (wanting_.size() + 1)))
              return then(base::fail(ENFILE, "the worker has no descriptors for one more session"));
            wanting_[wish.connection] = std::move(then);
            tell_(wish);
          },
          [this](Session* over) { forget(over); },
          [this, id = vdevice.id](pid_t pid, Refused::Why why, provisioning::Kind kind) {
            refusals_.note({id, pid, why, kind, 1});
          }};
}

void Worker::on(const Kit& message, Beside beside) {
  if (const Vdevice* const vdevice = find(message.vdevice))
    vdevice->cpu->spend(std::chrono::nanoseconds(message.used_ns));
  auto wanting = wanting_.extract(message.connection);
  if (wanting.empty()) return;
  if (message.error != 0)
    wanting.mapped()(base::fail(message.error, "control has no kit"));
  else
    wanting.mapped()(kit_of(message.kit, std::move(beside)));
}

void Worker::on(const AdoptChannels& message, Beside beside) {
  if (beside.size() != message.handles.size()) return;
  auto& channels = channels_[message.number];
  for (size_t i = 0; i < beside.size(); ++i) channels[message.handles[i]] = std::move(beside[i]);
}

void Worker::on(const AdoptSession& message, Beside beside) {
  auto session = session_of(message, *settings_.broker, std::move(beside));
  if (!session) {
    base::log_warning("vdevice id:" + std::to_string(message.vdevice) + ": " +
                      session.error().message());
    return tell_(Ended{message.number});
  }
  if (auto its = channels_.extract(message.number)) session->kit.channels = std::move(its.mapped());
  adopting_.push_back(std::move(*session));
}

void Worker::on(const Await& message, Beside) {
  Vdevice* const vdevice = find(message.vdevice);
  if (vdevice == nullptr) return;
  vdevice->cpu->spend(std::chrono::nanoseconds(message.used_ns));
  vdevice->awaits_others = message.others;
}

// nullptr: the log says why.
std::unique_ptr<Session> Worker::adopt(Furnisher::Adopted one) {
  auto connection = std::make_unique<Connection>(one.connection, tell_);
  const auto it = vdevices_.find(one.vdevice);
  if (it == vdevices_.end()) return nullptr;
  end_predecessor(one);
  const std::shared_ptr<Vdevice>& vdevice = it->second;
  const pid_t pid = one.caller->peer().pid;
  auto session = Session::adopt(std::move(one), std::move(connection), vdevice,
                                host_of(*vdevice, sessions_[vdevice.get()]));
  if (!session) {
    base::log_warning("vdevice " + vdevice->label + ": the session of process " +
                      std::to_string(pid) + " cannot be taken over: " + session.error().message());
    return nullptr;
  }
  base::log_info("vdevice " + vdevice->label + ": took over the session of process " +
                 std::to_string(pid));
  if (auto room = vdevice->ledger.charge(provisioning::Kind::kConns, 1))
    (*session)->pay(std::move(*room));
  return std::move(*session);
}

// Those of adopting_ that can be taken over now. The others stay there.
std::vector<Furnisher::Adopted> Worker::adoptable() {
  std::set<uint64_t> awaiting;
  for (const auto& [id, vdevice] : vdevices_) {
    vdevice->keeps_back = false;
    if (vdevice->awaits_others) awaiting.insert(id);
  }
  if (awaiting.empty()) return std::exchange(adopting_, {});
  std::vector<SessionTies> ties;
  for (const auto& one : adopting_) ties.push_back(ties_of(one));
  const auto kept = kept_back(ties, std::move(awaiting), [this](const QpName& name) {
    const Vdevice* const vdevice = find(name.first);
    return vdevice != nullptr && vdevice->device.qps.contains(name.second);
  });
  std::vector<Furnisher::Adopted> now, later;
  for (size_t i = 0; i < kept.size(); ++i) {
    (kept[i] ? later : now).push_back(std::move(adopting_[i]));
    if (Vdevice* const vdevice = find(ties[i].vdevice); vdevice != nullptr && kept[i])
      vdevice->keeps_back = true;
  }
  adopting_ = std::move(later);
  return now;
}

SessionTies Worker::ties_of(const Furnisher::Adopted& one) const {
  const auto none = SessionTies{one.vdevice, {}, {}, false};
  const Vdevice* const vdevice = find(one.vdevice);
  auto anchors = one.kit.anchors.duplicate(), journal = one.kit.journal.duplicate();
  if (vdevice == nullptr || !anchors || !journal) return none;
  const auto files = SessionFiles::open(std::move(*anchors), std::move(*journal));
  const auto image = files ? SessionImage::decode(files->journal->image()) : pass(files.error());
  if (!image) return none;  // adopt() will report the error
  return vrdmad::ties_of(*image, one.vdevice, [&](const verbs::Gid& gid) -> uint64_t {
    const rdma::Device* const owner = vdevice->device.fabric->find(gid);
    const auto its = std::find_if(vdevices_.begin(), vdevices_.end(), [owner](const auto& each) {
      return &each.second->device == owner;
    });
    return its != vdevices_.end() ? its->first : 0;
  });
}

// The journals tell which sessions work, so that the next daemon takes them over first, and with
// them those to which they are connected.
void Worker::note_work() {
  const auto now = loop_.now();
  const std::vector<uint32_t> noted = runner_.take_worked();
  const std::unordered_set<uint32_t> worked(noted.begin(), noted.end());
  std::unordered_set<uint32_t> linked;
  const auto each = [this](const auto& f) {
    for (const auto& [vdevice, sessions] : sessions_)
      for (const auto& session : sessions)
        if (session->journal() != nullptr) f(*session, session->objects()->context());
  };
  each([&](const Session&, const rdma::Context& context) {
    if (!worked.contains(context.id)) return;
    context.qps.each([&](const rdma::Qp& qp) {
      for (const rdma::Qp* const peer : {qp.link.out, qp.link.in})
        if (peer != nullptr && peer->context != nullptr) linked.insert(peer->context->id);
    });
  });
  each([&](const Session& session, const rdma::Context& context) {
    if (worked.contains(context.id) || linked.contains(context.id)) session.journal()->worked(now);
  });
}

void Worker::on(const TakeOver&, Beside) {
  channels_.clear();
  std::vector<Session*> adopted;
  for (auto& one : adoptable()) {
    auto session = adopt(std::move(one));
    if (session == nullptr) continue;
    adopted.push_back(session.get());
    sessions_[session->vdevice().get()].push_back(std::move(session));
  }
  for (Session* session : adopted) session->journal()->restore_pairs();
  for (Session* session : adopted) session->journal()->restore_links();
  for (Session* session : adopted) session->journal()->go_on();
}

// They stay in memory, and their descriptors open, until this process ends: nothing that undoes
// anything is run.
bool Worker::leave_sessions() {
  static auto* const left = new std::vector<std::shared_ptr<void>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  bool any = false;
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
    any = true;
    it = vdevices_.erase(it);
  }
  return any;
}

void Worker::forget(Session* over) {
  const std::shared_ptr<Vdevice> vdevice = over->vdevice();
  const auto its = sessions_.find(vdevice.get());
  if (its == sessions_.end()) return;  // it is left for another daemon
  its->second.remove_if([over](const auto& session) { return session.get() == over; });
  if (!its->second.empty()) return;
  if (vdevice->network != nullptr) vdevice->network->release();
  if (!vdevice->gone) return;
  vdevice->device.fabric->forget_parked(&vdevice->device);
  sessions_.erase(its);
}

// The vdevice's entrance bounds how many of these it has.
struct Worker::Waiting {
  base::Fd socket;
  std::shared_ptr<Caller> caller;
  std::unique_ptr<Connection> connection;
  const Intake::AccountRef account;
  const std::function<void(ToControl)>& tell;
  const uint64_t number = connection->number();
  ~Waiting() {
    tell(Accepted{number});
    if (socket.valid()) close_connection(account, std::move(socket));
  }
};

// In the vdevice's turns: its neighbours do not wait for those who connect to it without end.
void Worker::on(const NewConnection& message, Beside beside) {
  if (beside.size() != 1) return tell_(Ended{message.number});
  const auto it = vdevices_.find(message.vdevice);
  const std::shared_ptr<Waiting> waiting(new Waiting{
      std::move(beside[0]), settings_.broker->borrowed(message.program.entry, message.program.peer),
      std::make_unique<Connection>(message.number, tell_),
      it != vdevices_.end() ? it->second->intake
                            : std::make_shared<Intake::Account>(settings_.intake),
      tell_});
  if (it == vdevices_.end() || !has_descriptors_for(0)) return;
  it->second->backlog.add([this, vdevice = std::weak_ptr(it->second), waiting] {
    begin_session(vdevice.lock(), *waiting);
  });
}

void Worker::begin_session(const std::shared_ptr<Vdevice>& vdevice, Waiting& waiting) {
  if (vdevice->gone) return;
  Sessions& sessions = sessions_[vdevice.get()];
  auto room = make_room(*vdevice, sessions);
  if (!room) {
    const pid_t pid = waiting.caller != nullptr ? waiting.caller->peer().pid : 0;
    refusals_.note({vdevice->id, pid, Refused::Why::kQuota, provisioning::Kind::kConns, 1});
    return;
  }
  auto session =
      Session::start(std::move(waiting.socket), std::move(waiting.caller),
                     std::move(waiting.connection), vdevice, host_of(*vdevice, sessions));
  if (!session) return;
  (*session)->pay(std::move(*room));
  sessions.push_back(std::move(*session));
  if (!silence_.active()) silence_ = loop_.after(kMaxSilence, [this] { end_silent(); });
}

// Looks again as long as there is a connection that is not open.
void Worker::end_silent() {
  constexpr std::chrono::seconds kPause(1);
  bool wait = false;
  for (auto& [vdevice, sessions] : sessions_) wait = vrdmad::end_silent(sessions) || wait;
  silence_.reset();
  if (wait) silence_ = loop_.after(kPause, [this] { end_silent(); });
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

void Worker::collect(uint64_t id, Walk walk, std::function<void()> then) {
  if (!collect_some(id, &walk)) return then();
  loop_.post(
      [this, id, walk, then = std::move(then)]() mutable { collect(id, walk, std::move(then)); });
}

void Worker::on(const Collect& message, Beside) {
  collect(message.vdevice, {}, [this, message] { answer(message.ticket, {}); });
}

void Worker::on(const CheckLimits& message, Beside) {
  const Vdevice* const vdevice = find(message.vdevice);
  answer(message.ticket,
         vdevice != nullptr ? vdevice->ledger.check_limits(settings_of(message.limits)) : gone());
}

void Worker::on(const SetLimits& message, Beside) {
  Vdevice* const vdevice = find(message.vdevice);
  if (vdevice == nullptr) return answer(message.ticket, gone());
  const auto set = vdevice->ledger.set_limits(settings_of(message.limits));
  if (set) vdevice->apply_limits(message.limited);
  answer(message.ticket, set);
}

void Worker::on(const AskCgroups& message, Beside) {
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

namespace {

QueuePairs::Transport transport_of(const Vdevice& vdevice, const rdma::Qp& qp) {
  using Transport = QueuePairs::Transport;
  const verbs::QpType type = qp.type;
  if (type == verbs::QpType::kRawPacket || type == verbs::QpType::kGsi) return Transport::kRaw;
  if (qp.state() == verbs::QpState::kReset || qp.state() == verbs::QpState::kInit)
    return Transport::kNone;
  if (type == verbs::QpType::kUd)
    return vdevice.reaches_network ? Transport::kBoth : Transport::kMediated;
  if (qp.link.outbox != nullptr) {  // the programs could do it, unless a reason speaks against it
    const rdma::Qp* const initiator = qp.link.out != nullptr ? &qp : qp.link.in;
    const bool direct = initiator != nullptr ? initiator->runs_direct()
                                             : !qp.context->device->mediated_because.any();
    return direct ? Transport::kDirect : Transport::kMediated;
  }
  return qp.sender != nullptr && qp.sender->on_network() ? Transport::kNetwork
                                                         : Transport::kMediated;
}

QueuePairs::Row row_of(const Vdevice& vdevice, const rdma::Qp& qp) {
  QueuePairs::Row row;
  row.qpn = qp.qpn;
  if (qp.context != nullptr && qp.context->process != nullptr)
    row.pid = qp.context->process->peer().pid;
  row.type = qp.type;
  row.state = qp.state();
  row.transport = transport_of(vdevice, qp);
  if (row.transport == QueuePairs::Transport::kMediated)
    row.because = verbs::is_connected(qp.type) ? vdevice.device.fabric->why_mediated(qp)
                                               : rdma::NotDirect::kType;
  row.by_program = {qp.by_program.requests, qp.by_program.bytes};
  row.by_worker = {qp.by_worker.requests, qp.by_worker.bytes};
  if (!verbs::is_connected(qp.type) || row.transport == QueuePairs::Transport::kNone) return row;
  row.local = qp.sgid;
  row.remote = qp.dgid();
  row.remote_qpn = qp.attributes.dest_qpn;
  if (qp.sender != nullptr) row.network = qp.sender->on_network().value_or(row.network);
  return row;
}

}  // namespace

void Worker::on(const AskQueuePairs& message, Beside) {
  QueuePairs answer;
  answer.ticket = message.ticket;
  const Vdevice* const vdevice = find(message.vdevice);
  if (vdevice == nullptr) return tell_(std::move(answer));
  std::vector<uint32_t> numbers;
  for (const auto& [qpn, qp] : vdevice->device.qps)
    if (qpn > message.after) numbers.push_back(qpn);
  answer.more = numbers.size() > QueuePairs::kMost;
  const auto end =
      numbers.begin() + static_cast<ptrdiff_t>(std::min(numbers.size(), QueuePairs::kMost));
  std::partial_sort(numbers.begin(), end, numbers.end());
  for (auto it = numbers.begin(); it != end; ++it) {
    rdma::Qp& qp = *vdevice->device.qps.at(*it);
    if (qp.link.out_direct && qp.context != nullptr) qp.collect_direct();
    answer.rows.push_back(row_of(*vdevice, qp));
  }
  tell_(std::move(answer));
}

}  // namespace vrdma::vrdmad
