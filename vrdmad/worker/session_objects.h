// What one session has: a verbs context, and the calls that make, change and remove its objects.
//
// Each call returns 0 or the errno that the verb returns, and has then changed nothing. Belongs to
// a Session and its worker's thread; the process has proven who it is.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/ipc/messages.h"
#include "core/rdma/device.h"
#include "vrdmad/broker/shown.h"
#include "vrdmad/records/session_kit.h"
#include "vrdmad/worker/vdevice.h"

namespace vrdma::vrdmad {

class SessionObjects {
 public:
  struct Answer {
    ipc::Reply reply;
    std::vector<int> fds;         // sent beside it
    std::vector<base::Fd> owned;  // closed when it has been sent
    bool deferred = false;        // Owner::answer() is called later, from the loop
  };
  // The session that has them.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void answer(Answer late) = 0;               // to the request that is being served
    [[nodiscard]] virtual bool is_awaited() const = 0;  // by the program, the answer
    [[nodiscard]] virtual const base::Fd& socket() const = 0;
    virtual void end_malformed() = 0;
    // Those of the vdevice that have the queue arena; nullptr: none.
    [[nodiscard]] virtual const SessionObjects* find(const FileId& arena) const = 0;
  };
  // A context of a process in that control group. ENOMEM: the vdevice, or the control group, has
  // too many.
  [[nodiscard]] static base::Result<std::unique_ptr<SessionObjects>> make(
      Owner& owner, std::shared_ptr<Vdevice> vdevice, std::shared_ptr<Caller> caller,
      std::shared_ptr<rdma::Process> process, const std::string& cgroup);
  ~SessionObjects();
  SessionObjects(const SessionObjects&) = delete;
  SessionObjects& operator=(const SessionObjects&) = delete;

  // Takes the kit's memory files and maps them. Before it, nothing below is called but context().
  [[nodiscard]] int furnish(SessionKit& kit);
  [[nodiscard]] rdma::Context& context() const { return *context_; }
  [[nodiscard]] Vdevice& vdevice() const { return *vdevice_; }
  // The regions that the last kReach has changed, by handle.
  [[nodiscard]] const std::vector<uint32_t>& made_reached() const { return made_reached_; }
  // The memory files that the program shows; the page table first.
  [[nodiscard]] const std::vector<ShownFile>& shown() const { return shown_; }
  // Of the queue arena, by which other sessions name this one.
  [[nodiscard]] const FileId& arena_id() const { return arena_id_; }

  // A request of a session that is open, of a call that is not the session's own.
  [[nodiscard]] int serve(const ipc::Request& request, Shown fds, Answer* answer);
  // A request that a dead daemon served: with the numbers of `wanted`, which was its answer.
  [[nodiscard]] int serve_as(const ipc::Request& request, const ipc::Reply& wanted, Answer* answer);
  // A change of a queue pair that a dead daemon was asked for: what it did not do is done, and the
  // answer is as if it had lived. `answered`: its answer; nullptr: it gave none. False: the request
  // is like any other, and nothing was done.
  [[nodiscard]] bool modify_again(const ipc::ModifyQpRequest& request, const ipc::Reply* answered,
                                  Answer* answer);
  // The size of a shared receive queue as it was.
  [[nodiscard]] int resize_srq(rdma::Srq& srq, uint32_t max_wr);
  // Whether the process has shown a packet socket of its namespace to a dead daemon.
  void trust_packet_socket(bool shown) { packet_socket_shown_ = shown; }
  // Objects that a dead daemon made from more than a request. 0 or an errno.
  [[nodiscard]] int restore_xrcd(uint32_t handle, const FileId& file);
  [[nodiscard]] int restore_target(uint32_t handle, uint32_t xrcd, uint32_t qpn);
  [[nodiscard]] int restore_imported_pd(uint32_t handle, const rdma::Origin& origin);
  [[nodiscard]] int restore_imported_mr(uint32_t handle, uint32_t key, uint32_t pd,
                                        const rdma::Origin& origin);
  // The file that names the domain; zero: none does.
  [[nodiscard]] FileId file_of(const rdma::Xrcd& xrcd) const;
  // Peers have the access that its attributes permit.
  static void restore_access(const rdma::Qp& qp);
  // Whether the session that its context imports from is there, and lets it.
  [[nodiscard]] bool may_import() const;
  // Of a queue pair, or of all with kAllQps: looks for work as if the program had rung for it.
  static constexpr uint32_t kAllQps = UINT32_MAX;  // no handle
  void kick(uint32_t qp);
  // Whether it, or any, can get on with what the program posted.
  [[nodiscard]] bool gets_on(uint32_t qp) const;
  // The program has published work, or receives.
  void scan_doorbells();
  // The program has said goodbye: its connections end, and the answer goes out when nobody stores
  // in its memory by way of them any more; or after a moment, if that takes longer.
  void end_traffic(Answer* answer);
  // Those of kReach.
  void end_pauses() { paused_.clear(); }
  [[nodiscard]] bool has_pauses() const { return !paused_.empty(); }
  // session_park.cc
  // Calls `then` when no job uses the memory of the session any more that was submitted before.
  void when_unused(std::function<void()> then);
  // All regions and windows that are in place are reached from now on, by workers and programs.
  void make_all_reached();
  // Takes the kit's files instead of those of before; see rdma::exchange_files().
  [[nodiscard]] base::Result<void> attach(SessionKit& kit, std::shared_ptr<Caller> caller,
                                          std::shared_ptr<rdma::Process> process);
  // The vdevice has gone: tells the program and flushes its queues.
  void device_gone();
  // The program died: its peers learn of it after a moment.
  void leave_survivors();

 private:
  using Fds = Shown;

  SessionObjects(Owner& owner, std::shared_ptr<Vdevice> vdevice, std::shared_ptr<Caller> caller);
  [[nodiscard]] static base::Result<std::unique_ptr<rdma::AddressSpace>> space_of(base::Fd memory);
  void send_events_later();
  // Adds a charge to `charges`, or ENOMEM.
  [[nodiscard]] int charge(provisioning::Kind kind, uint64_t amount, rdma::Charges* charges);
  // The handle that the next object must have; 0: any.
  [[nodiscard]] uint32_t wanted() const { return forced_ != nullptr ? forced_->handle.handle : 0; }
  [[nodiscard]] base::EventLoop& loop() const { return vdevice_->lane.loop(); }

  // session_queries.cc
  int query_device(Answer* answer);
  int query_port(Answer* answer);
  int query_gids(const ipc::GidsRequest& request, Answer* answer);
  // session_memory.cc
  int alloc_pd(Answer* answer);
  int dealloc_pd(uint32_t handle);
  int reg_mr(const ipc::RegMrRequest& request, Answer* answer);
  [[nodiscard]] int reach_to_write(const rdma::Region& region);
  int rereg_mr(const ipc::ReregMrRequest& request, Answer* answer);
  int hold(const ipc::HoldRequest& request, Answer* answer);
  void count_reached(const ipc::RegMrRequest& request);
  int dereg_mr(uint32_t handle, Answer* answer);
  int import_device(Fds fds);
  int import_pd(uint32_t handle, Answer* answer);
  int import_mr(const ipc::ImportMrRequest& request, Answer* answer);
  rdma::Mr* add_imported(std::unique_ptr<rdma::Mr> mr, rdma::Pd& pd, uint32_t handle);
  int alloc_mw(const ipc::AllocMwRequest& request, Answer* answer);
  int dealloc_mw(uint32_t handle, Answer* answer);
  void answer_when_unreached(Answer* answer);
  void answer_when_key_unused(Answer* answer);
  template <class Each>
  void answer_when(Answer* answer, Each each);
  int reach(const ipc::ReachRequest& request, Answer* answer);
  int create_ah(const verbs::AddressVector& av, Answer* answer);
  int destroy_ah(uint32_t handle);
  // session_shown.cc
  int show_memory(const ipc::ShowMemoryRequest& request, const Fds& fds, Answer* answer);
  [[nodiscard]] int show_again(const SessionKit& kit);
  [[nodiscard]] int show(std::vector<ShownFile> files,
                         const std::function<const base::Fd&(size_t)>& file);
  // session_queues.cc
  int create_channel(Answer* answer);
  int destroy_channel(uint32_t handle);
  int create_cq(const ipc::CreateCqRequest& request, Answer* answer);
  int resize_cq(const ipc::ResizeCqRequest& request, Answer* answer);
  int destroy_cq(uint32_t handle);
  int create_srq(const ipc::CreateSrqRequest& request, Answer* answer);
  int modify_srq(const ipc::ModifySrqRequest& request);
  int query_srq(uint32_t handle, Answer* answer);
  int destroy_srq(uint32_t handle);
  // session_qp.cc
  int create_qp(const ipc::CreateQpRequest& request, Fds fds, Answer* answer);
  int make_qp(const ipc::CreateQpRequest& request, Fds fds, Answer* answer);
  int modify_qp(const ipc::ModifyQpRequest& request, Answer* answer);
  [[nodiscard]] bool are_valid(const verbs::QpAttributes& wanted, uint32_t mask) const;
  int change_qp(rdma::Qp& qp, verbs::QpState to, uint32_t mask, const ipc::ModifyQpRequest& request,
                Answer* answer);
  void answer_when_open(Answer* answer);
  int to_rtr(rdma::Qp& qp, const ipc::ModifyQpRequest& request, Answer* answer);
  int tell_direct(rdma::Qp& qp, rdma::Qp& peer, const ipc::ModifyQpRequest& request,
                  Answer* answer);
  int query_qp(uint32_t handle, Answer* answer);
  int destroy_qp(uint32_t handle);
  int mcast(const ipc::McastRequest& request, bool attach, Answer* answer);
  // session_raw.cc
  [[nodiscard]] bool may_have_raw_packets() const;
  [[nodiscard]] base::Result<base::Fd> packet_socket(Fds proof);
  int give_gsi(rdma::Qp& qp);
  int create_flow(const ipc::CreateFlowRequest& request, Answer* answer);
  int destroy_flow(uint32_t handle);
  // session_xrc.cc
  int open_xrcd(const ipc::OpenXrcdRequest& request, Fds fds, Answer* answer);
  [[nodiscard]] rdma::Xrcd* add_xrcd(const FileId& file, rdma::Charges charges, uint32_t handle);
  int close_xrcd(uint32_t handle);
  int create_target(const ipc::CreateQpRequest& request, Answer* answer);
  int open_qp(const ipc::OpenQpRequest& request, Answer* answer);

  Owner& owner_;
  const std::shared_ptr<Vdevice> vdevice_;
  std::shared_ptr<Caller> caller_;
  std::unique_ptr<rdma::Context> context_;      // never null
  std::shared_ptr<provisioning::Pool> cgroup_;  // what it uses is counted there too
  FileId arena_id_;
  const ipc::Reply* forced_ = nullptr;  // while a request is served again: what its answer must be
  bool packet_socket_shown_ = false;
  Stopper::Ticket held_;                       // the program's threads, perhaps
  std::vector<std::shared_ptr<void>> paused_;  // those that reach its memory, by kReach
  std::vector<uint32_t> made_reached_;
  std::vector<ShownFile> shown_;
  base::EventLoop::Timer unsent_;     // events wait for room
  base::EventLoop::Timer unreached_;  // the goodbye waits
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace vrdma::vrdmad
