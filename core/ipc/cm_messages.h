// The connection protocol: what librdmacm asks of the daemon, as the kernel's rdma_ucm has it.
//
// R/netns/<cookie>/rdma_cm is a SOCK_SEQPACKET socket that serves all vdevices of the namespace.
// One CmRequest, one CmReply, strictly in turn, but for what wants none; all integers are the
// host's. The ids that a connection made die with it, if the daemon lives. kCreateChannel brings a
// file descriptor beside its reply: a SOCK_SEQPACKET socket from which each read(2) takes one
// CmEventMessage, and which is the channel->fd that programs poll. The client is not trusted: every
// field is checked by the daemon.
//
// CmReply.error is 0 or the errno of the call: EPERM if the first request, or kResume, comes from
// another process than the one that connected, or if that has changed since; EACCES if it gained
// ids or capabilities by exec.
//
// A session outlives the daemon. Another one has it as it was after the last request and event that
// took effect; the program says kResume on a new connection and is told which request that was:
// later ones are to be said again, and that one too if its answer did not come. Channels get new
// sockets then (kCreateChannel), in which the first event may be the last that came from the old
// one: it has the same sequence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/verbs/types.h"

namespace vrdma::ipc {

constexpr uint32_t kCmMagic = 0x76726d63;     // "vrmc"
constexpr uint32_t kCmVersion = 5;            // messages grow by the rule of core/ipc/messages.h
constexpr uint32_t kCmOldestVersion = 5;      // that the daemon serves; older ones have no size
constexpr const char* kCmSocket = "rdma_cm";  // beside the session sockets
constexpr uint32_t kCmDevices = 16;           // named in one reply

enum class CmCall : uint32_t {
  kCreateChannel = 1,  // -> handle, and an fd; gone when that is closed; guids: the secret;
                       // grace_ms. handle: one of a dead daemon's, that gets another fd
  kCreateId,           // nothing but what every first request about an id does
  kDestroyId,          // handle
  kMigrateId,          // handle, channel: what is not told yet is told there
  kBind,               // handle, local -> what
  kResolveAddr,        // handle, local (if has_local), remote -> what
  kResolveRoute,       // handle -> what
  kListen,             // handle, value: backlog -> what
  kConnect,            // handle, param
  kAccept,             // handle, param
  kConfirm,            // handle: the RTU, after CONNECT_RESPONSE
  kReject,             // handle, value: reason, param: private data
  kDisconnect,         // handle
  kEstablish,          // handle: data came before the RTU
  kQpAttributes,       // handle, value: ibv_qp_state -> mask, attributes
  kSetOption,          // handle, value: CmOption, setting
  kDevices,            // -> count, guids
  kNudge,              // channel: an event of type kCmNudge there
  kTakeId,             // handle in another session, param.data: its secret, channel -> handle, what
  kJoin,               // handle, remote: a group, value: a token; told by MULTICAST_JOIN
  kResume,             // param.data: the secret -> count: sequence of the last request that is
                       // done; grace_ms. ESTALE: nobody has that session
  kDestroyChannel,     // handle; for one whose fd was a dead daemon's
};

// The program numbers its ids, with this bit; what the daemon numbers (channels, connection
// requests) has it not. An id is made by the first request about it, which has channel, space and
// qp_type too; reply.handle says that it was.
constexpr uint32_t kCmOwnHandle = 1u << 31;

// Of a session, in the first of the guids: who knows it may take ids from it, as a child does that
// has inherited them.
constexpr uint32_t kCmSecret = 16;  // bytes

enum class CmOption : uint32_t { kTos, kReuseAddress, kFamilyOnly, kAckTimeout, kMinRnrTimer };

struct CmAddress {
  uint8_t gid[16];  // IPv4 mapped into IPv6
  uint16_t port;
  uint16_t reserved;
};
static_assert(sizeof(CmAddress) == 20);

constexpr uint32_t kCmPrivateData = 224;  // the longest of any message

struct CmParam {
  uint8_t responder_resources;
  uint8_t initiator_depth;
  uint8_t retry_count;
  uint8_t rnr_retry_count;
  uint8_t flow_control;
  uint8_t srq;
  uint8_t length;  // of data
  uint8_t reserved;
  uint32_t qpn;
  uint32_t qkey;
  uint8_t data[kCmPrivateData];
};
static_assert(sizeof(CmParam) == 240);

// Where an id stands.
struct CmWhere {
  uint64_t node_guid;  // of its vdevice, big-endian; 0: none yet
  CmAddress local, remote;
  uint8_t sgid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
  uint8_t path_mtu;      // ibv_mtu
  uint32_t packet_life;  // a code
};
static_assert(sizeof(CmWhere) == 56);

struct CmRequest {
  uint32_t magic = kCmMagic;
  uint32_t version = kCmVersion;
  CmCall call{};
  uint32_t sequence = 0;
  uint32_t size = sizeof(CmRequest);
  uint32_t handle = 0;
  uint32_t channel = 0;
  uint32_t value = 0;
  uint32_t setting = 0;
  uint32_t qp_type = 0;  // verbs::QpType
  uint32_t has_local = 0;
  uint32_t quiet = 0;  // 1: no reply
  uint32_t space = 0;  // a port space: of an id that is to be made
  CmAddress local{}, remote{};
  CmParam param{};
};
static_assert(sizeof(CmRequest) == 332);

// With what to modify a queue pair to INIT, RTR and RTS: the attributes of all, and which are
// whose.
struct CmAttributes {
  uint32_t masks[3];  // of INIT, RTR, RTS; 0: unknown
  uint32_t reserved;
  verbs::QpAttributes attributes;
};

struct CmReply {
  uint32_t magic = kCmMagic;
  uint32_t version = kCmVersion;
  uint32_t sequence = 0;
  int32_t error = 0;
  uint32_t size = sizeof(CmReply);
  uint32_t handle = 0;
  uint32_t mask = 0;
  uint32_t count = 0;
  uint32_t grace_ms = 0;  // how long it is worth waiting for another daemon; 0: not at all
  uint32_t reserved = 0;
  CmWhere where{};
  verbs::QpAttributes attributes{};
  uint64_t guids[kCmDevices]{};
};
constexpr size_t kCmUnsizedReplyLength = sizeof(CmReply) - 8;  // of version 4 and older

constexpr uint32_t kCmNudge = ~0u;  // the type of an event of nobody

struct CmEventMessage {
  uint32_t type = 0;  // rdma_cm_event_type
  int32_t status = 0;
  uint32_t handle = 0;    // of the id
  uint32_t request = 0;   // CONNECT_REQUEST: of the id that it brings
  uint32_t token = 0;     // MULTICAST_JOIN: that of kJoin
  uint32_t sequence = 0;  // of the session's events
  uint32_t size = sizeof(CmEventMessage);
  uint32_t reserved = 0;
  CmWhere where{};  // of that, or of the id; MULTICAST_JOIN: remote is the group
  CmParam param{};
  CmAttributes attributes{};  // CONNECT_REQUEST: of the id that it brings; CONNECT_RESPONSE
};

}  // namespace vrdma::ipc
