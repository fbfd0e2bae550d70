// Queries by operators: vdevices, counters, connections and the event stream.
#include <algorithm>
#include <array>
#include <utility>

#include "core/base/printable.h"
#include "core/verbs/mtu.h"
#include "vrdmad/cm/rows.h"
#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

namespace {

const char* text_of(verbs::QpType type) {
  switch (type) {
    case verbs::QpType::kGsi:
      return "GSI";
    case verbs::QpType::kRc:
      return "RC";
    case verbs::QpType::kUc:
      return "UC";
    case verbs::QpType::kUd:
      return "UD";
    case verbs::QpType::kRawPacket:
      return "RAW";
    case verbs::QpType::kXrcInitiator:
      return "XRC_INI";
    case verbs::QpType::kXrcTarget:
      return "XRC_TGT";
  }
  return "";
}

const char* text_of(verbs::QpState state) {
  constexpr std::array<const char*, 7> kNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return kNames[static_cast<size_t>(state)];
}

const char* text_of(rdma::NotDirect because) {
  constexpr std::array<const char*, 11> kTexts{
      "",
      "type",
      "another tenant",
      "another user",
      "another user namespace",
      "not dumpable",
      "no direct links",
      "rate limit",
      "port down",
      "parked",
      "connect again",
  };
  return kTexts[static_cast<size_t>(because)];
}

const char* text_of(QueuePairs::Transport transport) {
  constexpr std::array<const char*, 6> kNames{"", "direct", "mediated", "network", "both", "raw"};
  return kNames[static_cast<size_t>(transport)];
}

bool is_of_tenant(const std::string& scope) { return scope.rfind("tenant/", 0) == 0; }
bool is_of_vdevice(const std::string& scope) {
  return !scope.empty() && scope != "daemon" && !is_of_tenant(scope);
}

// What a worker tells of a vdevice in pages, each of which the question names the end of the one
// before.
struct CgroupPages {
  static bool may_have(const VdevicePage&) { return true; }
  using Row = CgroupRow;
  using Page = CgroupUse;
  using After = std::string;
  static ToWorker ask(uint64_t vdevice, uint64_t ticket, const After& after) {
    return AskCgroups{vdevice, ticket, after};
  }
  static const auto& parts(const Page& page) { return page.groups; }
  static const After& key(const CgroupUse::Group& group) { return group.path; }
  static Row row(const VdevKey& vdev, const CgroupUse::Group& group) {
    std::vector<provisioning::Row> use;
    for (const Limit& one : group.used) use.push_back({one.kind, one.limit, 0, 0});
    return {base::printable(group.path), vdev, to_rows(use)};
  }
};

struct QueuePairPages {
  static bool may_have(const VdevicePage& page) {
    return std::ranges::any_of(page.device.qps, [](const auto& qps) { return qps > 0; });
  }
  using Row = QueuePairRow;
  using Page = QueuePairs;
  using After = uint32_t;
  static ToWorker ask(uint64_t vdevice, uint64_t ticket, After after) {
    return AskQueuePairs{vdevice, ticket, after};
  }
  static const auto& parts(const Page& page) { return page.rows; }
  static After key(const QueuePairs::Row& row) { return row.qpn; }
  static Row row(const VdevKey& vdev, const QueuePairs::Row& of) {
    Row row;
    row.vdev = vdev;
    row.qpn = of.qpn;
    row.pid = of.pid;
    row.type = text_of(of.type);
    row.state = text_of(of.state);
    row.transport = text_of(of.transport);
    row.because = text_of(of.because);
    if (!of.remote.is_unspecified()) {
      row.local = of.local.text();
      row.remote = of.remote.text();
      row.remote_qpn = of.remote_qpn;
    }
    row.network = of.network;
    row.by_program = {of.by_program.requests, of.by_program.bytes};
    row.by_worker = {of.by_worker.requests, of.by_worker.bytes};
    return row;
  }
};

struct ExportPages {
  static bool may_have(const VdevicePage& page) { return page.device.contexts > 0; }
  using Row = ExportRow;
  using Page = Exports;
  using After = uint32_t;
  static ToWorker ask(uint64_t vdevice, uint64_t ticket, After after) {
    return AskExports{vdevice, ticket, after};
  }
  static const auto& parts(const Page& page) { return page.rows; }
  static After key(const Exports::Row& row) { return row.session; }
  static Row row(const VdevKey& vdev, const Exports::Row& of) {
    Row row{vdev, of.pid, of.is};
    row.is.socket = base::printable(of.is.socket);
    return row;
  }
};

}  // namespace

// The pages of several vdevices for one call, and what takes them.
template <class Pages>
struct Daemon::Gathered {
  std::function<void(Result<std::vector<typename Pages::Row>>)> done;
  std::vector<typename Pages::Row> rows;
  std::string silent;  // a vdevice whose worker did not answer
  size_t left = 0;     // vdevices
};

class Daemon::Subscription {
 public:
  Subscription(Daemon& daemon, uint64_t id) : daemon_(daemon), id_(id) {}
  ~Subscription() {
    daemon_.call([this] { daemon_.subscribers_.erase(id_); });
  }
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

 private:
  Daemon& daemon_;
  uint64_t id_;
};

VdeviceUse Daemon::use_of(const Record& record) const {
  return vrdmad::use_of(*record.page, **record.fabric_counters, loop_.now());
}

Result<std::shared_ptr<Daemon::FabricPage>> Daemon::counters_of(const std::string& fabric) {
  std::erase_if(fabric_counters_, [](const auto& entry) { return entry.second.expired(); });
  auto& known = fabric_counters_[fabric];
  auto counters = known.lock();
  if (counters != nullptr) return counters;
  auto page = FabricPage::make("vrdma-fabric");
  if (!page) return pass(std::move(page).error());
  known = counters = std::make_shared<FabricPage>(std::move(*page));
  return counters;
}

// Without one, its worker knows nothing that its page does not say.
bool Daemon::has_queue_pairs(const Record& record) {
  return QueuePairPages::may_have(*record.page);
}

std::vector<uint64_t> Daemon::all_ids() const {
  std::vector<uint64_t> ids;
  for (const auto& [id, record] : records_) ids.push_back(id);
  return ids;
}

void Daemon::after_collecting(const std::vector<uint64_t>& ids, std::function<void()> then) {
  // A worker may wait so long for a processor. Of one that does not answer, because it was stopped
  // or hangs, the pages say what it counted so far.
  constexpr auto kPatience = std::chrono::seconds(2);
  std::vector<uint64_t> asked;
  for (const uint64_t id : ids)
    if (has_queue_pairs(*records_.at(id))) asked.push_back(id);
  if (asked.empty()) return then();
  const auto left = std::make_shared<size_t>(asked.size());
  for (const uint64_t id : asked)
    ask(
        *records_.at(id), kPatience,
        [id](uint64_t ticket) {
          return Collect{id, ticket};
        },
        [left, then](const ToControl*) {
          if (--*left == 0) then();
        });
}

VdevInfo Daemon::info(const Record& record) {
  const VdeviceUse use = use_of(record);
  VdevInfo info;
  info.id = record.id;
  info.name = record.spec.name;
  info.parent = record.spec.parent;
  info.tenant = record.tenant;
  info.fabric = record.fabric;
  info.reach = record.settings.reach;
  info.peers = record.settings.peers;
  info.netns = record.spec.netns;
  info.netns_cookie = record.link.netns_cookie;
  info.netdev = record.link.name;
  info.ifindex = record.link.ifindex;
  info.node_guid = record.node_guid.text();
  info.parked = parked_of(record.id);
  info.port_state = record.link.up ? "ACTIVE" : "DOWN";
  info.active_mtu = verbs::roce_mtu(record.link.mtu);
  info.socket = run_dir_.session_socket(record.link.netns_cookie, record.number);
  info.sessions = static_cast<uint32_t>(use.device.contexts);
  const auto table = record.table();
  for (uint32_t index = 0; index < table.size(); ++index)
    if (!table[index].is_unspecified())
      info.gids.push_back({index, table[index].text(), "RoCE v2"});
  info.gid_layout = record.spec.gid_layout;
  info.quota = to_rows(quota_rows(record, use));
  info.allowed = record.spec.allow;
  info.limited = record.allotment.limited();
  info.no_direct = record.spec.no_direct;
  for (const auto& prefix : prefixes_of(record)) info.addresses.push_back(prefix.text());
  info.addresses_given = !record.prefixes.empty();
  info.addresses_ignored = record.ignored_so_far;
  info.reached = reached_by_reason(use);
  info.owner = record.spec.owner;
  info.owner_ended = record.owner_ended;
  info.end_with_owner = record.spec.end_with_owner;
  info.containers = record.spec.containers;
  info.labels = record.spec.labels;
  if (const Workers::Lack* const lack = workers_.lack(record.domain)) info.unserved = lack->why;
  return info;
}

void Daemon::tell(WatchEvent::Type type, const VdevInfo& vdev, const std::string& reason) {
  ++vdevs_revision_;
  if (untold_.contains(vdev.id)) return;  // finish() tells what it has become
  for (const auto& [id, callback] : subscribers_) callback({type, vdev, reason});
}

Result<VdevInfo> Daemon::get_vdev(const std::string& name, bool show_sysfs) {
  return call([&]() -> Result<VdevInfo> {
    const auto id = directory_.find(name);
    if (!id) return pass(id.error());
    const Record* const found = find(*id);
    if (found != nullptr && show_sysfs)
      for (const auto& [other, record] : records_)
        if (record->link.netns_cookie == found->link.netns_cookie && record->sysfs == nullptr)
          this->show_sysfs(*record);
    if (found != nullptr) return info(*found);
    return info(lost_.at(*id));
  });
}

std::vector<VdevInfo> Daemon::list_vdevs() {
  return call([&] {
    std::vector<VdevInfo> all;
    for (const auto& [id, record] : records_) all.push_back(info(*record));
    for (const auto& [id, lost] : lost_) all.push_back(info(lost));
    return all;
  });
}

std::vector<ParentInfo> Daemon::list_parents() {
  return call([&] {
    std::vector<ParentInfo> all;
    for (const auto& parent : outside_.parents) {
      ParentInfo one{parent->name(),   parent->kind(),  0,
                     parent->detail(), parent->state(), parent->numa_node()};
      for (const auto& [id, record] : records_)
        if (record->spec.parent == one.name) ++one.vdevices;
      all.push_back(std::move(one));
    }
    return all;
  });
}

Result<std::vector<CounterRow>> Daemon::counters(const std::string& scope) {
  return call_later<Result<std::vector<CounterRow>>>([&](auto done) {
    std::vector<uint64_t> ids;
    if (is_of_vdevice(scope)) {
      const auto id = directory_.find(scope);
      if (!id) return done(pass(id.error()));
      if (find(*id) != nullptr) ids.push_back(*id);
    } else if (scope != "daemon") {
      ids = all_ids();
    }
    after_collecting(ids, [this, &scope, done] { done(counter_rows(scope)); });
  });
}

ActivityInfo Daemon::activity() {
  return call_later<ActivityInfo>([&](auto done) {
    after_collecting(all_ids(), [this, done] {
      ActivityInfo info{{}, vdevs_revision_, events_.last()};
      info.vdevs.reserve(records_.size());
      for (const auto& [id, record] : records_) {
        const VdeviceUse use = use_of(*record);
        info.vdevs.push_back(activity_row(id, use, quota_rows(*record, use)));
      }
      done(std::move(info));
    });
  });
}

void Daemon::all_counters(std::function<void(std::vector<CounterRow>)> then) {
  after_collecting(all_ids(), [this, then = std::move(then)] {
    auto rows = counter_rows();
    for (const auto& [id, record] : records_) rows.push_back(info_row(*record));
    then(std::move(rows));
  });
}

// With the names that Kubernetes' own metrics have, to be joined with them.
CounterRow Daemon::info_row(const Record& record) {
  const auto label = [&record](const char* key) { return label_value(record.spec, key); };
  // Of a container in no pod what podman ps shows.
  constexpr size_t kDigits = 12;
  std::string container = label(kContainerNameLabel);
  if (container.empty()) container = label(kContainerLabel).substr(0, kDigits);
  CounterRow row{record.spec.name, "vdevice_info",   1, {}, true, record.tenant,
                 record.id,        record.spec.netns};
  row.facts = {{"parent", record.spec.parent}, {"fabric", record.fabric},
               {"class", label(kClassLabel)},  {"namespace", label(kNamespaceLabel)},
               {"pod", label(kPodNameLabel)},  {"container", container},
               {"claim", label(kClaimLabel)}};
  return row;
}

Result<std::vector<CounterRow>> Daemon::counter_rows(const std::string& scope) {
  if (is_of_vdevice(scope)) {
    const auto id = directory_.find(scope);
    if (!id) return pass(id.error());
    const Record* const record = find(*id);
    return record != nullptr ? counter_rows(*record) : std::vector<CounterRow>();
  }
  auto rows = scope == "daemon" ? daemon_rows() : counter_rows();
  if (!is_of_tenant(scope)) return rows;
  std::erase_if(rows, [&](const auto& row) { return row.scope != scope; });
  if (rows.empty())
    return fail(ENOENT,
                "there is no tenant '" + scope.substr(scope.find('/') + 1) + "' with vdevices");
  return rows;
}

std::vector<CounterRow> Daemon::counter_rows(const Record& record) {
  const VdevKey key{record.id, record.spec.name, record.spec.netns};
  const VdeviceUse use = use_of(record);
  VdeviceAbilities may;
  may.paced = record.allotment.limited();
  may.direct = !may.paced && !record.spec.no_direct;
  may.packets = record.permissions.has(provisioning::Permission::kRawPacket);
  may.network = reach_of(record.fabric) != Reach::kHost;
  auto rows = vdevice_rows({key, record.tenant}, use, may, quota_rows(record, use), record.foreign,
                           record.cm->endpoint().counters());
  const auto add = [&](const char* what, uint64_t value) {
    rows.push_back({key.name, what, value, {}, false, record.tenant, key.id, key.netns});
  };
  add("addresses_ignored", record.ignored_so_far);
  if (record.gsi != nullptr) add("cm_qp1_lost", record.gsi->lost());
  return rows;
}

std::vector<CounterRow> Daemon::daemon_rows() {
  std::vector<CounterRow> rows;
  rows.push_back({"daemon", "vdevices", records_.size(), {}, true});
  rows.push_back({"daemon", "vdevices_lost", lost_.size(), {}, true});
  rows.push_back({"daemon", "store_commits", store_.commits(), {}, false});
  rows.push_back({"daemon", "gids_refused", gids_.refusals() + conflicts_on_network_});
  for (const auto& [domain, pass] : workers_.longest_passes()) {
    const auto longest = std::chrono::duration_cast<std::chrono::microseconds>(pass);
    rows.push_back({"daemon",
                    "worker_longest_pass",
                    static_cast<uint64_t>(longest.count()),
                    {"worker", domain},
                    true});
  }
  const CmCounters& cm = std::as_const(cm_).counters();
  rows.push_back({"daemon", "cm_sessions_opened", cm.sessions});
  rows.push_back({"daemon", "cm_sessions_malformed", cm.malformed});
  rows.push_back({"daemon", "cm_sessions_unproven", cm.unproven});
  rows.push_back({"daemon", "cm_sessions_unread", cm.unread});
  rows.push_back({"daemon", "cm_namespaces_crowded", cm.crowded});
  rows.push_back({"daemon", "cm_sessions_delayed", cm.delayed});
  const GsiNetworkCounters& qp1 = gsi_network_.counters();
  rows.push_back({"daemon", "qp1_sent", qp1.sent});
  rows.push_back({"daemon", "qp1_received", qp1.received});
  rows.push_back({"daemon", "qp1_lost", qp1.lost});
  rows.push_back({"daemon", "qp1_icrc_errors", qp1.incoming.icrc_error});
  rows.push_back({"daemon", "qp1_malformed", qp1.incoming.malformed + qp1.no_mad});
  rows.push_back({"daemon", "qp1_over_rate", qp1.over_rate});
  rows.push_back({"daemon", "qp1_no_peer", qp1.no_peer});
  rows.push_back({"daemon", "qp1_translated", qp1.translated});
  rows.push_back({"daemon", "qp1_delayed", qp1.delayed});
  return rows;
}

std::vector<CounterRow> Daemon::counter_rows() {
  auto rows = daemon_rows();
  TenantTotals totals = gone_;
  for (const auto& [id, record] : records_) {
    for (auto& row : counter_rows(*record)) {
      totals.add(row);
      rows.push_back(std::move(row));
    }
  }
  for (auto& row : totals.rows()) rows.push_back(std::move(row));
  return rows;
}

Result<std::vector<ConnectionRow>> Daemon::list_connections(const std::string& vdev) {
  return call([&]() -> Result<std::vector<ConnectionRow>> {
    uint64_t only = 0;
    if (!vdev.empty()) {
      auto found = find(vdev);
      if (!found) return pass(std::move(found.error()));
      only = (*found)->id;
    }
    auto rows = connection_rows(cm_.mux(), only);
    for (auto& row : rows)
      if (const Record* const record = find(row.vdev.id)) row.vdev.netns = record->spec.netns;
    return rows;
  });
}

template <class Pages>
void Daemon::add_pages(const VdevKey& vdev, const typename Pages::After& after,
                       const std::shared_ptr<Gathered<Pages>>& all) {
  const Record* const record = find(vdev.id);
  const auto end = [all] {
    if (--all->left > 0) return;
    if (all->silent.empty()) return all->done(std::move(all->rows));
    all->done(fail(ETIMEDOUT, "the worker of vdevice " + all->silent + " is busy"));
  };
  if (record == nullptr) return end();
  ask(
      *record, kWorkerPatience, [&](uint64_t ticket) { return Pages::ask(vdev.id, ticket, after); },
      [this, all, vdev, end, after](const ToControl* answer) {
        using Page = typename Pages::Page;
        if (answer == nullptr) all->silent = vdev.name;
        const auto* const page = answer != nullptr ? std::get_if<Page>(answer) : nullptr;
        if (page == nullptr) return end();
        const auto& parts = Pages::parts(*page);
        for (const auto& part : parts) all->rows.push_back(Pages::row(vdev, part));
        // A worker that does not get on, or to an end, is not asked again.
        constexpr size_t kMostRows = 65'536;
        if (!page->more || parts.empty() || Pages::key(parts.back()) <= after ||
            all->rows.size() > kMostRows)
          return end();
        add_pages<Pages>(vdev, Pages::key(parts.back()), all);
      });
}

template <class Pages>
Result<std::vector<typename Pages::Row>> Daemon::ask_workers(const std::string& vdev) {
  using Rows = std::vector<typename Pages::Row>;
  return call_later<Result<Rows>>([&](auto done) {
    std::vector<VdevKey> asked;
    const auto ask = [&](const Record& record) {
      if (!Pages::may_have(*record.page)) return;
      asked.push_back({record.id, record.spec.name, record.spec.netns});
    };
    if (vdev.empty()) {
      for (const auto& [id, record] : records_) ask(*record);
    } else {
      auto found = find(vdev);
      if (!found) return done(pass(std::move(found.error())));
      ask(**found);
    }
    if (asked.empty()) return done(Rows());
    const auto all = std::make_shared<Gathered<Pages>>(
        Gathered<Pages>{done, Rows(), std::string(), asked.size()});
    for (const VdevKey& key : asked) add_pages<Pages>(key, {}, all);
  });
}

Result<std::vector<CgroupRow>> Daemon::list_cgroups(const std::string& vdev) {
  return ask_workers<CgroupPages>(vdev);
}

Result<std::vector<QueuePairRow>> Daemon::list_queue_pairs(const std::string& vdev) {
  auto rows = ask_workers<QueuePairPages>(vdev);
  if (rows)
    std::ranges::sort(*rows, {},
                      [](const QueuePairRow& row) { return std::pair(row.vdev.id, row.qpn); });
  return rows;
}

Result<std::vector<ExportRow>> Daemon::list_exports(const std::string& vdev) {
  auto rows = ask_workers<ExportPages>(vdev);
  if (rows) std::ranges::stable_sort(*rows, {}, [](const ExportRow& row) { return row.vdev.id; });
  return rows;
}

std::shared_ptr<void> Daemon::watch(WatchCallback callback) {
  return call([&]() -> std::shared_ptr<void> {
    for (const auto& [id, record] : records_)
      if (!untold_.contains(id)) callback({WatchEvent::Type::kAdded, info(*record), "exists"});
    for (const auto& [id, lost] : lost_)
      if (!untold_.contains(id)) callback({WatchEvent::Type::kAdded, info(lost), "is lost"});
    const uint64_t subscriber = next_subscriber_++;
    subscribers_.emplace(subscriber, std::move(callback));
    return std::make_shared<Subscription>(*this, subscriber);
  });
}

}  // namespace vrdma::vrdmad
