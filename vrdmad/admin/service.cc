#include "vrdmad/admin/service.h"

#include <fcntl.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vrdma/v1/admin.grpc.pb.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <system_error>
#include <tuple>

#include "api/keep_grpc.h"
#include "core/base/printable.h"
#include "vrdmad/admin/translation.h"
#include "vrdmad/admin/watchers.h"

namespace vrdma::vrdmad {

namespace v1 = vrdma::v1;
using base::printable;

namespace {

// Concurrent unary calls; each blocks a thread until the control thread has answered. More than a
// host that starts all its containers at once needs; threads are made on demand.
constexpr int kMaxThreads = 512;

// gRPC aborts the process if it cannot create its initial threads, so this function tries first.
// Throws std::system_error.
void require_threads() {
  constexpr int kStartsWith = 16;  // about twice as many as gRPC starts
  std::promise<void> over;
  const std::shared_future<void> wait = over.get_future().share();
  std::vector<std::thread> threads;
  const auto end = [&] {
    over.set_value();
    for (auto& thread : threads) thread.join();
  };
  try {
    for (int i = 0; i < kStartsWith; ++i) threads.emplace_back([wait] { wait.wait(); });
  } catch (const std::system_error&) {
    end();
    throw;
  }
  end();
}

template <class Context>
grpc::Status answer(Context& context, const base::Result<VdevInfo>& result, v1::Vdev& response) {
  if (!result) return status_of(context, result.error());
  fill(response, *result);
  return grpc::Status::OK;
}

template <class Context, class Row, class Message>
grpc::Status write_all(Context& context, const base::Result<std::vector<Row>>& rows,
                       grpc::ServerWriter<Message>& writer) {
  if (!rows) return status_of(context, rows.error());
  Message message;
  for (const auto& row : *rows) {
    fill(message, row);
    if (!writer.Write(message)) break;  // the client has closed the connection
  }
  return grpc::Status::OK;
}

// --- the calls --------------------------------------------------------------------------------

// Clients by the name that gRPC gives them: "fd:17", from the descriptor of add_client().
class Peers {
 public:
  void add(int fd, AdminPeer peer) {
    const std::lock_guard lock(mutex_);
    peers_["fd:" + std::to_string(fd)] = std::move(peer);
  }
  [[nodiscard]] AdminPeer find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return peers_[name];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, AdminPeer> peers_;
};

// The arguments of a call in command-line form: "netns=red netdev=eth0".
class Words {
 public:
  Words& add(const std::string& name, const std::string& value) {
    if (!value.empty()) text_ += (text_.empty() ? "" : " ") + name + "=" + value;
    return *this;
  }
  // The vdevice that the operator's reference resolved to.
  Words& add_vdev(uint64_t id, const std::string& netns) {
    return add("netns", netns).add("id", std::to_string(id));
  }
  template <class Quota>
  Words& add_quota(const Quota& rows, const std::string& what = "") {
    for (const auto& row : rows)
      add(what + row.kind(), row.limit() == UINT64_MAX ? "max" : std::to_string(row.limit()));
    return *this;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class Calls final
    : public v1::Admin::WithCallbackMethod_WatchVdevs<v1::Admin::WithCallbackMethod_WatchEvents<
          v1::Admin::WithCallbackMethod_WatchClasses<v1::Admin::Service>>> {
 public:
  Calls(AdminBackend& backend, const AdminService::OwnCounters& own_counters,
        const AuditSink& audit, Peers& peers)
      : backend_(backend), own_counters_(own_counters), audit_(audit), peers_(peers) {}

  grpc::Status CreateVdev(grpc::ServerContext* context, const v1::CreateVdevRequest* request,
                          v1::Vdev* response) override {
    VdevSpec spec;
    spec.name = request->name();
    spec.netns = request->netns();
    spec.netdev = request->netdev();
    if (!request->parent().empty()) spec.parent = request->parent();
    spec.tenant = request->tenant();
    spec.fabric = request->fabric();
    spec.quota = quota_of(request->quota());
    spec.allow.assign(request->allow().begin(), request->allow().end());
    spec.no_direct = request->no_direct();
    spec.gid_layout = request->gid_layout();
    spec.addresses.assign(request->addresses().begin(), request->addresses().end());
    const auto& owner = request->owner();
    if (request->has_owner()) spec.owner = {owner.pid(), owner.start_time(), owner.boot_id()};
    if (spec.netns.starts_with("/proc/self/") || spec.netns.starts_with("/proc/thread-self/"))
      return status_of(*context,
                       base::Error(EINVAL, "netns '" + spec.netns +
                                               "' would be that of vrdmad, which opens the path: "
                                               "name a process of the namespace, as in pid:42"));
    if (request->has_owner() && owner.pid() == 0)
      return status_of(*context, base::Error(EINVAL, "the owner has no process id"));
    spec.end_with_owner = request->end_with_owner();
    spec.labels.insert(request->labels().begin(), request->labels().end());
    Words words;
    words.add("netns", spec.netns).add("netdev", spec.netdev).add("parent", request->parent());
    words.add("tenant", spec.tenant).add("fabric", spec.fabric).add_quota(request->quota());
    for (const auto& permission : spec.allow) words.add("allow", permission);
    if (spec.no_direct) words.add("no_direct", "yes");
    words.add("gid_layout", spec.gid_layout);
    for (const auto& prefix : spec.addresses) words.add("addresses", prefix);
    if (spec.owner.pid != 0) words.add("owner", std::to_string(spec.owner.pid));
    if (spec.end_with_owner) words.add("end_with_owner", "yes");
    for (const auto& [key, value] : spec.labels) words.add("label", printable(key + "=" + value));
    if (request->if_absent()) words.add("if_absent", "yes");
    const auto made = backend_.create_vdev(spec, request->if_absent());
    if (made) words.add_vdev(made->id, "");
    return answer(*context, audited(*context, "vdev create", spec.name, words, made), *response);
  }

  grpc::Status DeleteVdev(grpc::ServerContext* context, const v1::DeleteVdevRequest* request,
                          v1::DeleteVdevResponse*) override {
    const auto gone = backend_.delete_vdev(request->name());
    const auto words = gone ? Words().add_vdev(gone->id, gone->netns) : Words();
    const auto result = audited(*context, "vdev delete", request->name(), words, gone);
    return result ? grpc::Status::OK : status_of(*context, result.error());
  }

  grpc::Status GetVdev(grpc::ServerContext* context, const v1::GetVdevRequest* request,
                       v1::Vdev* response) override {
    return answer(*context, backend_.get_vdev(request->name(), request->show_sysfs()), *response);
  }

  grpc::Status ListVdevs(grpc::ServerContext*, const v1::ListVdevsRequest*,
                         v1::ListVdevsResponse* response) override {
    auto vdevs = backend_.list_vdevs();
    std::sort(vdevs.begin(), vdevs.end(), [](const VdevInfo& a, const VdevInfo& b) {
      return std::tie(a.name, a.netns, a.id) < std::tie(b.name, b.netns, b.id);
    });
    for (const auto& vdev : vdevs) fill(*response->add_vdevs(), vdev);
    return grpc::Status::OK;
  }

  grpc::Status SetQuota(grpc::ServerContext* context, const v1::SetQuotaRequest* request,
                        v1::Vdev* response) override {
    const auto set = backend_.set_quota(request->name(), quota_of(request->quota()));
    auto words = Words().add_quota(request->quota());
    if (set) words.add_vdev(set->id, set->netns);
    return answer(*context, audited(*context, "quota set", request->name(), words, set), *response);
  }

  grpc::Status SetLabels(grpc::ServerContext* context, const v1::SetLabelsRequest* request,
                         v1::Vdev* response) override {
    const auto& given = request->set();
    const auto& keys = request->remove();
    const LabelChange change{{given.begin(), given.end()}, {keys.begin(), keys.end()}};
    const auto set = backend_.set_labels(request->name(), change);
    Words words;
    for (const auto& [key, value] : change.set) words.add("label", printable(key + "=" + value));
    for (const auto& key : change.removed) words.add("removed", printable(key));
    if (set) words.add_vdev(set->id, set->netns);
    return answer(*context, audited(*context, "vdev label", request->name(), words, set),
                  *response);
  }

  grpc::Status SetBudget(grpc::ServerContext* context, const v1::SetBudgetRequest* request,
                         v1::Budget* response) override {
    const BudgetSpec spec{scope_of(request->scope()),
                          request->name(),
                          quota_of(request->defaults()),
                          quota_of(request->ceilings()),
                          request->overcommit(),
                          {request->no_default().begin(), request->no_default().end()}};
    Words words;
    for (const auto& kind : request->no_default()) words.add("no default", printable(kind));
    words.add_quota(request->defaults(), "default ")
        .add_quota(request->ceilings(), "ceiling ")
        .add("overcommit", request->overcommit() == 0 ? "" : std::to_string(request->overcommit()));
    const bool tenant = spec.scope == BudgetSpec::Scope::kTenant;
    const auto set = audited(*context, tenant ? "tenant set" : "parent set", spec.name, words,
                             backend_.set_budget(spec));
    if (!set) return status_of(*context, set.error());
    fill(*response, *set);
    return grpc::Status::OK;
  }

  grpc::Status ListBudgets(grpc::ServerContext*, const v1::ListBudgetsRequest* request,
                           v1::ListBudgetsResponse* response) override {
    for (const auto& budget : backend_.list_budgets(scope_of(request->scope())))
      fill(*response->add_budgets(), budget);
    return grpc::Status::OK;
  }

  grpc::Status SetFabric(grpc::ServerContext* context, const v1::SetFabricRequest* request,
                         v1::Fabric* response) override {
    const auto set =
        audited(*context, "fabric set", request->name(), words_of(*request), set_fabric(*request));
    if (!set) return status_of(*context, set.error());
    fill(*response, *set);
    return grpc::Status::OK;
  }

  grpc::Status ListFabrics(grpc::ServerContext*, const v1::ListFabricsRequest*,
                           v1::ListFabricsResponse* response) override {
    for (const auto& fabric : backend_.list_fabrics()) fill(*response->add_fabrics(), fabric);
    return grpc::Status::OK;
  }

  grpc::Status ListCgroups(grpc::ServerContext* context, const v1::ListCgroupsRequest* request,
                           v1::ListCgroupsResponse* response) override {
    const auto rows = backend_.list_cgroups(request->vdev());
    if (!rows) return status_of(*context, rows.error());
    for (const auto& row : *rows) {
      auto& use = *response->add_uses();
      use.set_cgroup(printable(row.cgroup));
      use.set_vdev(row.vdev.name);
      use.set_vdev_id(row.vdev.id);
      use.set_netns(row.vdev.netns);
      for (const auto& one : row.use) {
        auto& kind = *use.add_use();
        kind.set_kind(one.kind);
        kind.set_used(one.used);
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status ListParents(grpc::ServerContext*, const v1::ListParentsRequest*,
                           v1::ListParentsResponse* response) override {
    for (const auto& parent : backend_.list_parents()) fill(*response->add_parents(), parent);
    return grpc::Status::OK;
  }

  grpc::Status ListClasses(grpc::ServerContext* context, const v1::ListClassesRequest*,
                           v1::ListClassesResponse* response) override {
    const auto classes = backend_.list_classes();
    if (!classes) return status_of(*context, classes.error());
    for (const auto& its : *classes) fill(*response->add_classes(), its);
    return grpc::Status::OK;
  }

  grpc::Status PutClaim(grpc::ServerContext* context, const v1::PutClaimRequest* request,
                        v1::Claim* response) override {
    const v1::Claim& claim = request->claim();
    Words words;
    words.add("namespace", printable(claim.namespace_())).add("name", printable(claim.name()));
    for (const auto& share : claim.shares()) {
      words.add("share", printable(share.id())).add("class", printable(share.class_()));
      words.add_quota(share.quota());
    }
    const auto put =
        audited(*context, "claim put", claim.uid(), words, backend_.put_claim(claim_of(claim)));
    if (!put) return status_of(*context, put.error());
    fill(*response, *put);
    return grpc::Status::OK;
  }

  grpc::Status DeleteClaim(grpc::ServerContext* context, const v1::DeleteClaimRequest* request,
                           v1::DeleteClaimResponse*) override {
    const auto words = Words().add("force", request->force() ? "yes" : "");
    const auto gone = audited(*context, "claim delete", request->uid(), words,
                              backend_.delete_claim(request->uid(), request->force()));
    return gone ? grpc::Status::OK : status_of(*context, gone.error());
  }

  grpc::Status ListClaims(grpc::ServerContext*, const v1::ListClaimsRequest*,
                          v1::ListClaimsResponse* response) override {
    for (const auto& claim : backend_.list_claims()) fill(*response->add_claims(), claim);
    return grpc::Status::OK;
  }

  grpc::Status ParkProcess(grpc::ServerContext* context, const v1::ParkProcessRequest* request,
                           v1::ParkedProcess* response) override {
    const auto parked = audited(*context, "checkpoint park", std::to_string(request->pid()), {},
                                backend_.park_process(request->pid()));
    if (!parked) return status_of(*context, parked.error());
    fill(*response, *parked);
    return grpc::Status::OK;
  }

  grpc::Status GetParkedProcess(grpc::ServerContext* context,
                                const v1::ParkedProcessRequest* request,
                                v1::ParkedProcess* response) override {
    const auto process = backend_.parked_process(request->process());
    if (!process) return status_of(*context, process.error());
    fill(*response, *process);
    return grpc::Status::OK;
  }

  grpc::Status DetachProcess(grpc::ServerContext* context, const v1::ParkedProcessRequest* request,
                             v1::ParkedProcessResponse*) override {
    return parked(*context, "checkpoint detach", *request, &AdminBackend::detach_process);
  }

  grpc::Status PlaceProcess(grpc::ServerContext* context, const v1::ParkedProcess* request,
                            v1::ParkedProcess* response) override {
    const auto placed = backend_.place_process(process_of(*request));
    if (!placed) return status_of(*context, placed.error());
    fill(*response, *placed);
    return grpc::Status::OK;
  }

  grpc::Status AttachProcess(grpc::ServerContext* context, const v1::ParkedProcess* request,
                             v1::ParkedProcessResponse*) override {
    const auto done = audited(*context, "checkpoint attach", std::to_string(request->pid()), {},
                              backend_.attach_process(process_of(*request)));
    return done ? grpc::Status::OK : status_of(*context, done.error());
  }

  grpc::Status ResumeProcess(grpc::ServerContext* context, const v1::ParkedProcessRequest* request,
                             v1::ParkedProcessResponse*) override {
    return parked(*context, "checkpoint resume", *request, &AdminBackend::resume_process);
  }

  grpc::Status AbandonProcess(grpc::ServerContext* context, const v1::ParkedProcessRequest* request,
                              v1::ParkedProcessResponse*) override {
    return parked(*context, "checkpoint abandon", *request, &AdminBackend::abandon_process);
  }

  grpc::Status Counters(grpc::ServerContext* context, const v1::CountersRequest* request,
                        v1::CountersResponse* response) override {
    const auto add = [&](const std::vector<CounterRow>& rows) {
      for (const auto& counter : rows) {
        auto& row = *response->add_counters();
        row.set_scope(counter.scope);
        row.set_name(counter.label.second.empty() ? counter.name
                                                  : counter.name + "_" + counter.label.second);
        row.set_value(counter.value);
        row.set_gauge(counter.gauge);
        row.set_tenant(counter.tenant);
        row.set_vdev_id(counter.vdev_id);
        row.set_netns(counter.netns);
      }
    };
    const auto rows = backend_.counters(request->scope());
    if (!rows) return status_of(*context, rows.error());
    add(*rows);
    if (request->scope().empty() || request->scope() == "daemon") add(own_counters_());
    return grpc::Status::OK;
  }

  grpc::Status ListActivity(grpc::ServerContext*, const v1::ListActivityRequest*,
                            v1::ListActivityResponse* response) override {
    const ActivityInfo info = backend_.activity();
    response->mutable_vdevs()->Reserve(static_cast<int>(info.vdevs.size()));
    for (const auto& row : info.vdevs) fill(*response->add_vdevs(), row);
    response->set_vdevs_revision(info.vdevs_revision);
    response->set_last_event(info.last_event);
    return grpc::Status::OK;
  }

  grpc::Status ListConnections(grpc::ServerContext* context,
                               const v1::ListConnectionsRequest* request,
                               grpc::ServerWriter<v1::Connection>* writer) override {
    return write_all(*context, backend_.list_connections(request->vdev()), *writer);
  }

  grpc::Status ListQueuePairs(grpc::ServerContext* context,
                              const v1::ListQueuePairsRequest* request,
                              grpc::ServerWriter<v1::QueuePair>* writer) override {
    return write_all(*context, backend_.list_queue_pairs(request->vdev()), *writer);
  }

  grpc::Status ListExports(grpc::ServerContext* context, const v1::ListExportsRequest* request,
                           grpc::ServerWriter<v1::Export>* writer) override {
    return write_all(*context, backend_.list_exports(request->vdev()), *writer);
  }

  grpc::Status Version(grpc::ServerContext*, const v1::VersionRequest*,
                       v1::VersionResponse* response) override {
    response->set_version(VRDMA_VERSION);
    response->set_pid(::getpid());
    return grpc::Status::OK;
  }

  grpc::ServerWriteReactor<v1::WatchEvent>* WatchVdevs(grpc::CallbackServerContext* context,
                                                       const v1::WatchVdevsRequest*) override {
    return watch_vdevs(backend_, *context);
  }

  grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* response) override {
    const size_t most = request->most() != 0 ? request->most() : SIZE_MAX;
    for (const auto& event : backend_.list_events(time_of_ms(request->since_ms()), most))
      fill(*response->add_events(), event);
    return grpc::Status::OK;
  }

  grpc::ServerWriteReactor<v1::Event>* WatchEvents(grpc::CallbackServerContext* context,
                                                   const v1::ListEventsRequest* request) override {
    return watch_events(backend_, *context, time_of_ms(request->since_ms()));
  }

  grpc::ServerWriteReactor<v1::ListClassesResponse>* WatchClasses(
      grpc::CallbackServerContext* context, const v1::ListClassesRequest*) override {
    return watch_classes(backend_, *context);
  }

 private:
  // Reports `result` to the audit and returns it. Each call that changes something passes through
  // here.
  template <class Result>
  Result audited(const grpc::ServerContext& context, const char* action, const std::string& object,
                 const Words& words, Result result) {
    if (!audit_) return result;
    AuditRecord record{peers_.find(context.peer()), action, object, words.text(), 0, ""};
    if (!result) record.error = result.error().code();
    if (!result) record.sentence = result.error().message();
    audit_(record);
    return result;
  }

  base::Result<FabricInfo> set_fabric(const v1::SetFabricRequest& request) {
    FabricChange change{request.name()};
    if (!request.reach().empty()) {
      change.reach = reach_of(request.reach());
      if (!change.reach)
        return base::fail(EINVAL, "the reach of a fabric is host, network or wire, not '" +
                                      printable(request.reach()) + "'");
    }
    if (request.has_peers()) {
      const auto& prefixes = request.peers().prefixes();
      auto peers = gid::parse_prefixes({prefixes.begin(), prefixes.end()});
      if (!peers) return base::pass(std::move(peers.error()), "peers");
      change.peers = std::move(*peers);
    }
    if (!change.reach && !change.peers)
      return base::fail(EINVAL, "there is nothing to change of fabric '" +
                                    printable(request.name()) + "': give its reach or its peers");
    return backend_.set_fabric(change);
  }

  // The audit names the process by its number only: a token is a secret.
  grpc::Status parked(grpc::ServerContext& context, const char* what,
                      const v1::ParkedProcessRequest& request,
                      base::Result<void> (AdminBackend::*step)(const std::string&)) {
    constexpr size_t kMostDigits = 10;
    const std::string& process = request.process();
    const auto done =
        audited(context, what, process.size() <= kMostDigits ? printable(process) : "by its token",
                {}, (backend_.*step)(process));
    return done ? grpc::Status::OK : status_of(context, done.error());
  }

  static Words words_of(const v1::SetFabricRequest& request) {
    Words words;
    if (!request.reach().empty()) words.add("reach", printable(request.reach()));
    std::string peers;
    for (const std::string& prefix : request.peers().prefixes())
      peers += (peers.empty() ? "" : ",") + printable(prefix);
    if (request.has_peers()) words.add("peers", peers.empty() ? "all" : peers);
    return words;
  }

  AdminBackend& backend_;
  const AdminService::OwnCounters& own_counters_;
  const AuditSink& audit_;
  Peers& peers_;
};

}  // namespace

AdminService::AdminService(AdminBackend& backend, OwnCounters own_counters, AuditSink audit,
                           std::function<void()> on_stopped)
    : backend_(backend),
      own_counters_(std::move(own_counters)),
      audit_(std::move(audit)),
      on_stopped_(std::move(on_stopped)) {}

base::Result<std::unique_ptr<AdminService>> AdminService::start(AdminBackend& backend,
                                                                OwnCounters own_counters,
                                                                AuditSink audit,
                                                                std::function<void()> on_stopped) {
  std::unique_ptr<AdminService> service(
      new AdminService(backend, std::move(own_counters), std::move(audit), std::move(on_stopped)));
  try {
    service->thread_ = std::thread([raw = service.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    return base::fail(EAGAIN, std::string("start a thread for the admin API: ") + error.what());
  }
  ::pthread_setname_np(service->thread_.native_handle(), "vrdma-admin");
  return service;
}

AdminService::~AdminService() {
  if (thread_.joinable()) thread_.join();
}

void AdminService::add_client(base::Fd client, AdminPeer peer) {
  const std::lock_guard lock(mutex_);
  clients_.emplace_back(std::move(client), std::move(peer));
  changed_.notify_one();
}

void AdminService::stop() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  changed_.notify_one();
}

void AdminService::run() {
  try {
    serve();
  } catch (const std::exception&) {
    // Out of memory or threads: refuse clients until all have disconnected.
    refuse_all();
  }
  on_stopped_();
}

// Uses shutdown(2), because AdminServer holds duplicates: close(2) alone would not end the
// connections.
void AdminService::refuse_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    for (auto& [client, peer] : clients_) ::shutdown(client.get(), SHUT_RDWR);
    clients_.clear();
    if (stop_) return;
    changed_.wait(lock, [this] { return stop_ || !clients_.empty(); });
  }
}

void AdminService::serve() {
  require_threads();
  api::keep_grpc();
  Peers peers;
  Calls calls(backend_, own_counters_, audit_, peers);
  grpc::ServerBuilder builder;
  builder.RegisterService(&calls);
  builder.SetResourceQuota(grpc::ResourceQuota("admin").SetMaxThreads(kMaxThreads));
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();  // without a listening port
  if (!server) return refuse_all();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !clients_.empty(); });
    if (stop_) break;
    for (auto& [client, peer] : clients_) {
      peers.add(client.get(), std::move(peer));
      grpc::AddInsecureChannelFromFd(server.get(), client.release());
    }
    clients_.clear();
  }
  lock.unlock();
  // A deadline in the past cancels calls at once instead of waiting for their ends.
  server->Shutdown(std::chrono::system_clock::now());
  clients_.clear();
}

}  // namespace vrdma::vrdmad
