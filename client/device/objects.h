// The objects of a virtual device in the program, with their process-private state.
//
// Each begins with the public struct that the program holds, so of() is a cast. Lock order:
// Cq::mutex, Context::mutex, Qp::send_mutex, Qp::poll_mutex. Qp::recv_mutex and Srq::mutex may be
// taken under any of them; under these two only the session's lock.
#pragma once

#include <infiniband/verbs.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/device/datapath/known_stretch.h"
#include "client/device/datapath/receive_reader.h"
#include "client/device/memory/table.h"
#include "client/device/session.h"
#include "core/base/mapping.h"
#include "core/base/spin_lock.h"
#include "core/ipc/bell.h"
#include "core/ipc/layout.h"
#include "core/rdma/address_space.h"
#include "core/rdma/executor.h"
#include "core/rdma/shared_receives.h"

namespace vrdma::client {

struct Context;
struct VirtualDevice;
struct Qp;
struct Cq;
struct Srq;

// The clock of completion timestamps, read when a completion is polled; in nanoseconds.
constexpr clockid_t kCompletionClock = CLOCK_MONOTONIC_RAW;

// Another process's session with which this one has direct links.
struct Peer {
  uint32_t id = 0;      // ipc::ModifyQpReply::peer
  base::Mapping arena;  // read-only
  [[nodiscard]] uint32_t key_changes() const {
    return arena.at<ipc::ArenaHeader>(0)->key_changes.load(std::memory_order_acquire);
  }
  base::Mapping bells;
  std::unique_ptr<rdma::AddressSpace> memory;
};

// A reference that keeps an object from being destroyed. Empty only if default-constructed.
class Use {
 public:
  Use() = default;
  explicit Use(std::atomic<uint32_t>* users) : users_(users) { users_->fetch_add(1); }
  Use(Use&& other) noexcept : users_(std::exchange(other.users_, nullptr)) {}
  Use& operator=(Use&& other) noexcept {
    std::swap(users_, other.users_);
    return *this;
  }
  ~Use() {
    if (users_ != nullptr) users_->fetch_sub(1);
  }
  [[nodiscard]] bool any() const { return users_ != nullptr; }

 private:
  std::atomic<uint32_t>* users_ = nullptr;
};

// A reference of an object to the memory of its context. Programs destroy objects after
// ibv_close_device, for example when a garbage collector chooses the order (pyverbs).
class Within {
 public:
  Within() = default;
  explicit Within(ibv_context* context);
  Within(Within&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
  Within& operator=(Within&& other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  ~Within();

 private:
  Context* context_ = nullptr;
};

struct Td {
  ibv_td ibv;
  Within context;
  std::atomic<uint32_t> users = 0;  // parent domains
  static Td* of(ibv_td* td) { return reinterpret_cast<Td*>(td); }
};

// A protection domain, or a parent domain, which the daemon sees as its protection domain.
struct Pd {
  ibv_pd ibv;
  Within context;
  std::atomic<uint32_t> users = 0;  // objects in it
  Use within, thread;               // of a parent domain: its protection domain and thread domain
  static Pd* of(ibv_pd* pd) { return reinterpret_cast<Pd*>(pd); }
  [[nodiscard]] bool is_parent() const { return within.any(); }
};

// Device memory, or an import of it.
struct Dm {
  ibv_dm ibv;
  Within context;
  Dm* memory = nullptr;             // this, or the imported one
  std::atomic<uint32_t> users = 0;  // memory regions and imports
  uint8_t* data = nullptr;
  size_t length = 0;
  static Dm* of(ibv_dm* dm) { return reinterpret_cast<Dm*>(dm); }
};

struct Mr {
  ibv_mr ibv;
  Within context;
  Dm* memory = nullptr;  // the device memory that it is in, or nullptr
  Use pd;
  uint64_t iova = 0;
  unsigned int access = 0;
  bool fixed = false;  // ibv_rereg_mr fails: null or imported
  ReachedMemory reached;
  static Mr* of(ibv_mr* mr) { return reinterpret_cast<Mr*>(mr); }
};

struct Mw {
  ibv_mw ibv;
  Within context;
  Use pd;
  static Mw* of(ibv_mw* mw) { return reinterpret_cast<Mw*>(mw); }
};

struct Ah {
  ibv_ah ibv;
  Within context;
  Use pd;
  ibv_ah_attr attr;
  static Ah* of(ibv_ah* ah) { return reinterpret_cast<Ah*>(ah); }
};

// channel->fd is an epoll descriptor over the read end and the session socket's hang-up.
struct Channel {
  ibv_comp_channel ibv;
  Within alive;  // holds the context
  uint32_t handle;
  base::Fd epoll;
  base::Fd read_end;  // non-blocking
  base::Fd wake;      // the write end: for completions that this process creates
  base::Fd timer;     // wakes waiting threads so that they look for a daemon, or give up
  std::atomic<bool> knows_death = false;
  std::atomic<unsigned> room = 0;      // for messages, in any case
  std::atomic<bool> was_full = false;  // since a look for what there was no room for
  // After a message was read: whether that was the last one, and there was no room before.
  [[nodiscard]] bool has_drained();
  void forget_socket(Context& context);
  void watch_socket(Context& context);
  // Wakes waiting threads after `delay`, so that they look for the daemon.
  void look_after(std::chrono::nanoseconds delay);
  static Channel* of(ibv_comp_channel* channel) { return reinterpret_cast<Channel*>(channel); }
};

struct Cq {
  ibv_cq_ex ibv;
  Within context;
  uint32_t handle;
  uint32_t slot;
  ipc::CqBell* bell;
  Use pd;  // a parent domain, or empty
  base::SpinLock mutex;
  std::vector<Qp*> queue_pairs;  // those whose sends or receives complete here
  std::vector<Srq*> shared;      // XRC SRQs that complete here
  // The round of polls: see datapath/standing.h.
  enum class Stage : uint8_t { kOver, kSends, kReceives };
  Stage stage = Stage::kOver;
  uint32_t round = 0;                 // counts them
  size_t cursor = 0;                  // the next of the round's queue pairs in this stage
  std::vector<Qp*> visited;           // with many queue pairs: those of the round
  size_t next = 0;                    // without a round: where the next poll begins
  unsigned turn = 0;                  // counts polls
  unsigned turn_of_event = UINT_MAX;  // of the last event that the program got
  // With many queue pairs: those of each mark of bell->news; else empty. Until `sweep_until` a
  // producer may have missed bell->many, so each poll checks all queue pairs.
  std::vector<std::vector<Qp*>> by_news;
  uint64_t sweep_until = 0;
  static constexpr size_t kMostActive = 4;
  std::vector<Qp*> active;              // of many: those with recent completions; capacity reserved
  bool keys_ended = false;              // by requests that this poll has found complete
  uint64_t clock = 0;                   // when a poll that found nothing last read it
  unsigned skips = 0;                   // polls that need not read it
  std::atomic<bool> requested = false;  // an event that was not given yet
  std::atomic<uint32_t> events_given = 0;
  // Between ibv_start_poll and ibv_end_poll.
  bool single_threaded = false;
  std::mutex reading;  // held by the reading thread, unless single_threaded
  ibv_wc current{};
  uint64_t wc_flags = 0;
  uint64_t current_ticks = 0, current_wallclock_ns = 0;  // if wc_flags request them
  static Cq* of(ibv_cq* cq) { return reinterpret_cast<Cq*>(cq); }
  [[nodiscard]] bool has_many() const { return !by_news.empty(); }
  // Adds or removes a queue pair that completes here; under the mutex. If join() throws, leave()
  // undoes it.
  void join(Qp* qp);
  void leave(Qp* qp);
  void announce_all();
  // This process created a completion of `qp`: marks it and wakes waiting threads.
  inline void notify(const Qp& qp, bool solicited);
  void wake(bool solicited);
};

struct Xrcd {
  ibv_xrcd ibv;
  Within context;
  uint32_t handle;
  static Xrcd* of(ibv_xrcd* xrcd) { return reinterpret_cast<Xrcd*>(xrcd); }
};

struct Srq {
  ibv_srq ibv;
  Within context;
  std::atomic<uint32_t> users = 0;  // queue pairs
  Use pd;
  uint32_t handle;
  uint32_t max_wr, max_sge, depth;
  ipc::SrqBlock* block;
  uint32_t* posted;
  uint8_t* wqes;
  ipc::SrqClaims* claims;
  base::SpinLock mutex;
  std::vector<uint64_t> wr_ids;  // by slot
  std::vector<bool> in_use;      // by slot: posted, and its completion not polled
  std::vector<uint32_t> free;    // free slots; at most max_wr slots are in use
  uint32_t head = 0;
  // For an XRC SRQ: its number, and the CQ of its receives.
  uint32_t srqn = 0;
  Cq* cq = nullptr;
  ReceiveReader inbox;        // under Cq::mutex
  uint32_t receives_due = 0;  // the same: see datapath/standing.h
  std::atomic<uint32_t> events_given = 0;
  // Returns the wr_id of a completed receive and frees its slot. False: it was not posted.
  bool take(uint32_t slot, uint64_t* wr_id);
  static Srq* of(ibv_srq* srq) { return reinterpret_cast<Srq*>(srq); }
};

// The fields of a posted request that poll needs.
struct PostedSend {
  uint64_t wr_id;
  uint8_t opcode;  // verbs::Opcode
  bool signaled;
};

constexpr auto kGsiQp = static_cast<ibv_qp_type>(verbs::QpType::kGsi);  // has no name in verbs.h

// Copies of the peer's posted receives [begin, end). Those with one element; others have length 0.
// A posted receive does not change, so each cache line is fetched once.
struct ReceivesAhead {
  static constexpr uint32_t kMost = 16;
  uint32_t begin = 0, end = 0;
  verbs::Sge sges[kMost];  // by number % kMost
  [[nodiscard]] const verbs::Sge* find(uint32_t number) const {
    return number - begin < end - begin ? &sges[number % kMost] : nullptr;
  }
};

// The peer of a direct link.
struct Direct {
  std::shared_ptr<Peer> peer;
  const ipc::QpBlock* block = nullptr;  // the peer's
  rdma::Responder responder;            // without access and the next receive
  rdma::KnownRegion known_remote;       // of the peer's regions
  KnownStretch target, receive;         // in the peer's regions, cached by plain.cc
  ReceivesAhead ahead;
  rdma::SharedReceives shared;      // the peer's SRQ, if it has one
  uint32_t link = 0;                // identifies us in its claims
  ipc::RecvRing* outbox = nullptr;  // ours
  uint32_t outbox_depth = 0;
  ipc::CqBell* bell = nullptr;  // of the peer's receive CQ
  uint32_t bell_slot = 0;
  base::Fd wake;  // the peer's channel, if it has one
};

// Requests between ibv_wr_start and ibv_wr_complete (extended_qp.cc).
struct Batch;
struct BatchDeleter {
  void operator()(Batch* batch) const;
};

struct Flow {
  ibv_flow ibv;
  Within context;
  static Flow* of(ibv_flow* flow) { return reinterpret_cast<Flow*>(flow); }
};

struct Qp {
  ibv_qp_ex ibv;
  Within alive;  // holds `context`
  Context* context;
  uint32_t slot;
  bool sq_sig_all;
  Use pd, srq;
  uint32_t pd_handle;
  ibv_qp_cap cap;
  uint32_t sq_depth, rq_depth, send_stride;
  ipc::QpBlock* block;
  uint8_t* sq;
  ipc::SendResult* results;
  uint8_t* rq;
  std::atomic<uint32_t> events_given = 0;
  // The state as this process knows it before the daemon answers.
  enum class Own : uint8_t {
    kNothing,
    kDraining,  // the change to SQD is in progress
    kFailing,   // the daemon was told to change to ERR, and has not answered
    kFailed,    // given up after the daemon's death: like ERR
  };
  std::atomic<Own> own = Own::kNothing;

  // Guards the next six, and execution on the direct link. `direct` changes only under send_mutex,
  // the receive CQ's mutex and the context's mutex together, so that any one of them suffices for
  // reading.
  base::SpinLock send_mutex;
  uint32_t sq_head = 0;
  bool owns_token = false;
  std::unique_ptr<Direct> direct;
  bool may_read = false;    // max_rd_atomic > 0: READ and atomics may begin
  rdma::KnownRegion known;  // of this process's regions
  KnownStretch source;      // the same, cached by plain.cc

  // Guards the next two; the posted entries in [polled, sq_tail) are settled.
  base::SpinLock poll_mutex;
  std::atomic<uint32_t> polled = 0;
  std::atomic<bool> keys_ended = false;  // by requests that no poll saw: see free_unsignaled()
  std::vector<PostedSend> posted;        // by slot

  base::SpinLock recv_mutex;  // guards the next two
  uint32_t rq_head = 0;
  std::vector<uint64_t> recv_wr_ids;  // by slot
  // Cq::mutex of the receive CQ guards the next six.
  std::atomic<uint32_t> rq_polled = 0;
  ReceiveReader inbox;          // written by the daemon; all of it precedes what is in the next
  ReceiveReader from_peer;      // the outbox of the peer of a direct link
  uint32_t receives_due = 0;    // of this round: see datapath/standing.h
  bool flushes_due = false;     // receives_due contains some that will not arrive
  uint32_t receives_round = 0;  // that visited it last
  // That of the send CQ the next four.
  uint32_t sends_due = 0;    // of this round: those before this one
  bool errors_due = false;   // also those that failed
  uint32_t sends_round = 0;  // that visited it last
  uint32_t waited_for = 0;   // plus 1: the request whose result did not come in time

  std::unique_ptr<ipc::QpBlock> own_block;  // for an XRC target

  std::unique_ptr<Batch, BatchDeleter> batch;  // if created with send_ops_flags

  static Qp* of(ibv_qp* qp) { return reinterpret_cast<Qp*>(qp); }
  [[nodiscard]] Cq* send_cq() const { return Cq::of(ibv.qp_base.send_cq); }
  // An XRC initiator receives nothing and may have no receive CQ.
  [[nodiscard]] Cq* recv_cq() const {
    return ibv.qp_base.recv_cq != nullptr ? Cq::of(ibv.qp_base.recv_cq) : send_cq();
  }
  [[nodiscard]] verbs::QpState state() const {
    if (has_failed()) return verbs::QpState::kErr;
    return static_cast<verbs::QpState>(block->state.load(std::memory_order_acquire));
  }
  [[nodiscard]] bool has_results() const {
    return block->sq_tail.load(std::memory_order_acquire) != polled.load(std::memory_order_relaxed);
  }
  // Posted and not polled, whether they are complete or not.
  [[nodiscard]] bool has_outstanding_sends() const {
    return block->sq_head.load(std::memory_order_acquire) != polled.load(std::memory_order_relaxed);
  }
  // Of a receive queue of its own.
  [[nodiscard]] uint32_t outstanding_receives() const {
    if (ibv.qp_base.srq != nullptr) return 0;
    return block->rq_head.load(std::memory_order_acquire) -
           rq_polled.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool has_receives() const { return from_peer.stands() || inbox.stands(); }
  // Receives that arrived and were not polled, at most `most`. What is counted first of the peer's
  // has all of the worker's before it.
  [[nodiscard]] uint32_t receives_standing(uint32_t most) const {
    uint32_t peers = 0, workers = 0;
    while (peers < most && from_peer.stands(peers)) ++peers;
    while (peers + workers < most && inbox.stands(workers)) ++workers;
    return peers + workers;
  }
  // In an error state: nothing arrives by way of the daemon any more. When that comes true the
  // daemon wakes the CQs; a dead one writes nothing.
  [[nodiscard]] bool may_flush() const {
    return has_failed() || block->arriving.load(std::memory_order_acquire) == 0;
  }
  [[nodiscard]] bool has_failed() const {
    return own.load(std::memory_order_relaxed) == Own::kFailed;
  }
  // True if the state permits this process to execute.
  [[nodiscard]] bool may_execute() const {
    return own.load(std::memory_order_relaxed) == Own::kNothing &&
           block->state.load(std::memory_order_acquire) ==
               static_cast<uint32_t>(verbs::QpState::kRts);
  }
};
inline void Cq::notify(const Qp& qp, bool solicited) {
  ipc::announce(*bell, qp.ibv.qp_base.qp_num);
  if (ibv.channel != nullptr) wake(solicited);
}
static_assert(offsetof(Qp, ibv) == 0 && offsetof(Cq, ibv) == 0);

struct Context {
  verbs_context verbs;  // first: programs hold &verbs.context
  Session session;
  base::Mapping arena;
  base::Mapping bells;
  base::Fd bell_file;    // kept, like the arena's, for a daemon that takes over
  base::Fd arena_file;   // if cmd_fd is that of another context: see import_device()
  base::Fd events_wake;  // the write end of async_fd
  std::unique_ptr<rdma::AddressSpace> own = rdma::AddressSpace::own();
  base::Fd doorbell;
  bool cheap_fence = false;
  uint32_t grace_ms = 0;
  uint64_t node_guid = 0;
  verbs::Capabilities capabilities{};
  size_t dm_used = 0;               // bytes; device_memory.cc guards it
  std::atomic<uint32_t> users = 1;  // the program until ibv_close_device, and its objects
  VirtualDevice* device = nullptr;  // a held reference

  // Held from a request that creates or destroys an object of these tables until its entry is made
  // or gone, because the daemon gives a number again at once. Precedes all other locks.
  std::mutex numbers_mutex;
  std::mutex mutex;                         // guards the tables
  std::unordered_map<uint32_t, Qp*> qps;    // by handle
  std::unordered_map<uint32_t, Cq*> cqs;    // by slot
  std::unordered_map<uint32_t, Srq*> srqs;  // by handle
  std::unordered_map<uint32_t, std::weak_ptr<Peer>> peers;
  bool forks = false;  // a fork has the mutex: see begin_fork()

  std::mutex events_mutex;    // held while reading async_fd; leaf lock
  std::mutex channels_mutex;  // leaf lock
  std::vector<Channel*> channels;

  std::atomic<uint64_t> checked_at = 0;    // when a poll last checked the daemon
  std::atomic<int64_t> died_at_ms = 0;     // 0: the daemon is alive
  std::atomic<int64_t> tried_at_ms = 0;    // when this process last looked for another daemon
  std::atomic<uint32_t> silent_epoch = 0;  // of a daemon that took over and has not answered
  std::atomic<int64_t> silent_since_ms = 0;
  std::atomic<bool> given_up = false;  // mediated work was flushed
  std::atomic<bool> resumed = false;   // another daemon took over; it lacks the waiting work

  Context() {
    std::memset(static_cast<void*>(&verbs), 0, sizeof verbs);
    verbs.context.cmd_fd = verbs.context.async_fd = -1;
  }
  ~Context();
  void close_descriptors();  // those in verbs
  static Context* of(ibv_context* context) {
    return reinterpret_cast<Context*>(reinterpret_cast<char*>(context) -
                                      offsetof(verbs_context, context));
  }
  [[nodiscard]] ibv_context* ibv() { return &verbs.context; }
  [[nodiscard]] const ipc::KeyEntry* keys() const {
    return arena.at<ipc::KeyEntry>(ipc::kKeyOffset);
  }
  [[nodiscard]] rdma::Memory memory() const { return {rdma::Keys(keys()), own.get()}; }
  // Notifies the daemon that queue pair `slot` has work.
  void ring(uint32_t slot);
  void ring();

  // Checks for the daemon's death. Then direct links continue, and other work waits grace_ms for
  // another daemon before it is flushed.
  void check_daemon();
  // Without a daemon: between two attempts to reach one. An eighth of the time that it is gone, so
  // that work waits little longer than it must, and a long wait costs few attempts.
  [[nodiscard]] std::chrono::milliseconds pause() const;
  void daemon_died(uint32_t epoch);  // of the daemon with that epoch
  void give_up(bool refused);        // `refused`: a daemon said that the session does not exist
  void go_on();
  void replace_socket(base::Fd socket);  // callback of Session::resumable()
  [[nodiscard]] Asker asker() { return {session, *arena.at<ipc::HoldWords>(ipc::kHoldOffset)}; }
  [[nodiscard]] ipc::Word& daemon_epoch() const { return arena.at<ipc::ArenaHeader>(0)->epoch; }
};

inline Within::Within(ibv_context* context) : context_(Context::of(context)) {
  context_->users.fetch_add(1);
}
inline Within::~Within() {
  if (context_ != nullptr && context_->users.fetch_sub(1) == 1) delete context_;
}

// ends.cc: a link, or the keys of the memory [addr, addr + length), ended before the call. After it
// no peer stores there any more by a direct link. Waits for what a peer executes; if that takes too
// long, because the peer was stopped, takes the pages away from it. With neither Context::mutex nor
// Qp::poll_mutex held.
void wait_for_initiator(Qp& qp);
void wait_for_initiators(Context& context, uint64_t addr = 0, uint64_t length = UINT64_MAX);
// region.cc: see client/verbs/shortcuts.h.
int show_memory(ibv_context* context, std::span<const int> files);
ibv_mr* reg_shown_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access);
// Tries it once: for a poll, which can try again. False: a peer may still store.
[[nodiscard]] bool try_to_outlast_initiator(Qp& qp);

// Execution by this process (direct.cc). Called with send_mutex held.
bool take_token(Qp& qp);  // true: this process executes
void pump(Qp& qp);        // executes waiting requests of the ring while it holds the token
bool execute(Qp& qp, rdma::WorkRequest& request);  // true: done and its result published
// plain.cc: posts and executes the requests at the beginning of the list that qualify for the fast
// path. Returns the rest; nullptr: none.
ibv_send_wr* execute_plainly(Qp& qp, ibv_send_wr* wr);
// post.cc: frees the slots of unsignaled requests that succeeded, which no poll may ever do. If one
// of them has ended a key, the next poll waits for peers that still store, as if it had found it.
void free_unsignaled(Qp& qp);
// How many more requests may be posted.
[[nodiscard]] inline uint32_t room_of(Qp& qp) {
  const auto room = [&] {
    return qp.cap.max_send_wr - (qp.sq_head - qp.polled.load(std::memory_order_acquire));
  };
  if (const uint32_t now = room(); now != 0) return now;
  free_unsignaled(qp);
  return room();
}
void hand_over(Qp& qp);  // to the worker; without a daemon the token stays
// After the death of the daemon with that epoch: takes the token back, unless another daemon has
// it.
void reclaim(Qp& qp, uint32_t epoch);

// Drop the unread events of a destroyed object (async_events.cc).
void drop_events_of_qp(Context& context, uint32_t handle);
void drop_events_of_srq(Context& context, uint32_t handle);

// The extended polling interface, on top of ibv_poll_cq (extended_cq.cc).
bool extended_flags_known(const ibv_cq_init_attr_ex& attr);
void set_extended_ops(Cq& cq, const ibv_cq_init_attr_ex& attr);

// The extended posting interface. False: `send_ops` contains an unsupported operation.
bool set_extended_ops(Qp& qp, ibv_qp_type type, uint64_t send_ops);
// Checks whether the whole list could be posted now; the errno of ibv_post_send if not (post.cc).
int check_sends(Qp& qp, const ibv_send_wr* wr);

// ibv_create_qp_ex of an XRC target (xrc.cc).
ibv_qp* create_target(ibv_context* context, const ibv_qp_init_attr_ex& attr);

// True if a poll would find a completion now; under Cq::mutex (poll.cc).
[[nodiscard]] bool would_find(Cq& cq);

// Returns the slots of receives that arrived from an SRQ and were not polled. The queue pair must
// have left its completion queues (standing.cc).
void discard_receives(Qp& qp);

// Completes requests of a queue pair in an error state that the daemon will not complete
// (flush.cc).
void flush_sends(Qp& qp);
int flush_receives(Qp& qp, int count, ibv_wc* wc);

}  // namespace vrdma::client
