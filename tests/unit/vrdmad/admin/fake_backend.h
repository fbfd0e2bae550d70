// An AdminBackend without a daemon: vdevices are rows in a map, on a loop's thread as in vrdmad.
//
// A name is unique in its netns, which its text alone identifies. Names select errors: netns
// "missing" gives ENOENT, netdev "missing" and any parent but "soft" ENODEV, a quota kind
// "nonsense" EINVAL, a limit of "qp" below 2 EBUSY. No network is involved.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "core/base/event_loop.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

class FakeBackend final : public AdminBackend {
 public:
  explicit FakeBackend(base::EventLoop& loop) : loop_(loop) {}

  base::Result<VdevInfo> create_vdev(const VdevSpec& spec, bool if_absent) override;
  base::Result<VdevKey> delete_vdev(const std::string& name) override;
  base::Result<VdevInfo> get_vdev(const std::string& name, bool show_sysfs = false) override;
  std::vector<VdevInfo> list_vdevs() override;
  base::Result<VdevInfo> set_quota(const std::string& name,
                                   const std::vector<QuotaSetting>& quota) override;
  base::Result<VdevInfo> set_labels(const std::string& name, const LabelChange& change) override;
  // One row for each setting; a ceiling of "qp" below 2 is EBUSY.
  base::Result<BudgetInfo> set_budget(const BudgetSpec& spec) override;
  std::vector<BudgetInfo> list_budgets(BudgetSpec::Scope scope) override;
  // Counts the vdevices of the fabric. The reach of fabric "taken" cannot be Reach::kNetwork.
  base::Result<FabricInfo> set_fabric(const FabricChange& change) override;
  std::vector<FabricInfo> list_fabrics() override;
  // One cgroup for each vdevice, named after its netdev.
  base::Result<std::vector<CgroupRow>> list_cgroups(const std::string& vdev) override;
  base::Result<std::vector<QueuePairRow>> list_queue_pairs(const std::string& vdev) override;
  base::Result<std::vector<ExportRow>> list_exports(const std::string& vdev) override;
  std::vector<ParentInfo> list_parents() override;
  // What set_classes() was given.
  base::Result<std::vector<ClassInfo>> list_classes() override;
  // There is a claim "held" from the start, by whose share a container has a vdevice.
  base::Result<ClaimInfo> put_claim(const ClaimSpec& claim) override;
  base::Result<void> delete_claim(const std::string& uid, bool force) override;
  std::vector<ClaimInfo> list_claims() override;
  base::Result<std::vector<CounterRow>> counters(const std::string& scope) override;
  // Each vdevice has two sessions.
  ActivityInfo activity() override;
  // A listener and a connection for each vdevice.
  base::Result<std::vector<ConnectionRow>> list_connections(const std::string& vdev) override;
  // Process 4711 has a session, and may be parked; any other number is ENOENT.
  base::Result<ParkedProcess> park_process(int32_t pid) override;
  base::Result<ParkedProcess> parked_process(const std::string& process) override;
  base::Result<void> detach_process(const std::string& process) override;
  base::Result<ParkedProcess> place_process(const AttachedProcess& process) override;
  base::Result<void> attach_process(const AttachedProcess& process) override;
  base::Result<void> resume_process(const std::string& process) override;
  base::Result<void> abandon_process(const std::string& process) override;
  std::shared_ptr<void> watch(WatchCallback callback) override;
  // One event, which happens again when watched.
  std::vector<EventRow> list_events(EventRow::Time since, size_t most = SIZE_MAX) override;
  std::shared_ptr<void> watch_events(EventRow::Time since, EventCallback callback) override;

  // Any thread: the number of active watches.
  size_t watchers();
  // Any thread: sends the event to all watchers, `times` times.
  void announce(const WatchEvent& event, int times = 1);
  // Any thread.
  void set_classes(base::Result<std::vector<ClassInfo>> classes);
  // Any thread: adds this many counters to each vdevice.
  void add_counters(int rows);
  // Any thread: what was attached last, and the last step.
  ParkedProcess attached();
  std::string last_step();
  // Any thread: the error of the following calls (code 0: none).
  void fail_with(int code, std::string message);

 private:
  // Runs `work` on the loop's thread and returns its result.
  template <class Work>
  auto on_loop(Work work) {
    // Shared by both threads: the waiting one may return before set_value() does.
    const auto promise = std::make_shared<std::promise<decltype(work())>>();
    auto future = promise->get_future();
    loop_.post([promise, work = std::move(work)]() mutable { promise->set_value(work()); });
    return future.get();
  }
  void tell(const WatchEvent& event);
  base::Result<void> of_parked(const std::string& process, const char* what);
  base::Result<VdevInfo> find(const std::string& name) const;
  [[nodiscard]] std::map<std::string, FabricInfo> fabrics() const;

  base::EventLoop& loop_;
  // Only on the loop's thread:
  std::map<uint64_t, VdevInfo> vdevs_;
  uint64_t next_id_ = 1;
  std::map<std::pair<BudgetSpec::Scope, std::string>, BudgetInfo> budgets_;
  std::map<std::string, FabricSpec> fabrics_;
  std::map<uint64_t, WatchCallback> watches_;
  uint64_t next_watch_ = 1;
  uint64_t told_ = 0;  // events
  int more_counters_ = 0;
  base::Result<std::vector<ClassInfo>> classes_;
  std::map<std::string, ClaimInfo> claims_{
      {"held", {{"held", "bank", "ledger", {{"data", "small", {{"qp", 8}}}}, {}}, {1}}}};
  ParkedProcess parked_;
  std::string last_step_;
  base::Error failure_{0, ""};
};

}  // namespace vrdma::vrdmad
