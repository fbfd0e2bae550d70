// The control side of vrdmad: which vdevices there are, and what happens to them.
//
// Belongs to the control thread. A vdevice is one Record; the parts of it that must be undone are
// move-only members, in the order of creation, so that a creation that fails half-way and a
// deletion are the same destructor. Admin calls come from gRPC's threads and are run on the loop.
//
// What an operator made is in the Store before the call is answered. At the start all of it is made
// again; what cannot be, because its netns or netdev is not there, is *lost*: listed with the
// reason, and tried again every now and then (not often, and only while something is lost) until it
// is there, deleted, or made anew. What ends while the daemon looks on is forgotten, and so is a
// vdevice whose namespace has ended since the boot, or with which it was to end its owner, as soon
// as the daemon sees it.
//
// Inside the daemon a vdevice is its id. Names are what operators say and read: Directory.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "gid/node_guid.h"
#include "gid/prefix.h"
#include "gid/registry.h"
#include "netns/monitor.h"
#include "vrdmad/admin/backend.h"
#include "vrdmad/broker/session_socket.h"
#include "vrdmad/cm/cm.h"
#include "vrdmad/control/budgets.h"
#include "vrdmad/control/counter_files.h"
#include "vrdmad/control/counters.h"
#include "vrdmad/control/directory.h"
#include "vrdmad/control/owner_watch.h"
#include "vrdmad/control/parent.h"
#include "vrdmad/control/run_dir.h"
#include "vrdmad/control/store_thread.h"
#include "vrdmad/control/sysfs_tree.h"
#include "vrdmad/worker/worker.h"

namespace vrdma::vrdmad {

class Daemon final : public AdminBackend {
 public:
  [[nodiscard]] static base::Result<std::unique_ptr<Daemon>> start(base::EventLoop& loop,
                                                                   const RunDir& run_dir,
                                                                   Store& store,
                                                                   const SessionSettings& settings,
                                                                   unsigned workers);
  ~Daemon() override;

  // AdminBackend, from any thread but the loop's.
  base::Result<VdevInfo> create_vdev(const VdevSpec& spec, bool if_absent) override;
  base::Result<VdevKey> delete_vdev(const std::string& name) override;
  base::Result<VdevInfo> get_vdev(const std::string& name, bool show_sysfs = false) override;
  std::vector<VdevInfo> list_vdevs() override;
  base::Result<VdevInfo> set_quota(const std::string& name,
                                   const std::vector<QuotaSetting>& quota) override;
  base::Result<BudgetInfo> set_budget(const BudgetSpec& spec) override;
  std::vector<BudgetInfo> list_budgets(BudgetSpec::Scope scope) override;
  base::Result<std::vector<CgroupRow>> list_cgroups(const std::string& vdev) override;
  std::vector<ParentInfo> list_parents() override;
  base::Result<std::vector<CounterRow>> counters(const std::string& scope) override;
  base::Result<std::vector<ConnectionRow>> list_connections(const std::string& vdev) override;
  std::shared_ptr<void> watch(WatchCallback callback) override;

  // All of counters(), on the control thread.
  [[nodiscard]] std::vector<CounterRow> counter_rows();

 private:
  struct Record;
  class Subscription;

  Daemon(base::EventLoop& loop, const RunDir& run_dir, Store& store,
         const SessionSettings& settings);

  template <class F>
  auto call(F f) -> decltype(f()) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    loop_.post([&task] { task(); });
    return result.get();
  }

  struct Begun;
  struct Lost {
    StoredVdev vdev;
    std::string reason;
    std::unique_ptr<OwnerWatch> owner;  // none: it has none, or that has ended
  };
  struct Joining {
    std::string fabric, tenant;
  };

  // `spec` as canonical() makes it. From `stored`, if it is not null: as it was, where it was, with
  // those of its GIDs that are left; apply() gives it the others.
  base::Result<std::unique_ptr<Record>> make(uint64_t id, const VdevSpec& spec,
                                             const netns::Netns& netns, const StoredVdev* stored);
  base::Result<std::unique_ptr<Record>> make_again(const StoredVdev& stored);
  Record& enter(std::unique_ptr<Record> record);
  Lost& enter(StoredVdev vdev, const std::string& reason);
  Lost take_lost(uint64_t id);
  static constexpr uint64_t kIdsAtOnce = 1000;
  [[nodiscard]] uint64_t new_id();
  // EEXIST: `wanted` is not what there is.
  base::Result<Begun> existing(uint64_t id, const VdevSpec& wanted);
  // What an operator means. ENODEV with the reason: it is lost.
  base::Result<Record*> find(const std::string& reference);
  [[nodiscard]] Record* find(uint64_t id);
  static std::string boot_id();
  [[nodiscard]] uint32_t free_number(uint64_t cookie, uint32_t wanted) const;
  base::Result<netns::Netns> locate(const StoredVdev& stored);
  base::Result<void> restore_budgets();
  base::Result<void> restore_all();
  void restore_lost();
  void restore_lost(uint64_t id);
  void forget(const StoredVdev& vdev, const std::string& reason);
  void retry_later();
  struct FoundSessions {
    std::vector<std::unique_ptr<SessionFile>> files;
    std::vector<std::string> unusable;  // paths
  };
  FoundSessions find_sessions();
  void adopt(FoundSessions found);
  void adopt_those_that_can();
  [[nodiscard]] uint64_t vdevice_of(const SessionFile& file) const;
  [[nodiscard]] StoredVdev stored_form(const Record& record) const;
  std::future<base::Result<void>> store(Record& record);
  // After a change that was not an operator's: nobody waits for the disk.
  void store_again(Record& record);
  void forget_later(uint64_t id);
  void on_owner_ended(uint64_t id);
  Worker& worker_of(const std::string& fabric);
  VdevInfo info(const Record& record);
  static VdevInfo info(const Lost& lost);
  static void set_entrance(const Record& record);
  static std::vector<provisioning::Row> quota_rows(const Record& record, const VdeviceUse& use);
  std::vector<CounterRow> counter_rows(const Record& record);
  std::vector<CounterRow> daemon_rows();
  std::vector<BudgetInfo> budgets(BudgetSpec::Scope scope);
  void forget_tenants();  // those without vdevices and settings
  // Which addresses a vdevice may have: daemon_addresses.cc.
  [[nodiscard]] bool is_shared(const std::string& fabric) const;
  [[nodiscard]] std::vector<gid::Prefix> prefixes_of(const Record& record) const;
  [[nodiscard]] gid::Interface interface_of(const Record& record) const;
  void count_ignored(Record& record);
  void members_changed(const std::string& fabric);
  // Link and addresses -> port and GIDs: all that the addresses make, or `gids` alone.
  void apply(Record& record);
  void apply(Record& record, const std::vector<verbs::Gid>& gids);
  // Makes its files in the run directory, or makes them say what is so now.
  void show_sysfs(Record& record);
  void on_link_changed(uint64_t id, const netns::Link& link);
  void on_link_gone(uint64_t id, const std::string& reason);
  void remove(uint64_t id, const std::string& reason);
  void take_out(uint64_t id);  // nobody is told of it
  void tell(WatchEvent::Type type, const VdevInfo& vdev, const std::string& reason);

  base::EventLoop& loop_;
  const RunDir& run_dir_;
  Store& store_;  // read at the start, then the thread's
  StoreThread writer_{store_};
  // What operators change takes a while on disk: all but creations one after the other.
  std::mutex changes_;
  SessionSettings settings_;
  std::vector<std::unique_ptr<Parent>> parents_ = find_parents();
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<netns::Monitor> monitor_;
  gid::Registry gids_;
  Budgets budgets_;
  Cm cm_{loop_};
  std::unique_ptr<ReadLeases> read_leases_;  // never null
  Directory directory_;                      // of both that follow
  std::map<uint64_t, std::unique_ptr<Record>> records_;
  std::map<uint64_t, Lost> lost_;
  uint64_t next_id_ = 0, reserved_ids_ = 0;  // the last that is
  // Sessions of a dead daemon, of fabrics in which one of them has lost its vdevice; for half of
  // the time that programs wait.
  std::vector<std::unique_ptr<SessionFile>> left_;
  base::EventLoop::Timer patience_;
  const Joining* joining_ = nullptr;  // while it is made
  std::string boot_id_ = boot_id();
  base::EventLoop::Timer retry_;
  base::Duration retry_delay_{};
  TenantTotals gone_;  // what deleted vdevices had counted, of the tenants that are known
  std::map<uint64_t, WatchCallback> subscribers_;
  uint64_t next_subscriber_ = 1;
};

}  // namespace vrdma::vrdmad
