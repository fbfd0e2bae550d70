// The connection protocol: requests of librdmacm to the daemon, modelled on the kernel's rdma_ucm.
//
// R/netns/<cookie>/rdma_cm is a SOCK_SEQPACKET socket that serves all vdevices of the namespace.
// Each CmRequest is answered by one CmReply before the next is sent, unless it is `quiet`. All
// integers are in host order. A connection's ids are destroyed with it, if the daemon lives. The
// reply to kCreateChannel carries a file descriptor: a SOCK_SEQPACKET socket from which each
// read(2) takes one CmEventMessage, the channel->fd that programs poll. The client is not trusted:
// the daemon checks every field.
//
// CmReply.error is 0 or the errno of the call: EPERM if the first request, or kResume, comes from
// another process than the one that connected, or if that has changed since; EACCES if it gained
// ids or capabilities by exec.
//
// A session outlives the daemon. The next daemon restores its state after the last request and
// event that took effect. The program sends kResume on a new connection and learns which request
// that was. It repeats later requests, and that one too if it has no reply. Channels then get new
// sockets (kCreateChannel), whose first event may be the last one of the old socket: it has the
// same sequence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/verbs/types.h"

namespace vrdma::ipc {

constexpr uint32_t kCmMagic = 0x76726d63;     // "vrmc"
constexpr uint32_t kCmVersion = 5;            // messages grow by the rule of core/ipc/messages.h
constexpr uint32_t kCmOldestVersion = 5;      // that the daemon serves; older ones have no size
constexpr const char* kCmSocket = "rdma_cm";  // next to the session sockets
constexpr uint32_t kCmDevices = 16;           // in one reply

enum class CmCall : uint32_t {
  kCreateChannel = 1,  // -> handle, and an fd that keeps the channel open; guids: the secret;
                       // grace_ms. handle: a channel of the previous daemon, which gets a new fd
  kCreateId,           // does only what every first request about an id does
  kDestroyId,          // handle
  kMigrateId,          // handle, channel: pending events go there
  kBind,               // handle, local -> where
  kResolveAddr,        // handle, local (if has_local), remote, value: how long to wait for a
                       // network, in ms (0: as the daemon likes) -> where, complete with the event
  kResolveRoute,       // handle -> where
  kListen,             // handle, value: backlog -> where
  kConnect,            // handle, param
  kAccept,             // handle, param
  kConfirm,            // handle: the RTU, after CONNECT_RESPONSE
  kReject,             // handle, value: reason, param: private data
  kDisconnect,         // handle
  kEstablish,          // handle: data arrived before the RTU
  kQpAttributes,       // handle, value: ibv_qp_state -> mask, attributes
  kSetOption,          // handle, value: CmOption, setting
  kDevices,            // -> count, guids
  kNudge,              // channel: sends an event of type kCmNudge to it
  kTakeId,          // handle in another session, param.data: its secret, channel -> handle, where
  kJoin,            // handle, remote: a group, value: a token; answered by MULTICAST_JOIN
  kResume,          // param.data: the secret -> count: sequence of the last request that took
                    // effect; grace_ms. ESTALE: no such session
  kDestroyChannel,  // handle; for a channel whose fd was the previous daemon's
  kDevice,          // value: the number of a session socket -> device. ENODEV: no vdevice has it.
                    // EINVAL also from a daemon that does not know this call
};

// The program numbers its ids, with this bit set; the daemon numbers channels and connection
// requests without it. The first request about an id creates it; that request also has channel,
// space and qp_type, and reply.handle confirms the creation.
constexpr uint32_t kCmOwnHandle = 1u << 31;

// A session's secret, in the first guids. A process that knows it may take ids from the session, as
// a child does that inherited them.
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

// The addresses and path of an id.
struct CmWhere {
  uint64_t node_guid;  // of its vdevice, big-endian; 0: not bound yet
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
  uint32_t space = 0;  // port space of an id that this request creates
  CmAddress local{}, remote{};
  CmParam param{};
};
static_assert(sizeof(CmRequest) == 332);

// Attributes to modify a queue pair to INIT, RTR and RTS: those of all three, and the mask of each.
struct CmAttributes {
  uint32_t masks[3];  // for INIT, RTR, RTS; 0: unknown
  uint32_t reserved;
  verbs::QpAttributes attributes;
};

struct CmDeviceName {
  uint64_t node_guid;  // big-endian
  char name[64];
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
  uint32_t grace_ms = 0;  // how long to wait for the next daemon; 0: not at all
  uint32_t reserved = 0;
  CmWhere where{};
  verbs::QpAttributes attributes{};
  union {
    uint64_t guids[kCmDevices]{};
    CmDeviceName device;  // kDevice
  };
};
constexpr size_t kCmUnsizedReplyLength = sizeof(CmReply) - 8;  // of version 4 and older

constexpr uint32_t kCmNudge = ~0u;  // an event type that is not tied to an id

struct CmEventMessage {
  uint32_t type = 0;  // rdma_cm_event_type
  int32_t status = 0;
  uint32_t handle = 0;    // the id's
  uint32_t request = 0;   // CONNECT_REQUEST: handle of the new id
  uint32_t token = 0;     // MULTICAST_JOIN: the token of kJoin
  uint32_t sequence = 0;  // counts the session's events
  uint32_t size = sizeof(CmEventMessage);
  uint32_t reserved = 0;
  CmWhere where{};  // of `request`, else of the id; MULTICAST_JOIN: remote is the group
  CmParam param{};
  CmAttributes attributes{};  // CONNECT_REQUEST: of the new id; CONNECT_RESPONSE
};

}  // namespace vrdma::ipc
