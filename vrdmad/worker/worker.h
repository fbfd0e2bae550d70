// A data worker: runs whole fabrics on one thread.
//
// Everything of a fabric (vdevices, sessions, queue pairs, links) lives on the thread of one
// worker, so the data path shares nothing and locks nothing. Control and the worker exchange
// messages (messages.h), and neither waits for the other. Control makes the descriptors and state
// files of a session (vrdmad/records/furnisher.h); a worker makes only the ends of completion
// channels, and gets packet sockets from the broker.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/shared_page.h"
#include "core/rdma/qp_numbers.h"
#include "transport/runner.h"
#include "vrdmad/worker/kept_back.h"
#include "vrdmad/worker/messages.h"
#include "vrdmad/worker/parcel.h"
#include "vrdmad/worker/refusals.h"
#include "vrdmad/worker/session.h"
#include "vrdmad/worker/vdevice.h"
#include "vrdmad/worker/worker_budgets.h"

namespace vrdma::vrdmad {

class Worker {
 public:
  // `broker`: for the processes of connections; nullptr: in tests without. `tell` is called on the
  // loop's thread.
  Worker(base::EventLoop& loop, std::shared_ptr<Broker> broker,
         std::function<void(ToControl)> tell);
  ~Worker();  // ends all sessions
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // All on the loop's thread.
  void take(Parcel parcel);
  // Ends all sessions. What they have posted to the loop refers to this object.
  void end();
  // Before the end: sessions are left as they are, for another worker. True: there are some, so
  // that threads which are in a program's memory will still post to the loop.
  [[nodiscard]] bool leave_sessions();
  // nullptr: it is not on this worker.
  [[nodiscard]] Vdevice* find(uint64_t id) const;

 private:
  struct Walk {  // over the queue pairs of a vdevice
    size_t next = 0, buckets = 0;
  };
  [[nodiscard]] bool collect_some(uint64_t id, Walk* walk);  // false: that was the last
  void collect(uint64_t id, Walk walk, std::function<void()> then);
  void take_out(uint64_t id);

  // What a message asks for; on the worker's thread.
  void on(const Begin& message, Beside beside);
  void on(const AddVdevice& message, Beside beside);
  void on(const RemoveVdevice& message, Beside beside);
  void on(const NewConnection& message, Beside beside);
  void on(const SetPort& message, Beside beside);
  void on(const SetGids& message, Beside beside);
  void on(const Collect& message, Beside beside);
  void on(const CheckLimits& message, Beside beside);
  void on(const SetLimits& message, Beside beside);
  void on(const AskCgroups& message, Beside beside);
  void on(const AskQueuePairs& message, Beside beside);
  void on(const AskExports& message, Beside beside);
  void on(const Kit& message, Beside beside);
  void on(const AdoptSession& message, Beside beside);
  void on(const AdoptChannels& message, Beside beside);
  void on(const TakeOver& message, Beside beside);
  void on(const ParkSession& message, Beside beside);
  void on(const AttachSession& message, Beside beside);
  void on(const Await& message, Beside beside);
  void on(const RoceSocket& message, Beside beside);
  void on(const SetWays& message, Beside beside);
  void set_ways(Vdevice& vdevice, const Ways& ways);
  void answer(uint64_t ticket, const base::Result<void>& done) const;

  // nullptr: there is no such session.
  [[nodiscard]] Session* find_session(uint64_t connection) const;
  void end_predecessor(const Furnisher::Adopted& of);
  [[nodiscard]] std::unique_ptr<Session> adopt(Furnisher::Adopted one);
  [[nodiscard]] std::vector<Furnisher::Adopted> adoptable();
  [[nodiscard]] SessionTies ties_of(const Furnisher::Adopted& one) const;
  struct Waiting;  // a connection that the worker has not taken yet
  void begin_session(const std::shared_ptr<Vdevice>& vdevice, Waiting& waiting);
  void forget(Session* over);
  void end_silent();
  void note_work();
  [[nodiscard]] bool may_have_descriptors(const std::string& tenant, size_t count) const;
  [[nodiscard]] Session::Host host_of(const Vdevice& vdevice, const Sessions& sessions);

  base::EventLoop& loop_;
  transport::Runner runner_;
  SessionSettings settings_;
  const std::function<void(ToControl)> tell_;
  std::unique_ptr<Intake> intake_;    // null: in tests
  std::unique_ptr<Stopper> stopper_;  // the same
  std::array<base::EventLoop::Watch, 2> reports_;
  WorkerBudgets budgets_;
  std::shared_ptr<transport::roce::Incoming>
      incoming_;  // made for the first vdevice with a network
  struct FabricEntry {
    std::unique_ptr<rdma::Fabric> fabric;
    size_t vdevices = 0;
  };
  std::map<std::string, FabricEntry> fabrics_;
  rdma::QpNumberSpaces qp_numbers_;                                  // by namespace
  std::unordered_map<uint64_t, std::shared_ptr<Vdevice>> vdevices_;  // by id
  // Connections that have asked for a kit.
  std::unordered_map<uint64_t, std::function<void(base::Result<SessionKit>)>> wanting_;
  // Until TakeOver; those that are kept back, until a later one.
  std::vector<Furnisher::Adopted> adopting_;
  std::map<uint64_t, std::map<uint32_t, base::Fd>> channels_;  // by connection
  // By vdevice; also of those that are deleted and that programs still have open.
  using SessionMap = std::map<const Vdevice*, Sessions>;
  SessionMap sessions_;
  Refusals refusals_;
  base::EventLoop::Timer work_;     // until note_work()
  base::EventLoop::Timer silence_;  // until end_silent()
};

}  // namespace vrdma::vrdmad
