// The records of a session's file (SessionFile), by kind: written by session_journal.cc, read by
// session_adopt.cc.
#pragma once

#include "core/ipc/messages.h"
#include "core/rdma/device.h"
#include "core/rdma/process.h"
#include "core/verbs/gid.h"
#include "vrdmad/records/process_files.h"
#include "vrdmad/records/session_file.h"

namespace vrdma::vrdmad {

// Earlier daemons had 64 bytes for a name: in their files `vdevice` is 0.
struct Who {
  char name[56];     // of the vdevice, for people: its beginning
  uint64_t vdevice;  // its id
  uint64_t node_guid;
  rdma::Peer process;
  uint32_t session;  // id of the context
  uint32_t epoch;    // of the daemon that served it last
  FileId arena, bells, memory;
  uint64_t doorbell;  // eventfd_id()
  uint64_t events;    // inode of the write end
  uint64_t netns;     // cookie of the vdevice's namespace
};

struct ChannelRecord {
  uint32_t handle;
  uint32_t reserved;
  uint64_t write_end;  // its inode
};

struct SrqSizeRecord {
  uint32_t max_wr;
};

// The session from which this one imports.
struct ExporterRecord {
  uint32_t context;
};

// An imported PD.
struct ImportedPdRecord {
  rdma::Origin origin;
};

struct ImportedMrRecord {
  uint32_t key;
  uint32_t pd;  // handle
  rdma::Origin origin;
};

struct XrcdRecord {
  FileId file;  // that names the domain; zero: the domain is the session's alone
};

// An XRC target that the session created or opened.
struct TargetRecord {
  uint32_t xrcd;  // handle
  uint32_t qpn;
};

// How a memory window is bound.
struct BindingRecord {
  uint32_t key;
  uint32_t mr;  // handle; 0: it is not bound
  uint32_t qp;  // handle; 0: of type 1
  uint32_t access;
  uint64_t addr, length, iova;
};

// A receive of an SRQ that a worker holds, or is about to hold: see claim_number().
struct ClaimRecord {
  uint32_t qp;                  // that it is to be completed to; 0: to the inbox of an XRC SRQ
  uint32_t inbox, peer_outbox;  // how many entries were published there
};
[[nodiscard]] inline uint32_t claim_number(const rdma::Srq& srq, uint32_t slot) {
  static_assert(ipc::kMaxQueueDepth <= 1u << 15);
  return srq.handle << 15 | slot;
}

struct QpRecord {
  verbs::QpAttributes attributes;
  verbs::Gid sgid;
  uint64_t outbox, peer_outbox;  // offsets; 0: none
  uint32_t outbox_depth;
  uint32_t maps_peer;
  uint8_t linked_out, linked_in, out_made, in_made;
  uint32_t link;
  uint32_t changes;  // of an XRC target: see rdma::Qp
  uint32_t groups;
  // verbs::Gid[groups] follow
};

}  // namespace vrdma::vrdmad
