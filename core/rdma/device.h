// What a verbs device *is*, on the daemon's side: a fabric, its devices, each process's context on
// a device, and the objects in it.
//
// All of one fabric belongs to one thread. Handles of a context's objects start at 1 and are
// checked at each use: they come from the tenant. Pointers between objects are plain; the order of
// destruction (verbs' own: EBUSY while in use) and Context's destructor keep them sound.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/mapping.h"
#include "core/base/unique_numbers.h"
#include "core/ipc/layout.h"
#include "core/ipc/messages.h"
#include "core/rdma/arena_heap.h"
#include "core/rdma/buffers.h"
#include "core/rdma/executor.h"
#include "core/rdma/handles.h"
#include "core/rdma/key_record.h"
#include "core/rdma/link.h"
#include "core/rdma/notes.h"
#include "core/rdma/process.h"
#include "core/rdma/qp_numbers.h"
#include "core/rdma/sender.h"
#include "core/rdma/shared_receives.h"
#include "core/rdma/traffic.h"
#include "core/verbs/gid.h"

namespace vrdma::rdma {

struct Context;
struct Device;
struct Qp;
struct Srq;
struct XrcDomain;
class Fabric;

// Which Ethernet frames a raw packet queue pair receives: those whose first bytes are `value`
// wherever `mask` has a bit. A frame that ends before the mask does is none of them.
struct Flow {
  uint32_t handle = 0;
  Qp* qp = nullptr;
  ipc::FlowMatch match{};
  [[nodiscard]] bool matches(const uint8_t* frame, size_t length) const;
};

// Where a raw packet queue pair's frames come from and go to; transport/ implements it.
class FramePort {
 public:
  virtual ~FramePort() = default;
  virtual base::Result<void> flows_changed() = 0;              // Qp::flows did
  virtual void take(const uint8_t* frame, size_t length) = 0;  // receives it if a flow matches
};

// What an object was charged to the vdevice's quota; destroyed with the object.
using Charges = std::vector<std::shared_ptr<void>>;

// What was imported: an object of the context with this id, while both are there.
struct Origin {
  uint32_t context = 0;  // 0: it was not imported
  uint32_t handle = 0;
  uint32_t key = 0;  // of a memory region
};

struct Pd {
  uint32_t handle = 0;
  uint32_t users = 0;
  Origin origin;
  Charges charges;
};

// A memory region; `region` is what its key says, as the daemon believes it.
struct Mr {
  uint32_t handle = 0;
  uint32_t key = 0;
  Pd* pd = nullptr;
  Region region;
  uint32_t windows = 0;  // bound to it
  Origin origin;
  Charges charges, bytes;
};

// Whether `mr` of context `exporter` is in the domain that `pd` is, or was imported from.
inline bool shares_domain(const Mr& mr, uint32_t exporter, const Pd& pd) {
  if (pd.origin.context == 0) return mr.pd == &pd;
  return pd.origin.context == exporter && pd.origin.handle == mr.pd->handle;
}

// A memory window: see window.h.
struct Mw {
  uint32_t handle = 0;
  uint32_t key = 0;  // as last bound; the slot stays, the tag changes
  bool type_2 = false;
  Pd* pd = nullptr;
  Mr* mr = nullptr;  // bound to it
  Qp* qp = nullptr;  // of type 2: bound by way of it
  Charges charges;
};

// A completion channel, of which the program holds the read end (core/ipc/event_ends.h).
struct Channel {
  uint32_t handle = 0;
  uint32_t users = 0;
  base::Fd write_end;
};

struct Cq {
  uint32_t handle = 0;
  uint32_t slot = 0;
  uint32_t cqe = 0;
  uint32_t users = 0;
  const Context* context = nullptr;
  ipc::CqBell* bell = nullptr;
  Channel* channel = nullptr;
  uint32_t untold = 0;  // published by this daemon, each of which has its telling before it
  bool missed = false;  // there was something to tell while the context was parked
  Charges charges;

  // Around a publication and its notify(). A program that looks after a takeover for what a dead
  // daemon has not told leaves to this one what it is about to tell.
  void begin_telling();
  void end_telling();
  // Tells the program that a completion was published, if it asked to be told. To be called after
  // the publication.
  void notify(bool solicited);
  // The same for a completion of queue pair `qpn`, of which a poll learns by this.
  void notify(uint32_t qpn, bool solicited);
  // The same after the death of a program that may have published one and not told, or begun to.
  void notify_untold(uint32_t qpn);
};

// One process's use of an XRC domain (xrc.h).
struct Xrcd {
  uint32_t handle = 0;
  uint32_t users = 0;
  std::shared_ptr<XrcDomain> domain;
  Charges charges;
};

// One process's use of an XRC target queue pair.
struct Target {
  uint32_t handle = 0;
  Qp* qp = nullptr;
  Xrcd* xrcd = nullptr;
  Charges charges;
};

struct Srq {
  uint32_t handle = 0;
  uint32_t users = 0;
  uint32_t max_wr = 0, max_sge = 0, depth = 0;
  Pd* pd = nullptr;
  Context* context = nullptr;
  ArenaHeap::Range range, claims_range;
  ipc::SrqBlock* block = nullptr;
  uint32_t returned_head = 0;  // ours
  uint32_t limit = 0;          // 0: disarmed
  SharedReceives receives;
  std::vector<uint32_t> kept_back;  // given back while the context was parked: slots
  std::list<Sender*> waiters;
  std::shared_ptr<int> alive = std::make_shared<int>(0);
  // Of an XRC SRQ: where its receives complete.
  Xrcd* xrcd = nullptr;
  uint32_t srqn = 0;
  Cq* cq = nullptr;
  ipc::RecvRing* inbox = nullptr;
  uint32_t inbox_head = 0;        // ours: entries delivered
  uint32_t inbox_taken_over = 0;  // of these, by a dead daemon
  Charges charges;

  // Where another daemon had it; 0: anywhere.
  struct Places {
    uint64_t block, claims;
  };
  // Makes its rings and claims in the owner's memory, for at least max_wr receives of max_sge
  // elements; an inbox too if it is of an XRC domain.
  [[nodiscard]] base::Result<void> make(Context& owner, Pd& in, bool with_inbox, Places at = {});

  // Completes a receive of an XRC SRQ.
  void publish(const ipc::RecvEntry& entry);
  void tell(const ipc::RecvEntry& entry);
  // Takes the next receive out of the queue for a worker, to complete it at `receiver`; null: in
  // the SRQ's inbox.
  [[nodiscard]] Outcome claim(Receive* receive, const Qp* receiver = nullptr);
  // One that was claimed is completed.
  void completed(uint32_t slot) const;
  // Gives back one that was claimed and will not be completed; to a parked program, which may be on
  // disk already, when it is resumed.
  void give_back(uint32_t slot);
  // For those that may outlive it.
  [[nodiscard]] std::weak_ptr<Srq> weak() { return std::shared_ptr<Srq>(alive, this); }
  // A daemon died while it did so: it must be done again.
  [[nodiscard]] bool is_half_returned(uint32_t slot) const;
  // Arms the limit event, or disarms it with 0. It is raised at a claim, not by what is the case
  // already.
  void set_limit(uint32_t fewer_than);
  // Raises the limit event if it is armed and due.
  void check_limit();
};

// The outbox in the arena of `initiator` that stands at `offset`: after a daemon's death.
[[nodiscard]] base::Result<std::shared_ptr<Outbox>> restore_outbox(Context& initiator,
                                                                   uint64_t offset, uint32_t depth);

struct Qp;
// While it lives, this daemon changes the state of a queue pair and tells the CQs in which
// something stands because of that: see Cq::begin_telling().
class Telling {
 public:
  explicit Telling(const Qp& qp);
  ~Telling();
  Telling(const Telling&) = delete;
  Telling& operator=(const Telling&) = delete;

 private:
  const Qp& qp_;
};

// What may still store by way of a queue pair: as long as it lives.
class Arrivals {
 public:
  explicit Arrivals(Qp& qp);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;
  void give_back_after(Srq& srq, uint32_t slot) { receives_.emplace_back(srq.weak(), slot); }

 private:
  Qp& qp_;
  std::weak_ptr<int> alive_;  // of `qp_`
  std::vector<std::pair<std::weak_ptr<Srq>, uint32_t>> receives_;
};

struct Qp {
  uint32_t handle = 0;
  Context* context = nullptr;
  verbs::QpType type{};
  uint32_t qpn = 0;
  verbs::QpAttributes attributes{};
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
  uint32_t max_send_sge = 0, max_recv_sge = 0, max_inline = 0, send_stride = 0;
  uint32_t sq_depth = 0, rq_depth = 0, inbox_depth = 0;
  ArenaHeap::Range range;
  uint64_t block_offset = 0, rq_offset = 0;
  ipc::QpBlock* block = nullptr;
  const uint8_t* sq = nullptr;
  ipc::SendResult* results = nullptr;
  ipc::RecvRing* inbox = nullptr;
  uint32_t inbox_head = 0;        // ours: entries delivered
  uint32_t inbox_taken_over = 0;  // of these, by a daemon before us
  ReceiveQueue receives;

  verbs::Gid sgid{};                 // our own, of the path; set at RTR
  uint32_t receiving = 0;            // datagrams on their way into memory that has to be reached
  std::weak_ptr<Arrivals> arrivals;  // see arrival()
  Link link;

  std::unique_ptr<Sender> sender;  // none: connected, and never in RTR; or an XRC target
  std::list<Sender*> waiters;      // for a receive
  std::vector<verbs::Gid> groups;
  std::unique_ptr<FramePort> frames;  // this and the next: of a raw packet queue pair
  std::vector<const Flow*> flows;

  // Of an XRC target: it belongs to all of `openers`; `context` is that of one of them.
  XrcDomain* domain = nullptr;
  struct Opener {
    Context* context;
    uint32_t handle;
  };
  std::vector<Opener> openers;
  std::unique_ptr<ipc::QpBlock> own_block;
  uint32_t changes = 0;  // of an XRC target, so far: each opener's journal has it in some state

  std::shared_ptr<int> alive = std::make_shared<int>(0);  // until RESET or destruction
  uint32_t windows = 0;                                   // of type 2, bound by way of it
  bool failed_send = false;          // a request has failed, and its CQ was not told yet
  struct Counted {                   // by the device's counters
    base::Counter* state = nullptr;  // null: it is none of the device's queue pairs
    base::Counter* link = nullptr;
  };
  Counted counted;
  DirectCount direct_count;
  // What its program and workers executed since it was made, or since its worker took it over.
  Traffic by_program, by_worker;
  Charges charges;

  // Adds what the program did by itself since the last time to the device's counters, and to the
  // port of the peer that it is linked to.
  void collect_direct();
  // Counts requests that crossed the device's port, and the port of the peer if there is a link to
  // one of this daemon (see PortTraffic::exchange).
  void count_exchange(const Traffic& all, const Traffic& reads) const;
  [[nodiscard]] verbs::QpState state() const {
    return static_cast<verbs::QpState>(attributes.state);
  }
  void set_state(verbs::QpState state);
  // After its state, its link or a reason to mediate changed: counts it where it belongs now.
  void count_again();
  [[nodiscard]] bool can_send() const {
    return state() == verbs::QpState::kRts || state() == verbs::QpState::kSqd;
  }
  [[nodiscard]] bool is_in_error() const {
    return state() == verbs::QpState::kErr || state() == verbs::QpState::kSqe;
  }
  [[nodiscard]] bool can_receive() const {
    return state() >= verbs::QpState::kRtr && state() <= verbs::QpState::kSqe;
  }
  [[nodiscard]] Memory memory() const;
  [[nodiscard]] verbs::Gid dgid() const;  // of the path; set at RTR
  [[nodiscard]] uint32_t dest_qpn() const {
    return link.remote ? link.remote->qpn : attributes.dest_qpn;
  }
  // A connected queue pair gets the sender that fits its link (Device::choose_sender). What the one
  // before had in hand is begun anew.
  void choose_sender();
  // Of the memory that receives name.
  [[nodiscard]] const Pd& receive_pd() const { return srq != nullptr ? *srq->pd : *pd; }
  std::list<Sender*>& receive_waiters() { return srq != nullptr ? srq->waiters : waiters; }

  // Whether the program may carry out requests by itself.
  [[nodiscard]] bool runs_direct() const;
  // Whether there is a link, and both ports are up: of a remote one, our own.
  [[nodiscard]] bool carries() const;

  // How many receives were completed: of a receive queue of its own, the number of the next one.
  [[nodiscard]] uint32_t completed_receives() const {
    return link.in_direct ? link.peer_outbox->ring->head.load(std::memory_order_relaxed)
                          : inbox_head;
  }
  // Completes a receive with `entry`. Of a receive queue of its own, that is the next one. Then the
  // CQ must be told.
  void publish(const ipc::RecvEntry& entry);
  void tell(const ipc::RecvEntry& entry);
  void deliver(const ipc::RecvEntry& entry) {
    publish(entry);
    tell(entry);
  }
  // In SQD, when its sender is drained: the draining is over, which is said if it was asked for.
  void note_drained();
  // Gives back the receive that the program claimed at the peer's SRQ and will not complete, for it
  // is dead or has forgotten the link.
  void settle_claim();
  // Held by whatever writes to memory by way of this queue pair and outlasts a turn of the loop: a
  // job of a reach. In an error state the program flushes nothing before the last one has gone.
  [[nodiscard]] std::shared_ptr<Arrivals> arrival();
  // Gives a receive back that was claimed of `from` and will not be completed here: at once, or
  // when nothing arrives any more, because the next message may take it.
  void give_back(Srq& from, uint32_t slot);
  // To ERR, with both CQs told and the peer's link cut. An `event` other than none is raised.
  void fail();
  // In an error state: tells the CQs in which something stands because of that. What is posted
  // later, its owner tells.
  void tell_flush();
  // In an error state, of a request that failed there: tells the send CQ alone.
  void tell_failed_send();
  void raise(verbs::Event event);
  void changed();  // see Context::on_qp_changed

 private:
  friend class Arrivals;
};

// One process's use of a device.
struct Context final : Imports {
  Device* device = nullptr;
  uint32_t id = 0;  // of all contexts of the daemon
  std::shared_ptr<Process> process;
  base::Fd arena_fd;
  base::Fd arena_read_only;  // the same, for peers
  std::shared_ptr<base::Mapping> arena;
  base::Fd bell_fd;
  base::Mapping bells;
  std::shared_ptr<ArenaHeap> heap;
  std::shared_ptr<ArenaHeap> claims_heap;  // in the bell file
  base::Fd events;                         // write end (core/ipc/event_ends.h)
  static constexpr size_t kMostUnsentEvents = 8192;
  std::deque<ipc::EventMessage> unsent_events;  // for which there was no room
  // send_events() must be called again, soon.
  std::function<void()> on_unsent_events;
  Handles<Pd> pds;
  Handles<Mr> mrs;
  Handles<Mw> mws;
  Handles<Channel> channels;
  Handles<Cq> cqs;
  Handles<Srq> srqs;
  Handles<Qp> qps;
  struct Ah {
    uint32_t handle = 0;
    Charges charges;
  };
  Handles<Ah> ahs;
  Handles<Xrcd> xrcds;
  Handles<Target> targets;
  Handles<Flow> flows;
  KeyRecord key_record;
  Charges charges;
  std::function<void()> on_corrupt;  // a ring's index is impossible: the session must end
  // The following may be empty.
  // The attributes, links or groups of the queue pair with this handle have changed.
  std::function<void(const Qp&, uint32_t handle)> on_qp_changed;
  std::function<void(const Mw&)> on_window_changed;  // it was bound or unbound
  // A worker is about to claim a receive, to complete it at `receiver`; null: in the SRQ's inbox.
  std::function<void(const Srq&, uint32_t slot, const Qp* receiver)> on_claim;
  std::function<void(const Srq&, uint32_t slot)> on_claim_over;  // no worker holds it any more
  Notes* notes = nullptr;  // of its queue pairs; null: nobody takes them over
  uint32_t epoch = 0;      // of this daemon, as its worker's tokens have it
  bool parked = false;     // see parking.h

  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  uint32_t exporter = 0;  // id of the context from which this one may import; 0: itself

  // The table of which the program reads what its keys name. Only written here.
  [[nodiscard]] ipc::KeyEntry* keys() const { return arena->at<ipc::KeyEntry>(ipc::kKeyOffset); }
  [[nodiscard]] Memory memory() const {
    return {Keys(key_record), process->space(), process.get(), this};
  }
  // A key that nothing has, and its slot for `object`; 0: there is no more.
  [[nodiscard]] uint32_t take_key(KeyRecord::Object object);
  // The same for this very key, or another one if its slot is taken.
  [[nodiscard]] uint32_t take_key(KeyRecord::Object object, uint32_t wanted);
  // What `key` names from now on, for workers and for programs; nullptr: nothing.
  void set_key(uint32_t key, const Region* region);
  // Its slot is free again.
  void give_back_key(uint32_t key) { key_record.give_back(key); }
  [[nodiscard]] Context* find_exporter() const;
  [[nodiscard]] bool resolve(uint32_t key, Region* region, Memory* owner) const override;
  // May the two processes write into each other's registered memory without the daemon?
  [[nodiscard]] bool trusts(const Context& other) const {
    return why_not_trusted(other) == NotDirect::kNone;
  }
  [[nodiscard]] NotDirect why_not_trusted(const Context& other) const;
  void raise(verbs::Event event, uint32_t object);
  void send_events();
  // The queue pair of a handle, XRC targets included; or nullptr.
  [[nodiscard]] Qp* find_qp(uint32_t handle) const;
  void destroy_qp(Qp& qp);
  void destroy_srq(Srq& srq);
  void reset_qp(Qp& qp);
};

struct Device {
  explicit Device(std::shared_ptr<DeviceCounters> counts_in = std::make_shared<DeviceCounters>())
      : counters(*counts_in), kept_counters(std::move(counts_in)) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::string name;
  std::string tenant;
  verbs::Capabilities capabilities = verbs::kSoftCapabilities;
  Fabric* fabric = nullptr;
  uint64_t island = 0;           // see is_near()
  uint64_t node_guid = 0;        // big-endian
  std::vector<verbs::Gid> gids;  // by index; the unspecified one: an empty entry. See gid/layout.h
  std::unordered_map<uint32_t, Qp*> qps;
  std::unique_ptr<QpNumbers> qp_numbers = std::make_unique<QpNumbers>();  // never null; of `qps`
  std::vector<Qp*> raw_qps;                                               // those of raw packets
  std::list<Context*> contexts;  // add() and remove() change it
  // Those that are named by a file, by its device and inode.
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<XrcDomain>> xrc_domains;
  uint32_t mtu = 0;  // bytes of the netdev
  uint32_t ifindex = 0;
  std::optional<std::array<uint8_t, 6>> mac;  // none: the netdev's frames are not of Ethernet
  DeviceCounters& counters;
  const std::shared_ptr<DeviceCounters> kept_counters;
  // How many of its queue pairs are attached to a multicast group. Fabric::attach() changes it.
  std::unordered_map<verbs::Gid, uint32_t> groups;
  // The first of them has attached to the group, or the last has detached; empty: nobody asks.
  std::function<void(const verbs::Gid& group, bool joined)> on_group;
  // Makes the sender of a connected queue pair for its link as it is; empty: it has none.
  std::function<std::unique_ptr<Sender>(Qp&)> choose_sender;
  Pace* pace = nullptr;                   // none: as fast as it goes
  Buffers* buffers = nullptr;             // none: nobody counts
  MediatedBecause mediated_because;       // none: programs execute on direct links
  std::shared_ptr<base::CpuMeter> meter;  // pays for what its requests make others' reaches do

  [[nodiscard]] bool port_active() const { return !mediated_because.has(Mediated::kPortDown); }
  // The largest RoCE payload in one packet of the netdev, in bytes: 256, 512, ... 4096.
  [[nodiscard]] uint32_t roce_mtu() const;
  void add(Context* context);
  void remove(Context* context);
  // A new one; see QpNumbers.
  [[nodiscard]] uint32_t take_qpn(Qp* qp);
  // That very one. False: it is another's, or QpNumbers::keep() refuses it.
  [[nodiscard]] bool take_qpn(Qp* qp, uint32_t qpn);
  void free_qpn(uint32_t qpn);
  [[nodiscard]] Qp* find_qp(uint32_t qpn) const;
  [[nodiscard]] bool owns(const verbs::Gid& gid) const;
  // Of devices of one fabric: whether memory leads from one to the other. If not, the network does.
  [[nodiscard]] bool is_near(const Device& other) const { return island == other.island; }
  // Whether a path may begin there: the entry is not empty.
  [[nodiscard]] bool has_gid(size_t index) const;

 private:
  [[nodiscard]] bool add(Qp* qp, uint32_t qpn);  // false: it is another's
};

inline void Qp::count_exchange(const Traffic& all, const Traffic& reads) const {
  PortTraffic* const peer = link.out != nullptr && link.out->context != nullptr
                                ? &link.out->context->device->counters.traffic.port
                                : nullptr;
  PortTraffic::exchange(context->device->counters.traffic.port, peer, all, reads);
}

// The address domain: who can meet whom.
class Fabric {
 public:
  explicit Fabric(std::string name,
                  std::shared_ptr<FabricCounters> counts_in = std::make_shared<FabricCounters>())
      : counters(*counts_in), name_(std::move(name)), counters_(std::move(counts_in)) {}
  [[nodiscard]] const std::string& name() const { return name_; }
  void add(Device* device);
  void remove(Device* device);
  // The same of a device with parked contexts: peers find them until forget_parked().
  void remove_parked(Device* device);
  void forget_parked(const Device* device);
  // Replaces the device's GIDs; queue pairs that use one that went are moved to ERR, and counted in
  // the result.
  size_t set_gids(Device* device, std::vector<verbs::Gid> gids);
  // Takes the direct links from and to the device to a worker, or gives them back when there is no
  // reason any more, at either end. Links from and to a port that is down carry nothing: requests
  // wait as for a peer that does not answer.
  void mediate(Device* device, Mediated reason, bool holds);
  void tell_links(const Context& context);  // both ends of each learn who executes there now
  [[nodiscard]] Device* find(const verbs::Gid& gid) const;
  [[nodiscard]] Qp* find(const verbs::Gid& gid, uint32_t qpn) const;
  // The device with that GID, if memory leads to it from `device`.
  [[nodiscard]] Device* near(const Device& device, const verbs::Gid& gid) const;

  // Makes and cuts the links of `qp` in both directions as the states now demand.
  void relink(Qp& qp);
  void cut(Qp& qp);  // both directions
  // At RTR: makes room for a direct link in both directions, if one is possible with the peer that
  // `qp` names. Returns the peer, or nullptr: then the link will be mediated.
  [[nodiscard]] Qp* pair(Qp& qp);
  // Of a connected queue pair that a worker serves; kNone: its peer is not on this host.
  [[nodiscard]] NotDirect why_mediated(const Qp& qp) const;
  // From now on the peer of `qp` is on another host. `qp` is at least in RTR. No posted request is
  // lost: another sender restarts those that the present sender had begun. False: the present
  // sender has begun a request that must not be restarted; call again later. relink() makes the
  // link local again when the peer is in the fabric, on the same condition.
  [[nodiscard]] bool move_to(Qp& qp, const RemoteEnd& end);

  // After a daemon's death, when all sessions that could be taken over are: what pair() had made,
  // where the peer's outbox stood at this offset of its arena (0: there was none).
  void restore_pair(Qp& qp, uint64_t peer_outbox_at);
  // When that was done for all queue pairs: makes the link of `qp` again that there was.
  // `linked_out`, `linked_in`: the link that way was not cut. False: there was one, and the peer is
  // no more.
  [[nodiscard]] bool restore_link(Qp& qp, bool linked_out, bool linked_in);

  base::Result<void> attach(Qp& qp, const verbs::Gid& group);
  base::Result<void> detach(Qp& qp, const verbs::Gid& group);
  [[nodiscard]] const std::vector<Qp*>* members(const verbs::Gid& group) const;

  // A context of the fabric ends.
  void note_end(const Context& context);
  // Whether the process of the context `id` has died. False: or it is not known any more.
  [[nodiscard]] bool has_died(uint32_t id) const;
  FabricCounters& counters;

 private:
  [[nodiscard]] Qp* named_peer(const Qp& qp) const;
  [[nodiscard]] Context* context(uint32_t id) const;  // nullptr: it is no more
  [[nodiscard]] bool names(const Qp& qp, const Qp& peer) const;
  void connect(Qp& initiator, Qp& responder);
  void tell_link(Qp& initiator);
  void make_link(Qp& initiator, Qp& responder);
  void cut_out(Qp& qp);

  std::string name_;
  const std::shared_ptr<FabricCounters> counters_;
  uint32_t next_link_ = ipc::kFirstLink;
  std::unordered_map<verbs::Gid, Device*> devices_;
  std::unordered_multimap<verbs::Gid, Device*> parked_;
  std::unordered_map<verbs::Gid, std::vector<Qp*>> groups_;
  // Those that ended last: the context's id, and its process.
  static constexpr size_t kMostEnded = 64;
  std::deque<std::pair<uint32_t, base::Fd>> ended_;
};

}  // namespace vrdma::rdma
