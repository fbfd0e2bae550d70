// The session protocol: requests of a client of one vdevice to the daemon.
//
// A SOCK_SEQPACKET socket. Each Request is answered by one Reply before the next is sent, except a
// Request with sequence 0, which has no Reply. File descriptors travel as SCM_RIGHTS with the reply
// (with the request only for kHello and three others). All integers are in host order, because both
// ends are on one host. Events travel as EventMessage through the session's event ends
// (core/ipc/event_ends.h).
//
// The client is not trusted: the daemon checks every field of a Request. The client trusts the
// daemon. Reply.error is 0 or the errno that the verb returns.
//
// kVersion, in this header, is the version of all of core/ipc and changes with it. A daemon serves
// clients of its own version and of the previous one, from 4 on, which keep running across an
// upgrade. The rule that makes this possible:
//   - Each message contains its size, which is the length of the packet. Fields keep their place;
//     new ones are appended, to the message or to the struct of a call. 0 in a new field means what
//     the previous version meant.
//   - A receiver accepts a message of a version that it serves if it is shorter than its own (the
//     rest is zero) or longer with only zeros beyond (core/ipc/socket.h). It refuses a request with
//     anything but zeros after the struct of its call: E2BIG.
//   - A daemon fills a new field of a reply only for clients of a version that has it, unless it
//     lies within the length that the reply had: a client that does not know it reads the others.
// Messages of version 3 and older have no size; the answer is EPROTONOSUPPORT in their length.
//
// A session starts with kHello: the client announces an address, and the daemon answers with a
// challenge. The client stores the challenge there and sends kProve; the daemon reads it back from
// the memory of the process that connected. The kernel reports the sender of both messages
// (SCM_CREDENTIALS), which must be that process. EPERM: it is not, or the challenge is not there;
// three of these end the connection. EACCES: the process has more rights than its user
// (set-user-id, file capabilities).
//
// What the daemon lacks at the start of a session has codes that no lack of the program has:
// ECHILD, it can start no worker; ENFILE, no descriptors; ENOBUFS, no address space or memory.
//
// When the daemon dies, the next one takes the session over; the client connects again and sends
// kResume. It repeats a request without a reply, with the same sequence. The daemon does not
// execute a completed request again but repeats its answer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/verbs/capabilities.h"
#include "core/verbs/types.h"

namespace vrdma::ipc {

constexpr uint32_t kMagic = 0x76726d61;  // "vrma"
constexpr uint32_t kVersion = 4;
constexpr uint32_t kOldestVersion = 4;       // that a daemon still serves
constexpr uint32_t kNoObject = 0;            // handles start at 1
constexpr size_t kMaxFds = 8;                // in one message
constexpr size_t kUnsizedReplyLength = 256;  // of version 3 and older
// Set in the handles of XRC target queue pairs, which are numbered separately.
constexpr uint32_t kTargetHandle = 1u << 31;

enum class Call : uint32_t {
  kProbe = 1,  // which vdevice it is; creates no session. CmCall::kDevice needs no worker for that
  kHello,
  kGoodbye,
  kQueryDevice,
  kQueryPort,
  kQueryGids,
  kAllocPd,
  kDeallocPd,
  kRegMr,
  kDeregMr,
  kReregMr,
  kAllocMw,
  kImportDevice,
  kImportPd,
  kImportMr,
  kDeallocMw,
  kCreateChannel,
  kDestroyChannel,
  kCreateCq,
  kResizeCq,
  kDestroyCq,
  kCreateSrq,
  kModifySrq,
  kQuerySrq,
  kDestroySrq,
  kCreateQp,
  kModifyQp,
  kQueryQp,
  kDestroyQp,
  kCreateAh,
  kDestroyAh,
  kAttachMcast,
  kDetachMcast,
  kOpenXrcd,
  kCloseXrcd,
  kOpenQp,
  kCreateFlow,
  kDestroyFlow,
  kResume,      // resumes a session that the daemon has taken over
  kProve,       // the challenge of kHello is stored at the address that kHello announced
  kHold,        // stops the caller's other threads while memory is put in place: see HoldWords
  kReach,       // memory in place is reached from now on, whatever keys name it
  kShowMemory,  // pages of the program that lie in memory files of others: page_table.h
};
constexpr auto kLastCall = Call::kShowMemory;

// Why registered memory is reached and not in place. The program's statement is only counted.
enum class Reached : uint32_t {
  kNot = 0,   // it is in place; or no statement
  kMemory,    // of a file, shared, of large pages, or the stack of the registering thread
  kOnDemand,  // registered on demand
  kTraced,    // its threads cannot be stopped, because another process traces one
  kBusyCall,  // a thread is in a call that would return before its work is done
  kVfork,     // a thread waits for a child that runs in its memory
  kIoUring,   // the kernel has io_uring threads in the process
  kStopped,   // the process is stopped by a signal
  kDeadline,  // a thread did not stop in time
  kRefused,   // too many stops, or no process that may stop it
  kLost,      // the hold ended early
  kOther,
  kAsked,     // VRDMA_MEMORY=reached
  kUnseen,    // calls that change memory cannot be seen: userfaultfd(2) is forbidden
  kPinned,    // something else in the process may have pinned pages
  kLate,      // a peer that has stopped may still store there
  kMappings,  // the process has half of the mappings that the kernel permits (vm.max_map_count)
};
constexpr auto kLastReached = Reached::kMappings;

// With it, if the process already has one: its memory arena.
struct HelloRequest {
  uint64_t challenge_addr;  // where the caller will store the challenge, in its own memory
  uint32_t cheap_fence;     // 1: AsymmetricFence::register_process succeeded
  uint32_t reserved;
};
struct ChallengeReply {
  uint64_t challenge;
};
// The answer to kProve. With it: queue arena, bell file, memory arena, doorbell (eventfd), event
// read end, /dev/userfaultfd if the vdevice has the permission and the host the device, and event
// write end.
struct HelloReply {
  uint64_t node_guid;    // big-endian
  uint32_t grace_ms;     // how long mediated work waits for the next daemon
  uint32_t cheap_fence;  // the argument of AsymmetricFence::light
  uint32_t has_userfaultfd;
  uint32_t vendor_part_id;  // for clients that do not know `capabilities`
  uint32_t session;         // identifies it to a daemon that takes it over; 0: cannot be taken over
  uint32_t epoch;           // of this daemon
  verbs::Capabilities capabilities;

  // Also if the daemon is one that states none.
  [[nodiscard]] const verbs::Capabilities& device() const {
    return capabilities.stated != 0 ? capabilities : verbs::kSoftCapabilities;
  }
};
// The last field of a daemon that states none.
static_assert(offsetof(HelloReply, epoch) == 28 && offsetof(HelloReply, capabilities) == 32);

struct ResumeRequest {
  uint32_t session;
};
struct ResumeReply {
  uint32_t epoch;
  uint32_t grace_ms;
};

// Sent only to connections from the vdevice's own network namespace, because the socket's path does
// not contain the name.
struct ProbeReply {
  uint64_t node_guid;  // big-endian
  char name[64];       // zero-filled; empty if the daemon is older
};

// What the vdevice's quota and its parent's capabilities leave.
struct DeviceReply {
  uint64_t node_guid;  // big-endian
  uint64_t max_mr_size;
  uint32_t max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_pd, max_ah, max_srq, max_srq_wr,
      max_mw, max_rd_atomic, max_mcast_grp, max_mcast_qp_attach;
  uint32_t raw_packets;  // 1: the vdevice has the permission
};

struct PortReply {
  uint32_t state;       // ibv_port_state
  uint32_t max_mtu;     // ibv_mtu
  uint32_t active_mtu;  // ibv_mtu
  uint32_t gid_count;
  uint32_t speed_mbps;
  uint32_t ifindex;
};

struct GidsRequest {
  uint32_t first;  // index
};
constexpr uint32_t kGidsPerReply = 12;
struct GidsReply {
  uint32_t total;
  uint32_t count;  // in this reply
  uint32_t ifindex;
  uint32_t table;                   // length of the port's table; entries beyond `total` are empty
  uint8_t gids[kGidsPerReply][16];  // all zero: an empty entry
};

struct HandleRequest {
  uint32_t handle;
};
struct HandleReply {
  uint32_t handle;
};

struct RegMrRequest {
  uint64_t addr, length, iova;
  uint32_t pd, access;
  uint32_t way;      // Way
  uint32_t reached;  // Reached, if `way` is kReached
};
struct RegMrReply {
  uint32_t handle;
  uint32_t key;  // lkey and rkey
  uint64_t length;
};

// `thread` keeps running: its number in the caller's own pid namespace.
struct HoldRequest {
  uint32_t thread;
  uint32_t reserved;
};
// All other threads are stopped, by the hold whose `serial` is in HoldWords; or `reached` says why
// not.
struct HoldReply {
  uint32_t serial;
  uint32_t reached;  // Reached
};

// After the answer nobody but initiators on direct links, which may have looked before, accesses
// the memory, until the same is said with `length` 0, or anything is said but kReach and kHold: the
// program exchanges its pages meanwhile. If
// the process of `peer` (ModifyQpReply::peer) has died, nothing is done: it stores no more.
struct ReachRequest {
  uint64_t addr, length;
  uint32_t peer;
  uint32_t reserved;
};
struct ReachReply {
  uint32_t peer_died;
};

// With it: the page table, then the files, all sealed as base::make_memfd() does; or nothing. They
// replace what was shown before, of which no page changes after the answer, unless it is shown
// again or reached. A region is registered as one in place only if the page table knows its pages.
// EPERM: peers may map the memory of the process (prctl(2), PR_SET_DUMPABLE). EBUSY: another
// session of the vdevice shows memory. ENOTSUP: on this host no memory can be in place.
struct ShowMemoryRequest {
  uint32_t files;  // descriptors beside it, the page table among them
  uint32_t reserved;
};

// An MR of the session whose queue arena was sent with kImportDevice; without it, of this one.
struct ImportMrRequest {
  uint32_t pd;      // this session's, imported
  uint32_t handle;  // in the other session
};

struct ReregMrRequest {
  uint32_t handle;
  uint32_t reserved;
  RegMrRequest to;
};

struct AllocMwRequest {
  uint32_t pd;
  uint32_t type;  // ibv_mw_type
};
struct AllocMwReply {
  uint32_t handle;
  uint32_t key;
};

// With it: the read end and the write end of its messages (core/ipc/event_ends.h).
struct CreateChannelReply {
  uint32_t handle;
};

struct CreateCqRequest {
  uint32_t channel;  // or kNoObject
  uint32_t cqe;
};
struct CreateCqReply {
  uint32_t handle;
  uint32_t cqe;
  uint32_t slot;  // of its CqBell
};
struct ResizeCqRequest {
  uint32_t handle;
  uint32_t cqe;
};

// With it, if has_file: the file that identifies the domain.
struct OpenXrcdRequest {
  uint32_t has_file;
  uint32_t oflags;  // O_CREAT, O_EXCL
};

struct CreateSrqRequest {
  uint32_t pd, max_wr, max_sge;
  uint32_t xrcd, cq;  // of an XRC SRQ; else kNoObject
};
struct CreateSrqReply {
  uint32_t handle, max_wr, max_sge;
  uint32_t depth;   // slots, a power of two
  uint64_t block;   // offset of the SrqBlock in the queue arena
  uint64_t claims;  // offset of the SrqClaims in the bell file
  uint64_t inbox;   // of an XRC SRQ: offset of its RecvRing of depth entries in the queue arena
  uint32_t srqn;    // of an XRC SRQ
  uint32_t reserved;
};
struct ModifySrqRequest {
  uint32_t handle;
  uint32_t mask;  // verbs::SrqAttrMask
  uint32_t max_wr, limit;
};
struct QuerySrqReply {
  uint32_t max_wr, max_sge, limit;
};

// An XRC target has only its domain, and its reply contains no offsets. With a request for raw
// packets: a packet socket (packet(7)) of the vdevice's network namespace, which proves that the
// caller may create one.
struct CreateQpRequest {
  uint32_t pd, send_cq, recv_cq, srq;  // srq or kNoObject
  uint32_t xrcd;
  uint32_t type;  // verbs::QpType
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
  uint32_t init_mask;  // if not 0: move it to INIT with these fields of
  verbs::QpAttributes init;
};
struct CreateQpReply {
  uint32_t handle, qpn, slot;
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
  uint32_t sq_depth, rq_depth, inbox_depth;  // slots, powers of two
  uint32_t reserved;
  uint64_t block, sq, results, rq, inbox;  // offsets in the queue arena
};

// The reply is that of kCreateQp.
struct OpenQpRequest {
  uint32_t xrcd, qpn;
};

constexpr uint32_t kKnownPeers = 8;
struct ModifyQpRequest {
  uint32_t handle;
  uint32_t mask;       // verbs::QpAttrMask
  uint32_t cur_state;  // the program's view of the state, with kQpCurState
  uint32_t rts_mask;   // if not 0, with RTR: then move to RTS with these attributes
  // With RTR: `peer` values of earlier replies whose arenas the program still has.
  uint32_t known_peers[kKnownPeers];
  verbs::QpAttributes attributes;
};

// With RTR: what a direct link needs, if one is possible. With it, unless the peer is known: its
// queue arena (read-only), bell file and memory arena; with has_wake, a write end of the channel of
// the peer's receive CQ.
struct ModifyQpReply {
  uint32_t state;
  uint32_t direct;  // 0: nothing below is valid
  uint32_t peer;    // identifies the peer's session: equal numbers mean equal arenas
  uint32_t known;   // 1: the arenas are not sent again
  uint32_t has_wake;
  uint32_t peer_recv_cq;  // slot of its CqBell, and the value to write to its channel
  uint32_t peer_pd;
  uint32_t peer_max_recv_sge;
  uint32_t peer_rq_depth;
  uint32_t link;             // identifies the link in claims of the peer's SRQ
  uint32_t peer_receive_pd;  // PD of its receives
  uint32_t reserved;
  uint64_t peer_block, peer_rq;  // offsets in the peer's queue arena; peer_rq: 0 with an SRQ
  uint64_t peer_srq;             // SrqBlock in the peer's queue arena, or 0
  uint64_t peer_claims;          // and its SrqClaims in the peer's bell file
  uint64_t outbox;               // offset in the caller's queue arena, peer_rq_depth entries
  uint64_t peer_outbox;          // offset in the peer's queue arena, as deep as our inbox
};

struct QueryQpReply {
  verbs::QpAttributes attributes;
};

struct McastRequest {
  uint32_t qp;
  uint16_t lid;
  uint16_t reserved;
  uint8_t gid[16];
};

// Of a frame's first bytes: Ethernet, IPv6, ports.
constexpr size_t kFlowBytes = 64;
struct FlowMatch {
  uint8_t value[kFlowBytes], mask[kFlowBytes];
};
struct CreateFlowRequest {
  uint32_t qp;
  FlowMatch match;
};

struct Request {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  Call call{};
  uint32_t sequence = 0;  // returned in the reply; 0: no reply
  uint32_t size = sizeof(Request);
  uint32_t reserved = 0;
  union {
    HelloRequest hello;
    ResumeRequest resume;
    GidsRequest gids;
    HandleRequest handle;
    RegMrRequest reg_mr;
    ReregMrRequest rereg_mr;
    AllocMwRequest alloc_mw;
    HoldRequest hold;
    ReachRequest reach;
    ShowMemoryRequest show_memory;
    ImportMrRequest import_mr;
    CreateCqRequest create_cq;
    ResizeCqRequest resize_cq;
    CreateSrqRequest create_srq;
    ModifySrqRequest modify_srq;
    CreateQpRequest create_qp;
    OpenXrcdRequest open_xrcd;
    OpenQpRequest open_qp;
    ModifyQpRequest modify_qp;
    verbs::AddressVector create_ah;
    McastRequest mcast;
    CreateFlowRequest create_flow;
    uint8_t bytes[160];
  };
  Request() : bytes{} {}
};
static_assert(sizeof(Request) == 184);

struct Reply {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t sequence = 0;
  int32_t error = 0;  // errno, or 0
  uint32_t size = sizeof(Reply);
  uint32_t reserved = 0;
  union {
    ProbeReply probe;
    ChallengeReply challenge;
    HelloReply hello;
    ResumeReply resume;
    DeviceReply device;
    PortReply port;
    GidsReply gids;
    HandleReply handle;
    RegMrReply reg_mr;
    HoldReply hold;
    ReachReply reach;
    AllocMwReply alloc_mw;
    CreateChannelReply create_channel;
    CreateCqReply create_cq;
    CreateSrqReply create_srq;
    QuerySrqReply query_srq;
    CreateQpReply create_qp;
    ModifyQpReply modify_qp;
    QueryQpReply query_qp;
    uint8_t bytes[240];
  };
  Reply() : bytes{} {}
};
static_assert(sizeof(Reply) == 264);

// An event of a session, written by the daemon. Its size never changes.
struct EventMessage {
  uint32_t event;   // verbs::Event
  uint32_t object;  // handle of the QP or SRQ; port number; 0 for the device
};
static_assert(sizeof(EventMessage) == 8);

}  // namespace vrdma::ipc
