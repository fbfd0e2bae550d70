// One process's use of one vdevice: the daemon's end of the session socket.
//
// States: connected (the process is identified; only kProbe, kHello and kProve are answered), open
// (kProve succeeded, there is a Context), ended. A session ends when its process dies (pidfd), its
// socket is closed, it says kGoodbye, or it sends or writes what no client of ours
// would. All it made goes with it. If it ended without kGoodbye, the queue pairs that were linked
// to its own go to ERR a moment later (kBereavement).
//
// Lives on the worker of the vdevice's fabric. Requests and doorbells are served in the turns of
// the vdevice's lane, one request in a turn.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/event_loop.h"
#include "core/ipc/messages.h"
#include "core/rdma/device.h"
#include "provisioning/request_rate.h"
#include "transport/runner.h"
#include "transport/send_queue.h"
#include "vrdmad/broker/shown.h"
#include "vrdmad/records/process_files.h"
#include "vrdmad/records/session_file.h"
#include "vrdmad/worker/vdevice.h"

namespace vrdma::vrdmad {

// Whose session a file tells of.
struct SessionSummary {
  std::string vdevice;
  uint64_t netns = 0;  // cookie of the vdevice's namespace
  uint64_t node_guid = 0;
  uint32_t session = 0;
  uint32_t epoch = 0;
  pid_t pid = 0;
};
[[nodiscard]] std::optional<SessionSummary> summary_of(const SessionFile& file);

class Session final : private transport::Runnable, private provisioning::RequestRate::Reader {
 public:
  // `ended` is called once, from the loop, when the session may be destroyed.
  [[nodiscard]] static base::Result<std::unique_ptr<Session>> start(
      Arrival arrival, std::shared_ptr<Vdevice> vdevice, transport::Runner& runner,
      const SessionSettings& settings, std::function<void(Session*)> ended);
  // The session of a dead daemon, as `file` tells of it (session_adopt.cc). When all of its fabric
  // are there, each of the following is called of all of them, one after the other.
  [[nodiscard]] static base::Result<std::unique_ptr<Session>> adopt(
      std::unique_ptr<SessionFile> file, std::shared_ptr<Vdevice> vdevice, KnownFiles& known,
      transport::Runner& runner, const SessionSettings& settings,
      std::function<void(Session*)> ended);
  void restore_pairs();
  void restore_links();
  void go_on();
  // Numbers of sessions are greater than this one from now on.
  static void number_from(uint32_t last);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // What its connection is charged, until it is destroyed.
  void pay(provisioning::Charge connection) { connection_ = std::move(connection); }
  // The vdevice has gone: tells the program and flushes its queues.
  void device_gone();
  // Whether another daemon could take it over.
  [[nodiscard]] bool is_kept() const { return context_ != nullptr && file_ != nullptr; }
  [[nodiscard]] rdma::Context* context() const { return context_.get(); }
  [[nodiscard]] const std::shared_ptr<Vdevice>& vdevice() const { return vdevice_; }

 private:
  using Fds = Shown;
  struct Answer {
    ipc::Reply reply;
    std::vector<int> fds;         // sent beside it
    std::vector<base::Fd> owned;  // closed when it has been sent
    bool deferred = false;        // send_answer() is called later
  };

  Session(base::Fd socket, std::shared_ptr<Vdevice> vdevice, transport::Runner& runner,
          const SessionSettings& settings, std::function<void(Session*)> ended);

  bool run(transport::Turn& turn) override;
  void admitted() override { runner_.activate(this); }
  void on_socket();
  void hand_over();
  void on_handed_over(Intake::Received received);
  void on_request(const ipc::Request& request, Fds fds);
  void on_doorbell();
  [[nodiscard]] base::Result<base::EventLoop::Watch> watch(const base::Fd& doorbell);
  [[nodiscard]] bool hear_again();
  void read_request();
  void scan_doorbells();
  void handle(const ipc::Request& request, Fds fds);
  void attribute(const rdma::Process& process);
  void limit_in_kernel(const std::string& cgroup);
  [[nodiscard]] bool comes_too_soon(const ipc::Request& request);
  [[nodiscard]] bool asks_mappings(const ipc::Request& request);
  void end(bool malformed);
  void leave_survivors();
  [[nodiscard]] int dispatch(const ipc::Request& request, Fds fds, Answer* answer);
  void send_answer(Answer answer);
  void refuse_version(const ipc::Request& request);
  int probe(Answer* answer);

  // session_hello.cc
  static constexpr unsigned kMostFailures = 3;  // of kHello and kProve on one connection
  struct Files {
    base::Fd arena, bells, memory, doorbell;
  };
  int furnish(std::unique_ptr<rdma::Context> context, Files files);
  [[nodiscard]] int refuse_caller(const base::Error& why);
  int hello(const ipc::HelloRequest& request, Fds fds, Answer* answer);
  int prove(Answer* answer);
  int open(Answer* answer);
  void send_events_later();
  // session_adopt.cc
  void remember(const ipc::Request& request, const ipc::Reply& reply);
  void keep_made(const ipc::Request& request, const ipc::Reply& reply);
  void keep_changed(SessionFile::Kind kind, const ipc::Request& request, const ipc::Reply& reply);
  void erase(SessionFile::Kind kind, uint32_t handle);
  void keep(SessionFile::Kind kind, const ipc::Request& request, const ipc::Reply& reply,
            uint32_t sequence = 0);
  void will_serve(const ipc::Request& request);
  void keep_state(const rdma::Qp& qp);
  void keep_claim(const rdma::Srq& srq, uint32_t slot, const rdma::Qp* receiver);
  void write_down_changes();
  void begin_file();
  [[nodiscard]] base::Result<void> take_over(SessionFile& file, KnownFiles& known);
  void restore_claims();
  [[nodiscard]] base::Result<void> serve_again(SessionFile& file, const ProcessFiles& files);
  [[nodiscard]] int resume(const ipc::Request& request);
  void attach(base::Fd socket, uint32_t sequence);
  [[nodiscard]] bool serve_repeated(const ipc::Request& request, Answer* answer);
  // The handle that the next object must have; 0: any.
  [[nodiscard]] uint32_t wanted() const { return forced_ != nullptr ? forced_->handle.handle : 0; }
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
  int alloc_mw(const ipc::AllocMwRequest& request, Answer* answer);
  int dealloc_mw(uint32_t handle, Answer* answer);
  void answer_when_unreached(Answer* answer);
  int create_ah(const verbs::AddressVector& av, Answer* answer);
  int destroy_ah(uint32_t handle);
  // session_queues.cc
  int create_channel(Answer* answer);
  int destroy_channel(uint32_t handle);
  int create_cq(const ipc::CreateCqRequest& request, Answer* answer);
  int resize_cq(const ipc::ResizeCqRequest& request, Answer* answer);
  int destroy_cq(uint32_t handle);
  int create_srq(const ipc::CreateSrqRequest& request, Answer* answer);
  int modify_srq(const ipc::ModifySrqRequest& request);
  int resize_srq(rdma::Srq& srq, uint32_t max_wr);
  int query_srq(uint32_t handle, Answer* answer);
  int destroy_srq(uint32_t handle);
  // session_qp.cc
  int create_qp(const ipc::CreateQpRequest& request, Fds fds, Answer* answer);
  int make_qp(const ipc::CreateQpRequest& request, Fds fds, Answer* answer);
  int modify_qp(const ipc::ModifyQpRequest& request, Answer* answer);
  [[nodiscard]] bool are_valid(const verbs::QpAttributes& wanted, uint32_t mask) const;
  int change_qp(rdma::Qp& qp, verbs::QpState to, uint32_t mask, const ipc::ModifyQpRequest& request,
                Answer* answer);
  int to_rtr(rdma::Qp& qp, const ipc::ModifyQpRequest& request, Answer* answer);
  int tell_direct(rdma::Qp& qp, rdma::Qp& peer, const ipc::ModifyQpRequest& request,
                  Answer* answer);
  int show_arenas(const rdma::Context& peer, Answer* answer);
  int query_qp(uint32_t handle, Answer* answer);
  int destroy_qp(uint32_t handle);
  int mcast(const ipc::McastRequest& request, bool attach);

  // session_raw.cc
  [[nodiscard]] bool may_have_raw_packets() const;
  [[nodiscard]] base::Result<base::Fd> packet_socket(Fds proof);
  int give_gsi(rdma::Qp& qp, transport::SendQueue& sender);
  int create_flow(const ipc::CreateFlowRequest& request, Answer* answer);
  int destroy_flow(uint32_t handle);
  // session_xrc.cc
  int open_xrcd(const ipc::OpenXrcdRequest& request, Fds fds, Answer* answer);
  int close_xrcd(uint32_t handle);
  int create_target(const ipc::CreateQpRequest& request, Answer* answer);
  int open_qp(const ipc::OpenQpRequest& request, Answer* answer);

  // Adds a charge to `charges`, or ENOMEM.
  [[nodiscard]] int charge(provisioning::Kind kind, uint64_t amount, rdma::Charges* charges);
  [[nodiscard]] base::EventLoop& loop() const { return runner_.loop(); }

  base::Fd socket_;
  provisioning::Charge connection_;
  std::shared_ptr<Vdevice> vdevice_;
  transport::Runner& runner_;
  const SessionSettings& settings_;
  // Of the queue arena, by which other sessions name this one, and of the memory arena.
  FileId arena_id_, memory_id_;
  std::function<void(Session*)> ended_;
  base::EventLoop::Watch socket_watch_;
  base::EventLoop::Watch death_watch_;
  base::EventLoop::Watch doorbell_watch_;  // not while the lane rests
  base::Fd doorbell_;
  std::unique_ptr<rdma::Context> context_;
  Intake::Ticket handed_over_;
  Stopper::Ticket held_;            // its threads, perhaps
  bool with_intake_ = false;        // the intake reads the next request
  std::shared_ptr<Caller> caller_;  // never null
  ipc::Sender sender_;              // of the request that is being served
  unsigned failures_ = 0;           // of kHello and kProve
  // From kHello until the answer to kProve.
  struct Greeting {
    uint64_t challenge = 0, challenge_addr = 0;
    std::unique_ptr<rdma::Context> context;  // from kProve on
    Fds shown;                               // the arena that was presented
    bool cheap_fence = false;
  };
  std::unique_ptr<Greeting> greeting_;
  std::unique_ptr<SessionFile> file_;   // none: nobody can take it over
  const ipc::Reply* forced_ = nullptr;  // while a request is served again: what its answer must be
  SessionFile::Last last_;              // of the dead daemon
  std::unordered_map<uint32_t, std::pair<bool, bool>> was_linked_;  // by handle: out, in
  uint32_t sequence_ = 0;
  std::shared_ptr<provisioning::Pool> cgroup_;  // what it uses is counted there too
  base::EventLoop::Timer too_soon_;             // a request waits for its time
  base::EventLoop::Timer unsent_;               // events wait for room
  bool busy_ = false;                           // a deferred answer is due
  bool readable_ = false;                       // something may stand in the socket
  bool rung_ = false;                           // the doorbell
  bool goodbye_ = false;
  bool over_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace vrdma::vrdmad
