// One process's use of one vdevice: the daemon's end of the session socket.
//
// States: connected (the process is identified; only kProbe, kHello and kProve are answered), open
// (kProve succeeded, there is a Context), ended. A session ends when its process dies (pidfd), its
// socket is closed, it says kGoodbye, or it sends or writes what no client library
// would. All it made goes with it. If it ended without kGoodbye, the queue pairs that were linked
// to its own go to ERR a moment later (kBereavement).
//
// Lives on the worker of the vdevice's fabric. Requests and doorbells are served in the turns of
// the vdevice's lane, one request in a turn.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/event_loop.h"
#include "core/ipc/messages.h"
#include "provisioning/request_rate.h"
#include "transport/runner.h"
#include "vrdmad/broker/conversation.h"
#include "vrdmad/records/furnisher.h"
#include "vrdmad/worker/connection.h"
#include "vrdmad/worker/messages.h"
#include "vrdmad/worker/session_journal.h"
#include "vrdmad/worker/session_objects.h"
#include "vrdmad/worker/vdevice.h"

namespace vrdma::vrdmad {

class Session;
using Sessions = std::list<std::unique_ptr<Session>>;

class Session final : private transport::Runnable,
                      private provisioning::RequestRate::Reader,
                      private SessionObjects::Owner {
 public:
  // What it has of its worker.
  struct Host {
    transport::Runner& runner;
    const SessionSettings& settings;
    const Sessions& sessions;  // of the vdevice, this one among them
    // Calls `then` once, from the loop; the error is for the program.
    std::function<void(const WantKit& wish, std::function<void(base::Result<SessionKit>)> then)>
        want_kit;
    // Called once, from the loop, when the session may be destroyed.
    std::function<void(Session*)> ended;
    // For operators; empty: nobody wants to know.
    std::function<void(pid_t, Refused::Why, provisioning::Kind)> refused = {};
  };
  [[nodiscard]] static base::Result<std::unique_ptr<Session>> start(
      base::Fd socket, std::shared_ptr<Caller> caller, std::unique_ptr<Connection> connection,
      std::shared_ptr<Vdevice> vdevice, Host host);
  // The session of a dead daemon (session_hello.cc). When all of its fabric are there, its journal
  // restores the links of all.
  [[nodiscard]] static base::Result<std::unique_ptr<Session>> adopt(
      Furnisher::Adopted from, std::unique_ptr<Connection> connection,
      std::shared_ptr<Vdevice> vdevice, Host host);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // What its connection is charged, until it is destroyed.
  void pay(provisioning::Charge connection) { charge_ = std::move(connection); }
  // Whether the program that connected has never said anything; or nothing in this time, and it is
  // not open.
  [[nodiscard]] bool is_silent() const { return !has_spoken_ && is_silent_for({}); }
  [[nodiscard]] bool is_silent_for(base::Duration time) const;
  // nullptr: it is not open yet.
  [[nodiscard]] SessionObjects* objects() const { return objects_.get(); }
  // nullptr: it is not open, or another daemon could not take it over.
  [[nodiscard]] SessionJournal* journal() const { return journal_.get(); }
  [[nodiscard]] const std::shared_ptr<Vdevice>& vdevice() const { return vdevice_; }

  // Tells the program, and flushes its queues.
  void vdevice_gone();
  // Parking: session_park.cc. `then` is called once: at once, or from the loop.
  using Then = std::function<void(base::Result<void>)>;
  void park(ParkSession::Step step, Then then);
  [[nodiscard]] bool is_detached() const { return parked_ == Parked::kDetached; }
  // Before the end of a detached one whose successor comes: its peers are not told.
  void give_way() { goodbye_ = true; }
  // Its connection, as control knows it.
  [[nodiscard]] uint64_t number() const { return connection_->number(); }
  [[nodiscard]] base::Result<void> attach(const AttachSession& message, Furnisher::Adopted from);

 private:
  using Fds = Shown;
  using Answer = SessionObjects::Answer;
  using Talk = Conversation<ipc::Request, ipc::Reply>;

  Session(base::Fd socket, std::shared_ptr<Caller> caller, std::unique_ptr<Connection> connection,
          std::shared_ptr<Vdevice> vdevice, Host host);

  bool run(transport::Turn& turn) override;
  void admitted() override { host_.runner.activate(this); }
  void answer(Answer late) override;
  [[nodiscard]] bool is_awaited() const override { return talk_.is_awaited(); }
  [[nodiscard]] const base::Fd& socket() const override { return talk_.socket(); }
  void end_malformed() override { end(true); }
  [[nodiscard]] const SessionObjects* find(const FileId& arena) const override;

  void on_socket();
  void on_doorbell();
  [[nodiscard]] base::Result<base::EventLoop::Watch> watch(const base::Fd& doorbell);
  [[nodiscard]] bool hear_again();
  void read_request();
  void on_heard(Talk::Heard heard, const ipc::Request& request, Fds fds);
  [[nodiscard]] bool comes_too_soon(const ipc::Request& request);
  [[nodiscard]] bool asks_mappings(const ipc::Request& request);
  [[nodiscard]] bool waits_for_posted(const ipc::Request& request);
  void handle(const ipc::Request& request, Fds fds);
  void note_refusal(Refused::Why why, provisioning::Kind kind = {});
  [[nodiscard]] int dispatch(const ipc::Request& request, Fds fds, Answer* answer);
  void send_answer(Answer answer);
  void end(bool malformed);
  [[nodiscard]] int resume(const ipc::Request& request);
  void go_on_at(Talk* fresh);
  [[nodiscard]] std::string name() const { return "vdevice " + vdevice_->label; }

  // session_park.cc
  void begin_to_park(Then then);
  void look_for_rest(base::TimePoint latest, Then then);
  [[nodiscard]] bool has_rest() const;
  [[nodiscard]] base::Result<void> detach();
  void go_on_parked();

  // session_hello.cc
  int probe(Answer* answer);
  int hello(const ipc::HelloRequest& request, Fds fds, Answer* answer);
  int prove(Answer* answer);
  void on_confirmed(bool found);
  void answer_proof(base::Result<SessionKit> kit);
  int open(base::Result<SessionKit> made, Answer* answer);
  [[nodiscard]] int refuse_caller(const base::Error& why);
  [[nodiscard]] base::Result<std::shared_ptr<rdma::Process>> watch(Caller::Opened opened);
  // `process`: what watch() returned.
  [[nodiscard]] int furnish(std::shared_ptr<rdma::Process> process, SessionKit& kit);
  [[nodiscard]] base::Result<void> take_over(Furnisher::Adopted from);
  [[nodiscard]] base::EventLoop& loop() const { return host_.runner.loop(); }

  bool has_spoken_ = false;
  provisioning::Charge charge_;
  const std::unique_ptr<Connection> connection_;
  const std::shared_ptr<Vdevice> vdevice_;
  const Host host_;
  Talk talk_;
  base::TimePoint heard_at_;  // of its beginning at first
  base::EventLoop::Watch death_watch_;
  base::EventLoop::Watch doorbell_watch_;  // not while the lane rests
  base::Fd doorbell_;
  // From kHello until the answer to kProve.
  struct Greeting {
    uint64_t challenge = 0, challenge_addr = 0;
    std::shared_ptr<rdma::Process> process;  // from kProve on
    Fds shown;                               // the arena that was presented
    bool cheap_fence = false;
  };
  std::unique_ptr<Greeting> greeting_;
  std::unique_ptr<SessionObjects> objects_;
  std::unique_ptr<SessionJournal> journal_;
  // A request that ends queue pairs, while they get on with what was posted before.
  struct Ending {
    ipc::Request request;
    base::TimePoint latest;
  };
  std::optional<Ending> ending_;
  enum class Parked : uint8_t { kNot, kComesToRest, kParked, kDetached };
  Parked parked_ = Parked::kNot;
  base::EventLoop::Timer rest_;      // until it has rest
  std::shared_ptr<int> resting_;     // of the present attempt to park
  base::EventLoop::Timer too_soon_;  // a request waits for its time
  bool readable_ = false;            // the socket may have something to read
  bool reads_later_ = false;         // when what is due has been done
  bool rung_ = false;                // the doorbell
  bool goodbye_ = false;
  bool over_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace vrdma::vrdmad
