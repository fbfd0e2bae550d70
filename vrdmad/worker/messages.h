// What control and a worker say to each other: plain values, one variant type for each direction,
// and descriptors beside the messages of control (parcel.h).
//
// A message that wants an answer has a ticket, which the answer repeats; 0 wants none. Bounds are
// those of the codec (messages_codec.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/log.h"
#include "core/ipc/export_state.h"
#include "core/rdma/link.h"
#include "core/rdma/peer.h"
#include "core/rdma/sender.h"
#include "core/verbs/capabilities.h"
#include "core/verbs/gid.h"
#include "core/verbs/types.h"
#include "gid/prefix.h"
#include "provisioning/kind.h"
#include "vrdmad/records/process_files.h"

namespace vrdma::vrdmad {

// The first message. Beside it: a page of base::EventLoop::Passes, which the worker writes; with
// `clients` the sockets of a client of the intake and of the stopper.
struct Begin {
  uint32_t epoch = 1;  // see SessionSettings
  uint32_t grace_ms = 0;
  uint32_t slot = 1;  // in the page of each budget
  bool clients = false;
  bool operator==(const Begin&) const = default;
};

struct PortStatus {
  bool active = false;
  uint32_t mtu = 0;  // bytes of the netdev
  uint32_t ifindex = 0;
  std::optional<std::array<uint8_t, 6>> mac;  // none: its frames are not of Ethernet
  bool operator==(const PortStatus&) const = default;
};

struct Limit {
  provisioning::Kind kind{};
  uint64_t limit = 0;
  bool operator==(const Limit&) const = default;
};

// A budget that a vdevice draws from. Its page is handed over with the vdevice.
struct BudgetName {
  uint64_t number = 0;  // given by control, never reused
  std::string whose;    // "tenant red", for error messages
  bool operator==(const BudgetName&) const = default;
};

// Where members of a fabric may have peers, beside the members that memory leads to.
struct Ways {
  static constexpr size_t kMostPeers = 64;
  bool network = false;  // on the network
  bool wire = false;     // and it leads to the members of other namespaces on this host, too
  // Those that may be peers on the network, and groups there; empty: all. Members of the fabric
  // may always.
  std::vector<gid::Prefix> peers{};
  bool operator==(const Ways&) const = default;
};

// Makes a vdevice. Beside it: VdeviceParts.
struct AddVdevice {
  uint64_t vdevice = 0;
  std::string name, label, tenant, fabric;
  uint64_t netns = 0;        // its cookie
  uint64_t node_guid = 0;    // big-endian
  uint32_t permissions = 0;  // provisioning::Permissions::bits()
  bool limited = false;
  bool no_direct = false;
  Ways ways{};
  verbs::Capabilities capabilities = verbs::kSoftCapabilities;
  std::vector<Limit> limits{};  // other kinds have their initial limit
  BudgetName tenant_budget{}, parent_budget{};
  bool operator==(const AddVdevice&) const = default;
};

// No new work of it is executed from then on, and all is counted in its page. Answer: Done.
struct RemoveVdevice {
  uint64_t vdevice = 0, ticket = 0;
  bool operator==(const RemoveVdevice&) const = default;
};

// A process as the broker knows it.
struct Known {
  uint32_t entry = 0;
  rdma::Peer peer;
  bool operator==(const Known&) const = default;
};

// A program has connected. Beside it: the connection. Answer: Accepted.
struct NewConnection {
  uint64_t vdevice = 0, number = 0;
  Known program;
  bool operator==(const NewConnection&) const = default;
};

// What a SessionKit has beside its descriptors.
struct KitValues {
  uint32_t session = 0;
  FileId arena, memory;
  std::string cgroup;
  uint32_t has = 0;  // a bit for each descriptor that is beside the message (parcel.h)
  std::vector<ShownFile> shown{};  // whose descriptors follow these
  bool operator==(const KitValues&) const = default;
};

// Answer to WantKit. Beside it: the kit, unless there is an error.
struct Kit {
  uint64_t connection = 0, vdevice = 0;
  uint64_t used_ns = 0;  // processor time, which the vdevice pays
  int32_t error = 0;     // errno for the program
  KitValues kit = {};
  bool operator==(const Kit&) const = default;
};

// A session of a worker that has ended. Beside it: the memory files and the pidfd of its process,
// then its kit. The worker keeps it until TakeOver, because queue pairs need their peers.
struct AdoptSession {
  uint64_t vdevice = 0, number = 0;  // of the connection
  Known program;
  KitValues kit = {};
  uint32_t epoch = 0;  // in which the worker serves it; 0: its own
  bool operator==(const AdoptSession&) const = default;
};

// Completion channels of that session. Beside it: their write ends, in this order.
struct AdoptChannels {
  static constexpr size_t kMost = 128;
  uint64_t number = 0;
  std::vector<uint32_t> handles;
  bool operator==(const AdoptChannels&) const = default;
};

// What becomes of a session whose program may be written to disk (session_park.cc). Answer: Done.
struct ParkSession {
  enum class Step : uint8_t {
    kPark,    // nothing of it is executed or told any more
    kDetach,  // its program may end now, and lose its descriptors; its memory is reached from then
              // on
    kResume,  // of a parked one: it goes on
    kEnd,     // as if its program had been killed
  };
  uint64_t vdevice = 0, connection = 0, ticket = 0;
  Step step{};
  bool operator==(const ParkSession&) const = default;
};

// A detached session goes on in this process. Beside it: as beside AdoptSession; its channels come
// before, as AdoptChannels. Answer: Done.
struct AttachSession {
  AdoptSession session;
  uint64_t ticket = 0;
  // What identifies these descriptors to the next daemon.
  FileId bells;
  uint64_t doorbell = 0, events = 0;
  uint32_t epoch = 0;  // another one than before (rdma::begin_epoch)
  bool operator==(const AttachSession&) const = default;
};

// Takes over all sessions of AdoptSession, except those that are kept back (kept_back.h).
struct TakeOver {
  bool operator==(const TakeOver&) const = default;
};

// What a vdevice pays for the search of its processes, and whether sessions of it or of its fabric
// will come with another TakeOver: until then their programs are told to wait.
struct Await {
  uint64_t vdevice = 0;
  uint64_t used_ns = 0;
  bool others = false;
  bool operator==(const Await&) const = default;
};

struct SetPort {
  uint64_t vdevice = 0;
  PortStatus status;
  bool operator==(const SetPort&) const = default;
};

struct SetGids {
  uint64_t vdevice = 0;
  std::vector<verbs::Gid> gids;  // the table, by index
  bool operator==(const SetGids&) const = default;
};

// Count in the vdevice's page what its programs did on direct links since the last time. The worker
// serves others in between. Answer: Done.
struct Collect {
  uint64_t vdevice = 0, ticket = 0;
  bool operator==(const Collect&) const = default;
};

// What would SetLimits answer? Nothing is changed. Answer: Done.
struct CheckLimits {
  uint64_t vdevice = 0, ticket = 0;
  std::vector<Limit> limits;
  bool operator==(const CheckLimits&) const = default;
};

// All or nothing. `limited`: a worker executes all requests, at the pacer's pace. Answer: Done.
struct SetLimits {
  uint64_t vdevice = 0, ticket = 0;
  std::vector<Limit> limits;
  bool limited = false;
  bool operator==(const SetLimits&) const = default;
};

// What do its sessions use, by the control groups of their processes, in the order of their paths?
// Answer: CgroupUse.
struct AskCgroups {
  uint64_t vdevice = 0, ticket = 0;
  std::string after;  // this path; empty: from the first
  bool operator==(const AskCgroups&) const = default;
};

// How do its queue pairs get on, in the order of their numbers? Answer: QueuePairs.
struct AskQueuePairs {
  uint64_t vdevice = 0, ticket = 0;
  uint32_t after = 0;  // this number
  bool operator==(const AskQueuePairs&) const = default;
};

// What do its programs say of virtual machines that they show it to, in the order of their
// sessions? Answer: Exports.
struct AskExports {
  uint64_t vdevice = 0, ticket = 0;
  uint32_t after = 0;  // this session
  bool operator==(const AskExports&) const = default;
};

// Its fabric's ways have changed.
struct SetWays {
  uint64_t vdevice = 0;
  Ways ways{};
  bool operator==(const SetWays&) const = default;
};

// Answer to WantRoceSocket. Beside it: the socket (vrdmad/broker/roce_sockets.h), unless there is
// an error, and those that only send.
struct RoceSocket {
  uint64_t vdevice = 0;
  verbs::Gid address;
  int32_t error = 0;  // errno
  // The number of source ports, and a bit for each that has a socket beside this message.
  uint32_t sources = 0, has_sources = 0;
  bool operator==(const RoceSocket&) const = default;
};

using ToWorker =
    std::variant<Begin, AddVdevice, RemoveVdevice, NewConnection, SetPort, SetGids, Collect,
                 CheckLimits, SetLimits, AskCgroups, Kit, AdoptSession, AdoptChannels, TakeOver,
                 Await, SetWays, RoceSocket, AskQueuePairs, ParkSession, AttachSession, AskExports>;

struct Done {
  uint64_t ticket = 0;
  int32_t error = 0;   // errno; 0: it was done
  std::string reason;  // a sentence, if there is an error
  bool operator==(const Done&) const = default;
};

struct CgroupUse {
  static constexpr size_t kMost = 32;  // groups
  struct Group {
    std::string path;
    std::vector<Limit> used;
    bool operator==(const Group&) const = default;
  };
  uint64_t ticket = 0;
  std::vector<Group> groups;
  bool more = false;  // after the last of these
  bool operator==(const CgroupUse&) const = default;
};

struct QueuePairs {
  static constexpr size_t kMost = 1024;  // queue pairs
  // Who moves its requests to its peer.
  enum class Transport : uint8_t {
    kNone,      // it is not connected
    kDirect,    // the program itself
    kMediated,  // a worker, on this host
    kNetwork,   // a worker, by RoCE v2
    kBoth,      // UD: on this host, or by RoCE v2
    kRaw,       // the netdev, or queue pair 1
  };
  struct Row {
    uint32_t qpn = 0;
    int32_t pid = 0;  // of the program
    verbs::QpType type{};
    verbs::QpState state{};
    Transport transport{};
    rdma::NotDirect because{};  // of kMediated
    verbs::Gid local, remote;   // of one that is connected
    uint32_t remote_qpn = 0;
    rdma::Sender::OnNetwork network;
    // Since it was made, or since this worker took it over.
    struct Work {
      uint64_t requests = 0, bytes = 0;
      bool operator==(const Work&) const = default;
    };
    Work by_program, by_worker;
    bool operator==(const Row&) const = default;
  };
  uint64_t ticket = 0;
  std::vector<Row> rows;
  bool more = false;  // after the last of these
  bool operator==(const QueuePairs&) const = default;
};

struct Exports {
  static constexpr size_t kMost = 64;
  struct Row {
    uint32_t session = 0;
    int32_t pid = 0;  // of the program
    ipc::Export is;   // as it says
    bool operator==(const Row&) const = default;
  };
  uint64_t ticket = 0;
  std::vector<Row> rows;
  bool more = false;  // after the last of these
  bool operator==(const Exports&) const = default;
};

// The program of a connection has proven its identity, so its session needs a kit
// (vrdmad/records/session_kit.h). Answer: Kit.
struct WantKit {
  uint64_t connection = 0;
  FileId shown;  // the memory arena that it presented; zero: none
  bool operator==(const WantKit&) const = default;
};

// The worker has taken the connection from its queue: it serves or refuses it.
struct Accepted {
  uint64_t connection = 0;
  bool operator==(const Accepted&) const = default;
};

// A sentence for the operator's log, on one line.
struct Say {
  base::LogLevel level = base::LogLevel::kInfo;
  std::string sentence;
  bool operator==(const Say&) const = default;
};

// The last message of a worker that crashes. `session`: the number of that which it had in hand; 0:
// none. A worker that is killed does not send it.
struct Crashed {
  int32_t signal = 0;
  uint32_t session = 0;
  bool operator==(const Crashed&) const = default;
};

// The worker has ended the connection and its session, if it had one.
struct Ended {
  uint64_t connection = 0;
  bool operator==(const Ended&) const = default;
};

// The worker has begun to use a rate of the budget and has no grant for it: its page tells what it
// asks for (provisioning/claim.h).
struct WantRates {
  uint64_t budget = 0;  // its number
  bool operator==(const WantRates&) const = default;
};

// What a program of the vdevice was refused, since the last such message.
struct Refused {
  enum class Why : uint8_t {
    kQuota,     // a request exceeded the limit of this kind
    kCeiling,   // or one of its tenant or its parent
    kIdentity,  // it did not prove what it is
    kProtocol,  // its session ended because of what it sent or wrote
  };
  uint64_t vdevice = 0;
  int32_t pid = 0;
  Why why{};
  provisioning::Kind kind{};
  uint64_t count = 0;
  bool operator==(const Refused&) const = default;
};

// A queue pair of the vdevice has a peer on another host, and its address has no socket yet; or one
// is attached to a multicast group, `address`. Answer: RoceSocket.
struct WantRoceSocket {
  uint64_t vdevice = 0;
  verbs::Gid address;
  bool operator==(const WantRoceSocket&) const = default;
};

// No queue pair of the vdevice is attached to the multicast group any more.
struct LeaveGroup {
  uint64_t vdevice = 0;
  verbs::Gid group;
  bool operator==(const LeaveGroup&) const = default;
};

// Crashed is the last one: a handler of signals writes it without the codec (worker_main.cc).
using ToControl = std::variant<Done, CgroupUse, WantKit, Accepted, Ended, Say, WantRates,
                               WantRoceSocket, QueuePairs, LeaveGroup, Refused, Exports, Crashed>;

// 0: it is no answer.
[[nodiscard]] inline uint64_t ticket_of(const ToControl& message) {
  return std::visit(
      [](const auto& one) -> uint64_t {
        if constexpr (requires { one.ticket; }) return one.ticket;
        return 0;
      },
      message);
}

}  // namespace vrdma::vrdmad
