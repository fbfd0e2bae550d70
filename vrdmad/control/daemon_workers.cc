// The vdevices' workers: what they get when they start, what they say, and their replacement.
#include <spdlog/spdlog.h>

#include <bit>
#include <cstring>
#include <utility>

#include "provisioning/cgroup.h"
#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

// A fabric that the operator named may get vdevices of several tenants at any time.
std::string Daemon::domain_of(const Record& record) const {
  switch (options_.isolation) {
    case Isolation::kTenant:
      if (record.spec.fabric.empty()) return "tenant/" + record.tenant;
      [[fallthrough]];
    case Isolation::kFabric:
      return "fabric/" + record.fabric;
    case Isolation::kNone:
      break;
  }
  return "worker/" + std::to_string(std::hash<std::string>()(record.fabric) % options_.workers);
}

Result<Workers::Running> Daemon::start_worker(unsigned slot, const Workers::Tell& tell,
                                              const Workers::Ended& ended) {
  auto passes = base::SharedPage<base::EventLoop::Passes>::make("vrdma-passes");
  if (!passes) return pass(std::move(passes).error());
  Begin begin;
  begin.epoch = settings_.epoch;
  begin.grace_ms = settings_.grace_ms;
  begin.slot = slot;
  std::vector<Result<base::Fd>> files;
  files.push_back(passes->file().duplicate());
  if (settings_.intake != nullptr && settings_.stopper != nullptr) {
    begin.clients = true;
    files.push_back(settings_.intake->add_client());
    files.push_back(settings_.stopper->add_client());
  }
  Workers::Running worker{nullptr, std::move(*passes), {}};
  auto started = outside_.start_worker(tell, ended);
  if (!started) return pass(std::move(started).error());
  worker.end = std::move(*started);
  Beside beside;
  for (auto& file : files) {
    if (!file) return pass(std::move(file).error());
    beside.push_back(std::move(*file));
  }
  for (size_t i = 1; i < beside.size(); ++i) {  // behind that of the passes
    auto helper = beside[i].duplicate();
    if (!helper) return pass(std::move(helper).error());
    worker.helpers.push_back(std::move(*helper));
  }
  worker.end->send(Parcel{begin, std::move(beside)});
  return worker;
}

// The broker has no such worker: the connection waits, and this is called again.
constexpr Recipient kLater{UINT32_MAX, 0};

Recipient Daemon::recipient(Record& record) {
  // The next worker must have the sessions of the dead one before their programs come to it.
  if (orphans_.contains(record.domain)) return kLater;
  auto worker = workers_.need(record.domain);
  const bool packets = record.permissions.has(provisioning::Permission::kRawPacket);
  if (worker) return {(*worker)->entry(), packets ? broker::Request::kMayPacketSocket : 0u};
  if (std::has_single_bit(++record.unserved))
    spdlog::error("vdevice {}: {}", record.label, worker.error().message());
  return kLater;
}

// A failure may pass, as while the broker is replaced, so programs wait a moment.
Recipient Daemon::recipient_of_next(Record& record) {
  constexpr auto kPause = std::chrono::milliseconds(100);  // however often programs connect
  const auto fails = [&] {
    const Workers::Lack* const lack = workers_.lack(record.domain);
    return lack != nullptr && loop_.now() - lack->last < kPause;
  };
  const Recipient its = fails() ? kLater : recipient(record);
  const Workers::Lack* const lack = workers_.lack(record.domain);
  record.declines = lack != nullptr && loop_.now() - lack->since >= kWorkerLack;
  return record.declines ? Recipient{} : its;
}

void Daemon::accept(const Record& record, Arrival arrival) {
  if (record.declines) return declined_.add(std::move(arrival));
  WorkerEnd* const worker = workers_.find(record.domain);
  if (worker == nullptr)  // it died since recipient()
    return close_connection(record.intake, std::move(arrival.socket));
  const uint64_t connection = furnisher_.add(
      record.id, arrival.caller, std::make_unique<Entrance::Waiting>(std::move(arrival.entrance)));
  workers_.add(record.domain, connection);
  worker->send(parcel(record.id, connection, std::move(arrival)));
}

void Daemon::on_started(const std::string& domain) {
  for (const auto& [id, record] : records_)
    if (record->domain == domain) give_to_worker(*record);
}

void Daemon::give_to_worker(Record& record) {
  WorkerEnd* const worker = workers_.find(record.domain);
  if (worker == nullptr) return;
  AddVdevice message;
  message.vdevice = record.id;
  message.name = record.spec.name;
  message.label = record.label;
  message.tenant = record.tenant;
  message.fabric = record.fabric;
  message.netns = record.link.netns_cookie;
  message.node_guid = record.node_guid.big_endian();
  message.permissions = record.permissions.bits();
  message.limited = record.allotment.limited();
  message.no_direct = record.spec.no_direct;
  message.ways = ways_of(record.settings);
  message.capabilities = record.share.capabilities;
  message.limits = record.allotment.limit_list();
  const provisioning::Budget& tenant = record.allotment.tenant();
  const provisioning::Budget& parent = record.allotment.parent();
  message.tenant_budget = {tenant.number(), tenant.whose()};
  message.parent_budget = {parent.number(), parent.whose()};
  VdeviceParts parts{record.page,   *record.fabric_counters, record.qp_numbers,
                     tenant.page(), parent.page(),           {}};
  if (record.gsi != nullptr) {
    if (auto end = record.gsi->connect())
      parts.gsi = std::move(*end);
    else
      spdlog::error("vdevice {}: no program can open queue pair 1: {}", record.label,
                    end.error().message());
  }
  record.allotment.place(workers_.slot_of(record.domain));
  auto made = parcel(std::move(message), std::move(parts));
  if (!made) return spdlog::error("vdevice {}: {}", record.label, made.error().message());
  worker->send(std::move(*made));
  worker->send(Await{record.id, 0, awaits_others(record)});
  show_port(record);
}

void Daemon::show_port(Record& record) {
  const std::vector<verbs::Gid>& gids = record.gids.gids();
  std::erase_if(record.on_network, [&gids](const auto& one) {
    return std::find(gids.begin(), gids.end(), one.first) == gids.end();
  });
  WorkerEnd* const worker = workers_.find(record.domain);
  if (worker == nullptr) return;
  const netns::Link& link = record.link;
  worker->send(SetPort{record.id, {link.up, link.mtu, link.ifindex, link.mac}});
  worker->send(SetGids{record.id, record.table()});
}

// The answer where no worker is: there is nothing that could object, and the worker that starts
// gets the present state.
const ToControl kNoWorker = Done{};

void Daemon::ask(const Record& record, base::Duration limit, const Question& question,
                 Answers::Then then) {
  WorkerEnd* const worker = workers_.find(record.domain);
  if (worker == nullptr) {
    show_limits(record);
    return then(&kNoWorker);
  }
  worker->send(question(answers_.expect(record.domain, limit, std::move(then))));
}

// What the ledger of a worker shows while there is one.
void Daemon::show_limits(const Record& record) {
  provisioning::Ledger shown(part(record.page.get(), &VdevicePage::quota));
  (void)shown.set_limits(record.allotment.settings());
}

// What comes from a worker is about its own connections, budgets and tickets, or is ignored.
void Daemon::on(const std::string& domain, const ToControl& message) {
  if (const auto* say = std::get_if<Say>(&message)) {
    if (!workers_.may_say(domain)) return;
    spdlog::log(say->level == base::LogLevel::kInfo ? spdlog::level::info : spdlog::level::warn,
                "{}", say->sentence);
  } else if (const auto* crash = std::get_if<Crashed>(&message)) {
    if (!workers_.crashes(domain)) return;
    spdlog::error("the worker of {} crashes: {}", domain, ::strsignal(crash->signal));
    note_worker(domain, std::string("crashes: ") + ::strsignal(crash->signal));
    const bool its_own = workers_.has(domain, furnisher_.connection_of(crash->session));
    quarantine_.crashed(domain, its_own ? crash->session : 0, loop_.now());
  } else if (const auto* rung = std::get_if<WantRates>(&message)) {
    dealing_.rung(rung->budget, workers_.slot_of(domain));
  } else if (const auto* wish = std::get_if<WantKit>(&message)) {
    if (workers_.has(domain, wish->connection) && furnisher_.may_want(wish->connection))
      furnish(domain, *wish);
  } else if (const auto* taken = std::get_if<Accepted>(&message)) {
    if (workers_.has(domain, taken->connection)) furnisher_.accepted(taken->connection);
  } else if (const auto* address = std::get_if<WantRoceSocket>(&message)) {
    Record* const record = find(address->vdevice);
    if (record != nullptr && record->domain == domain) give_socket(*record, address->address);
  } else if (const auto* refused = std::get_if<Refused>(&message)) {
    const Record* const record = find(refused->vdevice);
    if (record != nullptr && record->domain == domain) on_refused(*record, *refused);
  } else if (const auto* left = std::get_if<LeaveGroup>(&message)) {
    Record* const record = find(left->vdevice);
    if (record != nullptr && record->domain == domain) record->groups.erase(left->group);
  } else if (const auto* over = std::get_if<Ended>(&message)) {
    if (!workers_.has(domain, over->connection)) return;
    Record* const record = find(furnisher_.vdevice_of(over->connection));
    forget_parked(over->connection);
    furnisher_.ended(over->connection);
    workers_.ended(domain, over->connection);
    if (record != nullptr) leave_network(*record);
  } else {
    answers_.came(domain, message);
  }
}

void Daemon::furnish(const std::string& domain, const WantKit& wish) {
  WorkerEnd& worker = *workers_.find(domain);
  Kit answer;
  answer.connection = wish.connection;
  answer.vdevice = furnisher_.vdevice_of(wish.connection);
  Record* const record = find(answer.vdevice);
  if (record == nullptr)
    return worker.send(parcel(std::move(answer), fail(ENODEV, "the vdevice has gone")));
  const auto begun = base::thread_cpu_time();
  auto kit = furnisher_.furnish(
      wish.connection,
      {record->spec.name, record->node_guid.big_endian(), record->link.netns_cookie,
       record->permissions.has(provisioning::Permission::kUserfaultfd)},
      wish.shown);
  const bool lacks = !kit && (kit.error().code() == ENFILE || kit.error().code() == ENOBUFS);
  if (lacks && std::has_single_bit(++record->unfurnished))
    spdlog::error("vdevice {}: a program cannot open it: {}", record->label, kit.error().message());
  if (kit && !kit->journal.valid() && std::has_single_bit(++record->without_files))
    spdlog::warn("vdevice {}: a session has no files, so no other worker can take it over: {}",
                 record->label, kit->without_files);
  if (kit) {
    const rdma::Peer& peer = *furnisher_.peer_of(wish.connection);
    kit->cgroup = cgroup_of(*record, peer);
    program_names_.remember(peer.pid);
  }
  answer.used_ns = static_cast<uint64_t>((base::thread_cpu_time() - begun).count());
  worker.send(parcel(std::move(answer), std::move(kit)));
}

// By the number of the process, which is its own: it lived before, and is compared again
// afterwards. Should the kernel not want the limits, those of vrdmad hold all the same.
std::string Daemon::cgroup_of(const Record& record, const rdma::Peer& peer) const {
  std::string cgroup = provisioning::cgroup_of(peer.pid);
  const std::string ibdev = find_parent(record.spec.parent)->ibdev();
  if (ibdev.empty() || !provisioning::has_rdma_controller()) return cgroup;
  using provisioning::Kind;
  const provisioning::Limits& limits = record.allotment.limits();
  uint64_t objects = 0;
  for (const Kind kind :
       {Kind::kPd, Kind::kMr, Kind::kCq, Kind::kQp, Kind::kSrq, Kind::kAh, Kind::kMw})
    objects += of(limits, kind);
  (void)provisioning::set_rdma_max(cgroup, ibdev, of(limits, Kind::kContexts), objects);
  return cgroup;
}

void Daemon::on_ended(const std::string& domain, unsigned slot, Workers::End how) {
  for (const auto& [id, record] : records_) {
    if (record->domain != domain) continue;
    record->allotment.place(provisioning::kControlSlot);  // the slot may be another domain's next
    forget_use(*record->page);
    record->qp_numbers->clear();
    show_limits(*record);
  }
  budgets_.clear(slot);
  if (how == Workers::End::kLost && !leaves_) note_worker(domain, "ended, and was not told to");
  // A question that was on its way to an idle worker is answered as if it had come after the end.
  answers_.ended(domain, how == Workers::End::kIdle ? &kNoWorker : nullptr);
}

// The next worker takes over the sessions, as a daemon takes over those of the daemon before it.
void Daemon::on_died(const std::string& domain, const std::set<uint64_t>& connections) {
  // A parked program goes on with the next worker; a detached one is not found.
  for (const uint64_t connection : connections) forget_parked(connection);
  for (const uint64_t connection : connections)
    if (auto session = furnisher_.lost(connection)) orphans_[domain].push_back(*session);
  if (!orphans_.empty()) take_over_orphans();
}

// While no worker can be started, the files stay for a later attempt, or for the next daemon: the
// broker may have ended, and its workers with it.
void Daemon::take_over_orphans() {
  constexpr auto kPause = std::chrono::milliseconds(500);
  orphans_again_.reset();
  begin_epoch();
  for (auto it = orphans_.begin(); it != orphans_.end();) {
    if (const auto reason = quarantine_.reason_to_end(it->first, loop_.now()); !reason.empty()) {
      spdlog::warn("all sessions of {} end: {}", it->first, reason);
      for (const auto& orphan : it->second)
        if (const Record* const record = find(orphan.vdevice))
          note("ended", record->id, record->spec, reason, orphan.peer.pid);
      for (const auto& orphan : it->second) furnisher_.remove_files(orphan.session);
      it = orphans_.erase(it);
      continue;
    }
    if (auto worker = workers_.need(it->first); !worker) {
      spdlog::error("{}: {}", it->first, worker.error().message());
      if (!orphans_again_.active())
        orphans_again_ = loop_.after(kPause, [this] { take_over_orphans(); });
      ++it;
      continue;
    }
    for (const auto& orphan : it->second) take_over_orphan(it->first, orphan);
    it = orphans_.erase(it);
  }
  adopt_those_that_can();
}

void Daemon::take_over_orphan(const std::string& domain, const Furnisher::Lost& orphan) {
  const uint32_t session = orphan.session;
  auto reason = quarantine_.reason_to_end(session, loop_.now());
  if (reason.empty()) {
    auto files = SessionFiles::open(settings_.state_dir, session);
    const Anchor* const of = files ? &files->anchors->anchors().of : nullptr;
    // What the worker wrote must be what control knows.
    const bool same = of != nullptr && of->vdevice == orphan.vdevice && of->process == orphan.peer;
    if (same && files->journal->is_open()) return left_.push_back(std::move(*files));
    reason = !files ? files.error().message()
             : same ? "its program had not opened it yet"
                    : "its anchors name another program or vdevice";
  }
  spdlog::warn("session {} of {} ends: {}", session, domain, reason);
  if (const Record* const record = find(orphan.vdevice))
    note("ended", record->id, record->spec, reason, orphan.peer.pid);
  furnisher_.remove_files(session);
}

}  // namespace vrdma::vrdmad
