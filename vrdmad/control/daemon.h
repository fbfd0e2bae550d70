// The registry of vdevices: creates, changes, restores and deletes them.
//
// Belongs to the control thread. A vdevice is one Record. Everything that must be undone is a
// move-only member of it, in the order of creation, so that the destructor serves both a failed
// creation and a deletion. Admin calls arrive on gRPC's threads and run on the loop.
//
// The Store has an operator's change on disk before the call is answered. At its start the daemon
// restores all vdevices. A vdevice whose netns or netdev does not exist is *lost*: it is listed
// with the reason, and the daemon retries with a back-off until it is restored, deleted or
// replaced. A vdevice whose netdev ends while the daemon runs is deleted. So is one whose namespace
// has ended since the boot, or whose owner has ended with `end_with_owner`, when the daemon notices
// it. A vdevice of a container whose namespace has no netdev with an address yet is *pending*: as a
// lost one, but it is completed as soon as there is one. It becomes pending again when its netdev
// ends before the container.
//
// Inside the daemon an id identifies a vdevice. Directory maps the names that operators use to ids.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/classes.h"
#include "core/base/event_loop.h"
#include "gid/node_guid.h"
#include "gid/prefix.h"
#include "gid/registry.h"
#include "vrdmad/admin/backend.h"
#include "vrdmad/broker/session_socket.h"
#include "vrdmad/cm/cm.h"
#include "vrdmad/cm/gsi_network.h"
#include "vrdmad/control/answers.h"
#include "vrdmad/control/budgets.h"
#include "vrdmad/control/claims.h"
#include "vrdmad/control/counter_files.h"
#include "vrdmad/control/counters.h"
#include "vrdmad/control/dealing.h"
#include "vrdmad/control/declined.h"
#include "vrdmad/control/directory.h"
#include "vrdmad/control/event_log.h"
#include "vrdmad/control/netdev_search.h"
#include "vrdmad/control/outside.h"
#include "vrdmad/control/processes.h"
#include "vrdmad/control/program_names.h"
#include "vrdmad/control/quarantine.h"
#include "vrdmad/control/run_dir.h"
#include "vrdmad/control/sysfs_tree.h"
#include "vrdmad/control/used_tokens.h"
#include "vrdmad/control/workers.h"
#include "vrdmad/hooks/backend.h"
#include "vrdmad/records/furnisher.h"

namespace vrdma::vrdmad {

struct WorkerOptions {
  Isolation isolation = Isolation::kTenant;
  unsigned workers = 1;     // of Isolation::kNone
  std::string events = {};  // the file of what they were refused and so on; empty: none
};

class Daemon final : public AdminBackend, public HookBackend {
 public:
  [[nodiscard]] static base::Result<std::unique_ptr<Daemon>> start(
      base::EventLoop& loop, const RunDir& run_dir, Store& store, const SessionSettings& settings,
      const WorkerOptions& options, Outside outside, std::shared_ptr<api::ClassFile> classes);
  ~Daemon() override;

  // AdminBackend. Call from any thread but the loop's; with Outside::pass, from that thread.
  base::Result<VdevInfo> create_vdev(const VdevSpec& spec, bool if_absent) override;
  base::Result<VdevKey> delete_vdev(const std::string& name) override;
  base::Result<VdevInfo> get_vdev(const std::string& name, bool show_sysfs = false) override;
  std::vector<VdevInfo> list_vdevs() override;
  base::Result<VdevInfo> set_quota(const std::string& name,
                                   const std::vector<QuotaSetting>& quota) override;
  base::Result<VdevInfo> set_labels(const std::string& name, const LabelChange& change) override;
  base::Result<BudgetInfo> set_budget(const BudgetSpec& spec) override;
  std::vector<BudgetInfo> list_budgets(BudgetSpec::Scope scope) override;
  base::Result<FabricInfo> set_fabric(const FabricChange& change) override;
  std::vector<FabricInfo> list_fabrics() override;
  base::Result<std::vector<CgroupRow>> list_cgroups(const std::string& vdev) override;
  base::Result<std::vector<QueuePairRow>> list_queue_pairs(const std::string& vdev) override;
  base::Result<std::vector<ExportRow>> list_exports(const std::string& vdev) override;
  std::vector<ParentInfo> list_parents() override;
  base::Result<std::vector<ClassInfo>> list_classes() override;
  // The claims: daemon_claims.cc.
  base::Result<ClaimInfo> put_claim(const ClaimSpec& claim) override;
  base::Result<void> delete_claim(const std::string& uid, bool force) override;
  std::vector<ClaimInfo> list_claims() override;
  base::Result<std::vector<CounterRow>> counters(const std::string& scope) override;
  ActivityInfo activity() override;
  base::Result<std::vector<ConnectionRow>> list_connections(const std::string& vdev) override;
  // Programs that are written to disk: daemon_checkpoint.cc.
  base::Result<ParkedProcess> park_process(int32_t pid) override;
  base::Result<ParkedProcess> parked_process(const std::string& process) override;
  base::Result<void> detach_process(const std::string& process) override;
  base::Result<ParkedProcess> place_process(const AttachedProcess& process) override;
  base::Result<void> attach_process(const AttachedProcess& process) override;
  base::Result<void> resume_process(const std::string& process) override;
  base::Result<void> abandon_process(const std::string& process) override;
  std::shared_ptr<void> watch(WatchCallback callback) override;
  // daemon_events.cc
  std::vector<EventRow> list_events(EventRow::Time since, size_t most = SIZE_MAX) override;
  std::shared_ptr<void> watch_events(EventRow::Time since, EventCallback callback) override;

  // HookBackend; the first two as AdminBackend. daemon_containers.cc.
  base::Result<Given> give(const VdevSpec& spec, const netns::Netns& netns,
                           const Terms& terms) override;
  base::Result<ClaimSpec> find_claim(const std::string& uid) override;
  void refused(const std::string& container, uid_t user, const std::string& reason) override;
  void take_back(uint64_t vdevice, const Container& container) override;

  // All of counters(); on the control thread. Calls `then` from the loop.
  void all_counters(std::function<void(std::vector<CounterRow>)> then);

 private:
  struct Record;
  struct OnNetwork;
  class Subscription;
  class EventSubscription;

  Daemon(base::EventLoop& loop, const RunDir& run_dir, Store& store,
         const SessionSettings& settings, const WorkerOptions& options, Outside outside,
         std::shared_ptr<api::ClassFile> classes);

  // The result of a call, when it is there.
  template <class Future>
  auto wait_for(Future result) const -> decltype(result.get()) {
    while (outside_.pass && result.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      outside_.pass();
    return result.get();
  }

  template <class F>
  auto call(F f) -> decltype(f()) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    loop_.post([&task] { task(); });
    return wait_for(std::move(result));
  }

  // The same for what takes several passes of the loop: `f` is given what takes the result.
  template <class R, class F>
  R call_later(F f) {
    std::promise<R> result;
    loop_.post([&] { f([&result](R value) { result.set_value(std::move(value)); }); });
    return wait_for(result.get_future());
  }

  // How long programs wait for a worker that cannot be started, before they are told so.
  static constexpr auto kWorkerLack = std::chrono::seconds(3);
  // How long an operator's call waits for a worker. It then fails and changes nothing.
  static constexpr auto kWorkerPatience = std::chrono::seconds(5);

  struct Begun;
  struct Lost {
    StoredVdev vdev;
    std::string reason;
    std::unique_ptr<Processes::Watch> owner;  // null: it has none, or its owner has ended
    OwnerWatches containers;                  // as Record::containers
    std::shared_ptr<void> netns_dir;          // null: of another boot
    // Null: of another boot. Of a pending vdevice an empty one, which containers mount; otherwise
    // what was made before. All files are closed.
    std::unique_ptr<SysfsTree> sysfs;
    // Of a pending vdevice: tells when the links of its namespace change.
    std::shared_ptr<void> netns_watch;
    bool leaving = false;     // being deleted: not restored any more
    bool had_netdev = false;  // of a pending one: operators know that it was lost
  };
  struct Joining {
    std::string fabric, tenant;
  };

  // `spec` must be canonical(). If `stored` is not null, restores the vdevice; if it was not
  // pending, on the same netdev with those of its GIDs that remain; apply() adds the others.
  // kNetdevGone: there is no such netdev any more.
  static constexpr int kNetdevGone = ENXIO;
  base::Result<std::unique_ptr<Record>> make(uint64_t id, const VdevSpec& spec,
                                             const netns::Netns& netns, const StoredVdev* stored);
  // `netdev`: for a pending vdevice; empty: none is known.
  base::Result<std::unique_ptr<Record>> make_again(const StoredVdev& stored,
                                                   const std::string& netdev);
  Record& enter(std::unique_ptr<Record> record);
  Lost& enter(StoredVdev vdev, const std::string& reason);
  // In the directory; replaces those that it has there.
  void enter_names(const Record& record);
  void enter_names(const StoredVdev& vdev);  // of a lost one
  // A vdevice that make_again() could not restore.
  Lost& enter_again(StoredVdev vdev, const base::Error& why);
  Lost take_lost(uint64_t id);
  static constexpr uint64_t kIdsAtOnce = 1000;
  [[nodiscard]] uint64_t new_id();
  // A creation: the caller waits for Begun::on_disk between both. `replaced`: lost vdevices of that
  // name. `spec` must be canonical(). `waits`: why the vdevice is pending; empty: it is not.
  base::Result<Begun> begin(const VdevSpec& spec, const netns::Netns& netns,
                            std::vector<Lost>* replaced, const std::string& waits = "");
  base::Result<VdevInfo> finish(const Begun& begun, const VdevSpec& spec,
                                std::vector<Lost> replaced);
  void put_back(std::vector<Lost>* replaced);  // they are not
  // Why a call cannot go on with a vdevice that was there when it began.
  [[nodiscard]] tl::unexpected<base::Error> fail_without(uint64_t id,
                                                         const std::string& name) const;
  // The creation or change is on disk, or is not: stores what has changed meanwhile.
  void end_doubt(uint64_t id);
  // EEXIST: it differs from `wanted`.
  base::Result<Begun> existing(uint64_t id, const VdevSpec& wanted);
  // Resolves an operator's reference. ENODEV with the reason: the vdevice is lost.
  base::Result<Record*> find(const std::string& reference);
  [[nodiscard]] Record* find(uint64_t id);
  [[nodiscard]] std::shared_ptr<void> hold_netns_dir(uint64_t cookie);
  [[nodiscard]] uint32_t free_number(uint64_t cookie, uint32_t wanted) const;
  base::Result<netns::Netns> locate(const StoredVdev& stored);
  // delete_vdev() for a caller that has `changes_`.
  base::Result<VdevKey> delete_in_turn(const std::string& name);
  base::Result<void> restore_budgets();
  base::Result<void> restore_all();
  void restore_lost();
  void restore_lost(uint64_t id, const std::string& netdev = "");
  void forget(const StoredVdev& vdev, const std::string& reason);
  void retry_later();
  struct FoundSessions {
    std::vector<SessionFiles> files;
    std::vector<std::string> unusable;  // paths
  };
  FoundSessions find_sessions();
  void begin_epoch(const std::set<uint32_t>& others = {});
  void adopt(FoundSessions found);
  // Empty: its vdevice is not there.
  [[nodiscard]] std::optional<Furnisher::Found> with_vdevice(SessionFiles files);
  void adopt_those_that_can();
  // What has got sessions of the previous daemon.
  struct Adopting {
    std::map<WorkerEnd*, const Record*> workers;  // each with one of its vdevices
    std::set<uint64_t> namespaces;
  };
  [[nodiscard]] std::vector<Furnisher::Found> those_that_can_be_adopted();
  void adopt_cm_sessions(Adopting adopting);
  // Returns the workers that got some of these.
  std::set<WorkerEnd*> give(std::vector<Furnisher::Adopted> sessions, Adopting* adopting);
  // Sessions of the vdevice, or of its fabric, will come with another TakeOver.
  [[nodiscard]] bool awaits_others(const Record& record) const;
  [[nodiscard]] StoredVdev stored_form(const Record& record) const;
  std::future<base::Result<void>> store(Record& record);
  // Stores a change that no operator waits for.
  void store_again(Record& record);
  void store_again(const Lost& lost);
  void forget_later(uint64_t id);
  void on_owner_ended(uint64_t id);
  void end_by_itself(uint64_t id, const std::string& reason);
  // The containers that have a vdevice: daemon_containers.cc. ESTALE: all have ended.
  base::Result<OwnerWatches> watch_containers(uint64_t id, VdevSpec* spec);
  // The vdevice in the namespace of the class, and share of a claim, of `wanted`, which `container`
  // has; nullptr: any container.
  [[nodiscard]] std::optional<uint64_t> given_in(uint64_t cookie, const VdevSpec& wanted,
                                                 const Container* container) const;
  [[nodiscard]] base::Result<void> restore_claims();
  // The vdevices that containers have by the claim, and keep.
  [[nodiscard]] std::vector<uint64_t> given_by(const std::string& claim) const;
  // EBUSY with the containers of these vdevices, if there are any; `what` ends the sentence.
  [[nodiscard]] base::Result<void> check_unused(const std::string& claim,
                                                const std::vector<uint64_t>& vdevices,
                                                const std::string& what);
  [[nodiscard]] std::vector<ClaimInfo> describe(const std::vector<ClaimSpec>& claims) const;
  base::Result<Begun> join(uint64_t id, const Container& container, bool network_admin);
  // EDQUOT: the user's containers, or those of its person (hooks/person.h), have as many vdevices
  // of the class as `terms` allow.
  [[nodiscard]] base::Result<void> check_most(const VdevSpec& spec, const Terms& terms) const;
  // The vdevices that containers have.
  [[nodiscard]] std::map<std::string, uint32_t> given_by_class() const;
  // Adds what the daemon knows of a class.
  void describe(const api::Class& its, ClassInfo* info);
  // Any thread but the control thread. EPERM: HookBackend::Terms::reach.
  [[nodiscard]] base::Result<void> ensure_fabric(const VdevSpec& spec, const Terms& terms);
  // EPERM: of the kinds in `terms.lowered`, the vdevice would get more than its budgets give.
  [[nodiscard]] base::Result<void> check_lowered(const VdevSpec& spec, const Terms& terms);
  void leave(uint64_t id, const Container& container, const std::string& reason);
  // Whether other containers than that of `spec`, for which it is made, have the vdevice by now.
  // Each waits for the disk by itself.
  [[nodiscard]] bool is_joined(uint64_t id, const VdevSpec& spec);
  [[nodiscard]] VdevSpec* spec_of(uint64_t id);  // nullptr: there is no such vdevice
  // In the namespace of a container's process. Any thread but the control thread, because the
  // kernel may need long for it. ENODEV, ENOTUNIQ, E2BIG: the vdevice waits for it.
  [[nodiscard]] static base::Result<std::string> netdev_for(const Processes& processes, pid_t pid,
                                                            const std::string& wanted);
  base::Result<Lost*> make_pending(uint64_t id, const VdevSpec& spec, const netns::Netns& netns,
                                   const std::string& reason);
  void await_netdev(Lost& lost, const netns::Netns& netns);
  // Of a container's vdevice, whose netdev has gone: it becomes pending.
  void await_another_netdev(Record& record, const std::string& reason);
  Lost& enter_without_netdev(StoredVdev vdev, const std::string& reason);
  static bool may_exchange_netdevs(const VdevSpec& spec);  // programs of its containers
  void look_for_netdev(const Lost& lost);
  void on_netdev(uint64_t id, const base::Result<std::string>& netdev);
  // The vdevices' workers: daemon_workers.cc.
  [[nodiscard]] std::string domain_of(const Record& record) const;
  [[nodiscard]] base::Result<Workers::Running> start_worker(unsigned slot,
                                                            const Workers::Tell& tell,
                                                            const Workers::Ended& ended);
  void on_started(const std::string& domain);
  void on(const std::string& domain, const ToControl& message);
  void on_ended(const std::string& domain, unsigned slot, Workers::End how);
  void on_died(const std::string& domain, const std::set<uint64_t>& connections);
  void take_over_orphans();
  void take_over_orphan(const std::string& domain, const Furnisher::Lost& orphan);
  // These do nothing while no worker runs for the vdevice.
  void give_to_worker(Record& record);
  void show_port(Record& record);
  using Question = std::function<ToWorker(uint64_t ticket)>;
  // Calls `then` with what the vdevice's worker answers; with Done at once if there is no worker.
  void ask(const Record& record, base::Duration limit, const Question& question,
           Answers::Then then);
  static void show_limits(const Record& record);
  [[nodiscard]] Recipient recipient(Record& record);
  // Of a connection that is accepted next.
  [[nodiscard]] Recipient recipient_of_next(Record& record);
  void accept(const Record& record, Arrival arrival);
  void furnish(const std::string& domain, const WantKit& wish);

  // daemon_checkpoint.cc
  struct Parked {
    std::string token;
    int32_t pid = 0;
    bool detached = false;
    std::map<uint64_t, Furnisher::Open> sessions;  // by connection
    std::vector<Cm::ParkedSession> connections;    // which Cm knows by the token
    base::EventLoop::Timer grace;
  };
  using Steps = std::function<void(base::Result<void>)>;
  // Asks for the step of each session, and calls `then` with the first error, or none.
  void ask_all(const std::map<uint64_t, Furnisher::Open>& sessions, ParkSession::Step step,
               Steps then);
  [[nodiscard]] base::Result<ParkedProcess> described(const Parked& parked);
  [[nodiscard]] base::Result<ParkedSession> described(const Furnisher::Open& session);
  [[nodiscard]] std::vector<ParkedSession> peers_of(const Parked& parked);
  void be_away(uint64_t connection, ParkedSession* session) const;
  [[nodiscard]] base::Result<Parked*> find_parked(const std::string& process);
  [[nodiscard]] base::Result<SessionAnchors> anchors_of(const Furnisher::Open& session) const;
  [[nodiscard]] base::Result<void> attach_once(const AttachedProcess& process);
  [[nodiscard]] base::Result<Furnisher::Adopted> attached(const Furnisher::Open& session,
                                                          const AttachedProcess& process,
                                                          AttachSession* message);
  // daemon_images.cc
  void add_images(const Parked& parked, ParkedProcess* process);
  [[nodiscard]] base::Result<Record*> place(
      const std::string& name, uint64_t netns,
      const std::function<std::string(const Record&)>& obstacle);
  [[nodiscard]] base::Result<Record*> place(const ParkedSession& session, uint64_t netns);
  [[nodiscard]] base::Result<void> may_import(const AttachedProcess& process);
  // Where what a process has goes on, in the order of its sessions and of its connections.
  struct Places {
    std::vector<Record*> sessions;
    std::vector<Cm::Coming> connections;
  };
  [[nodiscard]] base::Result<Places> places_of(const AttachedProcess& process, uint64_t netns);
  [[nodiscard]] base::Result<Cm::Coming> place(const ParkedConnections& connections,
                                               const AttachedProcess& process,
                                               const std::vector<Record*>& sessions,
                                               uint64_t netns);
  [[nodiscard]] base::Result<Furnisher::Adopted> imported(const ParkedSession& session,
                                                          Record& record,
                                                          std::shared_ptr<Caller> caller);
  void import(const AttachedProcess& process, const Steps& done);
  struct Imported {  // what is under way
    std::string who, token;
    uint64_t netns = 0;
    std::vector<Furnisher::Open> sessions;
    std::vector<Cm::Coming> connections;
    std::shared_ptr<Caller> of_cm;  // connected to rdma_cm, if there are connections
  };
  void on_imported(const Imported& all, const Steps& done);
  [[nodiscard]] base::Result<void> import_connections(const Imported& all);
  void start_grace(const std::string& token);
  void on_grace_over(const std::string& token);
  void forget_parked(uint64_t connection);
  void forget_ended();  // parked processes of which nothing is left
  [[nodiscard]] bool is_homeless(const Parked& parked) const;
  [[nodiscard]] uint32_t parked_of(uint64_t vdevice) const;  // sessions

  // daemon_network.cc
  using Callers = std::vector<const Caller*>;
  // `callers`: processes in the namespace of the vdevice.
  [[nodiscard]] base::Result<const OnNetwork*> join_network(Record& record,
                                                            const verbs::Gid& address,
                                                            const Callers& callers);
  [[nodiscard]] base::Result<base::Fd> join_group(Record& record, const verbs::Gid& group,
                                                  const Callers& callers);
  void give_socket(Record& record, const verbs::Gid& address);
  // True: the address failed a moment ago, and the worker gets its answer after the pause.
  [[nodiscard]] bool gives_socket_later(Record& record, const verbs::Gid& address);
  void retry_network(Record& record);
  void join_for_cm(Record& record, bool at_once);
  void join_addresses(Record& record, const Callers& callers, bool at_once);
  bool on_cm_user(uint64_t netns, const Caller& caller, bool first);
  void on_cm_user_left(uint64_t netns);
  void warn_of_network(Record& record, const base::Error& why);
  void leave_network(Record& record);

  // The control group of a process, which gets limits in the kernel too, if it has them.
  [[nodiscard]] std::string cgroup_of(const Record& record, const rdma::Peer& peer) const;
  [[nodiscard]] Parent* find_parent(const std::string& name) const;  // nullptr: there is none
  VdevInfo info(const Record& record);
  [[nodiscard]] VdevInfo info(const Lost& lost) const;
  template <class Pages>
  struct Gathered;
  // Adds what the vdevice's worker tells of it after this.
  template <class Pages>
  void add_pages(const VdevKey& vdev, const typename Pages::After& after,
                 const std::shared_ptr<Gathered<Pages>>& all);
  // Of the vdevice; of all if it is empty.
  template <class Pages>
  base::Result<std::vector<typename Pages::Row>> ask_workers(const std::string& vdev);
  void set_entrance(const Record& record);
  [[nodiscard]] std::vector<provisioning::Row> quota_rows(const Record& record,
                                                          const VdeviceUse& use) const;
  [[nodiscard]] std::vector<CounterRow> counter_rows();
  std::vector<CounterRow> counter_rows(const Record& record);
  [[nodiscard]] base::Result<std::vector<CounterRow>> counter_rows(const std::string& scope);
  // Calls `then` when the pages of the vdevices have what programs did on direct links: soon, even
  // if a worker does not answer.
  void after_collecting(const std::vector<uint64_t>& ids, std::function<void()> then);
  [[nodiscard]] static bool has_queue_pairs(const Record& record);
  [[nodiscard]] std::vector<uint64_t> all_ids() const;
  [[nodiscard]] VdeviceUse use_of(const Record& record) const;
  using FabricPage = base::SharedPage<rdma::FabricCounters>;
  [[nodiscard]] base::Result<std::shared_ptr<FabricPage>> counters_of(const std::string& fabric);
  std::vector<CounterRow> daemon_rows();
  [[nodiscard]] static CounterRow info_row(const Record& record);
  std::vector<BudgetInfo> budgets(BudgetSpec::Scope scope);
  void forget_tenants();  // forgets the totals of tenants without vdevices and settings
  // What fabrics reach, and whose addresses conflict on the network: daemon_fabrics.cc.
  base::Result<void> restore_fabrics();
  [[nodiscard]] FabricSpec settings_of(const std::string& fabric) const;
  [[nodiscard]] bool reaches_network(const std::string& fabric) const {
    const auto set = fabrics_.find(fabric);
    return set != fabrics_.end() && set->second.reach != Reach::kHost;
  }
  // Whether the network may bring packets of `gid` to members of the fabric, and theirs to it.
  [[nodiscard]] bool is_peer(const std::string& fabric, const verbs::Gid& gid) const;
  void set(const FabricSpec& settings);
  [[nodiscard]] std::map<std::string, FabricInfo> fabrics() const;
  void show_settings(const std::string& fabric);  // to its members and their workers
  // What the vdevices of its namespace have in other fabrics that reach the network.
  using Holders = std::map<verbs::Gid, const Record*>;
  [[nodiscard]] Holders others_on_network(const Record& record) const;
  [[nodiscard]] static std::string conflict(const Record& record, const verbs::Gid& gid,
                                            const Record& other);
  // EADDRINUSE: the vdevice cannot have one of these on the network.
  [[nodiscard]] base::Result<void> check_network(const Record& record,
                                                 const std::vector<verbs::Gid>& gids) const;
  // Leaves out those that it cannot have, if its fabric reaches the network; counts each once,
  // until the vdevice can have it or does not want it any more.
  [[nodiscard]] std::vector<verbs::Gid> without_conflicts(Record& record,
                                                          const std::vector<verbs::Gid>& gids);
  // GIDs of this namespace are free on the network: applies the records that could not have them.
  void retry_conflicts(uint64_t netns_cookie);
  // The addresses that a vdevice may use: daemon_addresses.cc.
  [[nodiscard]] bool is_shared(const std::string& fabric) const;
  [[nodiscard]] std::vector<gid::Prefix> prefixes_of(const Record& record) const;
  [[nodiscard]] gid::Interface interface_of(const Record& record) const;
  [[nodiscard]] static size_t room_of(const Record& record);  // for different GIDs
  void count_ignored(Record& record);
  void members_changed(const std::string& fabric);
  // Applies the link and its addresses to the port and the GID table: all derived GIDs, or only
  // `gids`.
  void apply(Record& record);
  void apply(Record& record, const std::vector<verbs::Gid>& gids);
  // In the log, as far as its tenant may fill that.
  void warn_of_address(Record& record, const std::string& sentence);
  // And stores and tells what changed.
  void apply_again(uint64_t id, const std::string& reason);
  // Makes or updates its sysfs tree in the run directory.
  void show_sysfs(Record& record);
  // The same if it had one before it was restored, because programs may have it mounted.
  void show_sysfs_again(Record& record);
  // Removes the tree of a vdevice that is entered again, unless `to` shows the same files now.
  static void hand_over(std::unique_ptr<SysfsTree> files, const SysfsTree* to);
  void on_link_changed(uint64_t id, const netns::Link& link);
  void on_link_gone(uint64_t id, netns::Gone gone);
  // Calls `then` when its worker executes nothing of it any more, or is silent for too long.
  void end_in_worker(Record& record, std::function<void()> then);
  // The same, and it is there no more.
  void remove(
      uint64_t id, const std::string& reason, std::function<void()> then = [] {});
  void take_out(uint64_t id);  // without an event for subscribers
  void tell(WatchEvent::Type type, const VdevInfo& vdev, const std::string& reason);
  // For operators, later: daemon_events.cc.
  void note(const char* type, uint64_t id, const VdevSpec& spec, const std::string& reason,
            int32_t pid = 0, uint64_t count = 1);
  void note_worker(const std::string& domain, const std::string& reason);
  void on_refused(const Record& record, const Refused& refused);

  base::EventLoop& loop_;
  const RunDir& run_dir_;
  Store& store_;  // used at the start, then by outside_.writer
  // Serializes operators' changes, except creations, because their write to disk takes time.
  std::mutex changes_;
  SessionSettings settings_;
  const WorkerOptions options_;
  const Outside outside_;
  EventLog events_;
  ProgramNames program_names_;
  Answers answers_{loop_};
  Quarantine quarantine_;
  Declined declined_{loop_};
  Furnisher furnisher_;
  Workers workers_{
      loop_,
      [this](unsigned slot, const Workers::Tell& tell, const Workers::Ended& ended) {
        return start_worker(slot, tell, ended);
      },
      {[this](const auto& domain) { on_started(domain); },
       [this](const auto& domain, const auto& message) { on(domain, message); },
       [this](const auto& domain, unsigned slot, Workers::End how) { on_ended(domain, slot, how); },
       [this](const auto& domain, const auto& connections) { on_died(domain, connections); },
       [this](const auto& domain) { quarantine_.crashed(domain, 0, loop_.now()); }}};
  gid::Registry gids_;
  Claims claims_;
  std::map<std::string, FabricSpec> fabrics_;  // those with settings, by name
  uint64_t conflicts_on_network_ = 0;          // GIDs that without_conflicts() left out so far
  Budgets budgets_;
  Dealing dealing_{loop_, budgets_};
  const std::shared_ptr<api::ClassFile> classes_;
  GsiNetwork gsi_network_{
      loop_,
      {[this](const std::string& fabric, const verbs::Gid& gid) { return is_peer(fabric, gid); },
       [this](const qp1mux::Packet& packet) { cm_.receive(packet); },
       [this](uint64_t netns, const Caller& caller, bool first) {
         return on_cm_user(netns, caller, first);
       },
       [this](uint64_t netns) { on_cm_user_left(netns); }}};
  Cm cm_{loop_, settings_, &gsi_network_};
  std::unique_ptr<ReadLeases> read_leases_;             // never null
  Directory directory_;                                 // of records_ and lost_
  bool leaves_ = false;                                 // the destructor runs
  std::map<uint64_t, std::weak_ptr<void>> netns_dirs_;  // by cookie
  std::map<uint64_t, std::unique_ptr<Record>> records_;
  std::map<uint64_t, Lost> lost_;
  uint64_t next_id_ = 0, reserved_ids_ = 0;  // the last reserved id
  // Sessions of the previous daemon whose fabric has a lost vdevice with sessions, or whose process
  // cannot be inspected; kept for half of the clients' grace period.
  std::vector<SessionFiles> left_;
  std::set<std::string> later_;    // those fabrics
  std::set<uint64_t> unanswered_;  // the vdevices of those processes
  std::set<uint64_t> cm_later_;    // the namespaces of the vdevices of both
  base::EventLoop::Timer patience_, adopt_again_;
  // Sessions of workers that were lost, by domain, until another worker runs there.
  std::map<std::string, std::vector<Furnisher::Lost>> orphans_;
  base::EventLoop::Timer orphans_again_;
  std::map<std::string, std::weak_ptr<FabricPage>> fabric_counters_;  // by fabric
  const Joining* joining_ = nullptr;  // set while the vdevice is created
  const std::string boot_id_;
  base::EventLoop::Timer retry_;
  base::Duration retry_delay_{};
  UsedTokens used_tokens_;
  NetdevSearch netdev_search_;            // of pending vdevices
  TenantTotals gone_;                     // totals of deleted vdevices, for known tenants
  std::map<std::string, Parked> parked_;  // by token
  // Processes that were placed and use rdma_cm, by token: they are about to come.
  struct Expected {
    std::shared_ptr<void> patience;
    base::EventLoop::Timer until;
  };
  std::map<std::string, Expected> expected_;
  std::map<uint64_t, WatchCallback> subscribers_;
  // Vdevices whose creation is not on disk yet: no subscriber knows them.
  std::set<uint64_t> untold_;
  // Vdevices of which the disk may refuse the creation, or a change of the spec: nothing else of
  // them is stored until that is known.
  std::set<uint64_t> in_doubt_;
  uint64_t next_subscriber_ = 1;
  uint64_t vdevs_revision_ = 1;  // of what subscribers were told
};

}  // namespace vrdma::vrdmad
