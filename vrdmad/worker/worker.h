// A data worker: one thread that runs whole fabrics.
//
// Everything of a fabric (vdevices, sessions, queue pairs, links) lives on the thread of one
// worker, so the data path shares nothing and locks nothing. The control thread sends
// it messages (messages.h), and waits for it only in adopt(), leave_sessions() and remove(). A
// worker never waits for the control thread. Control makes the descriptors and state files of a
// session (vrdmad/records/furnisher.h); a worker makes only the ends of completion channels and raw
// packet sockets, and uses the control groups of programs by their paths.
#pragma once

#include <array>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/shared_page.h"
#include "core/rdma/qp_numbers.h"
#include "transport/runner.h"
#include "vrdmad/worker/handover.h"
#include "vrdmad/worker/messages.h"
#include "vrdmad/worker/session.h"
#include "vrdmad/worker/vdevice.h"
#include "vrdmad/worker/worker_budgets.h"

namespace vrdma::vrdmad {

// What a vdevice has beside the values of AddVdevice: what it shares with control and others.
struct VdeviceShared {
  base::SharedPage<rdma::QpNumberTable> qp_numbers;  // default-constructed: control reads none
  base::Fd gsi;  // for RawGsi; none: not allowed
  Intake::AccountRef intake;
  transport::Selector::Maker parent_sender;
  // Where the worker counts.
  std::shared_ptr<VdevicePage> page = std::make_shared<VdevicePage>();
  std::shared_ptr<rdma::FabricCounters> fabric_counters = std::make_shared<rdma::FabricCounters>();
  // The pages of AddVdevice's budgets; without a page there is no such budget.
  WorkerBudgets::Page tenant_budget, parent_budget;
};

// The slot of a worker in the page of each budget, by the worker's index.
[[nodiscard]] constexpr size_t budget_slot(unsigned index) {
  return provisioning::kControlSlot + 1 + index;
}

class Worker {
 public:
  // `index`: no other worker's, and budget_slot(index) is less than kBudgetSlots.
  // `tell` is called on the worker's thread, and on that of the destructor.
  [[nodiscard]] static base::Result<std::unique_ptr<Worker>> start(
      const SessionSettings& settings, unsigned index, std::function<void(ToControl)> tell);
  ~Worker();  // ends all sessions and the thread
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Control thread. The first four do not wait for the worker; it takes all in the order of the
  // calls, so that a session that is accepted finds what was set before.
  void add(AddVdevice message, VdeviceShared shared);
  void send(ToWorker message);
  // `connection`: its number (Furnisher::add).
  void accept(uint64_t id, uint64_t connection, Arrival arrival);
  // What the connection asked for with WantKit.
  void furnish(Kit answer, base::Result<SessionKit> kit);
  // Takes over the sessions of a dead daemon; waits. Those of the fabrics `later` come with another
  // call: until then their programs are told to wait.
  // `searched`: processor time that vdevices pay; those of other workers are left out.
  void adopt(std::vector<Furnisher::Adopted> found,
             const std::map<uint64_t, base::Duration>& searched,
             const std::set<std::string>& later);
  // Before the end: sessions are left as they are, for another daemon.
  void leave_sessions();
  void remove(uint64_t id);  // when it returns, no new work of it is executed, and all is counted
  // Does not wait: see base::EventLoop::longest_pass().
  [[nodiscard]] base::Duration longest_pass() const { return loop_->longest_pass(); }
  // In the page of each budget; never changes.
  [[nodiscard]] size_t slot() const { return budgets_.slot(); }

 private:
  Worker(std::unique_ptr<base::EventLoop> loop, const SessionSettings& settings, size_t slot,
         std::function<void(ToControl)> tell)
      : loop_(std::move(loop)),
        runner_(*loop_),
        settings_(settings),
        tell_(std::move(tell)),
        budgets_(slot, [this](uint64_t number) { tell_(WantRates{number}); }) {}

  // Runs `f` on the worker and waits for its result.
  template <class F>
  auto call(F f) -> decltype(f()) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    loop_->post([&task] { task(); });
    return result.get();
  }

  struct Walk {  // over the queue pairs of a vdevice
    size_t next = 0, buckets = 0;
  };
  [[nodiscard]] bool collect_some(uint64_t id, Walk* walk);  // false: that was the last
  void collect_rest(const Collect& message, Walk walk);

  // What a message asks for; on the worker's thread.
  void on(const AddVdevice& message);
  void on(const NewConnection& message);
  void on(const SetPort& message);
  void on(SetGids message);
  void on(const Collect& message);
  void on(const CheckLimits& message);
  void on(const SetLimits& message);
  void on(const AskCgroups& message);
  void on(const Kit& message);
  void answer(uint64_t ticket, const base::Result<void>& done) const;
  [[nodiscard]] Vdevice* find(uint64_t id) const;

  struct Waiting;  // a connection that the worker has not taken yet
  void begin_session(const std::shared_ptr<Vdevice>& vdevice, Waiting& waiting);
  void forget(Session* over);
  [[nodiscard]] Session::Host host_of(const Sessions& sessions);

  std::unique_ptr<base::EventLoop> loop_;
  transport::Runner runner_;
  SessionSettings settings_;
  const std::function<void(ToControl)> tell_;
  std::thread thread_;
  Handover<VdeviceShared> shared_;                  // by the vdevice's id
  Handover<std::shared_ptr<Waiting>> connections_;  // by NewConnection::number
  Handover<SessionKit> kits_;                       // by Kit::connection
  bool left_ = false;                               // sessions, for another daemon

  // The worker's thread only.
  WorkerBudgets budgets_;
  struct FabricEntry {
    std::unique_ptr<rdma::Fabric> fabric;
    size_t vdevices = 0;
  };
  std::map<std::string, FabricEntry> fabrics_;
  rdma::QpNumberSpaces qp_numbers_;                                  // by namespace
  std::unordered_map<uint64_t, std::shared_ptr<Vdevice>> vdevices_;  // by id
  // Connections that have asked for a kit.
  std::unordered_map<uint64_t, std::function<void(base::Result<SessionKit>)>> wanting_;
  // By vdevice; also of those that are deleted and that programs still have open.
  using SessionMap = std::map<const Vdevice*, Sessions>;
  SessionMap sessions_;
};

}  // namespace vrdma::vrdmad
