// The portable image of a session: its objects and their attributes, PSNs and links, and its last
// request. A value: no descriptor, path or process is in it; those are the session's anchors
// (anchor_file.h). What rings hold stays in the queue arena, where both sides work on it.
//
//   image  := Header, Record*
//   Record := RecordHeader, data, padded to 8 bytes
//
// decode() takes bytes from anybody. What it accepts has objects with distinct handles, and numbers
// in the ranges that the protocol permits; whether the objects fit together is checked where they
// are made, by the code that serves requests, within the quota. encode() gives equal images equal
// bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ipc/messages.h"
#include "core/rdma/device.h"
#include "core/verbs/gid.h"

namespace vrdma::vrdmad {

// The records of an image and of a session's journal, in the order of their restoration.
enum class Stored : uint16_t {
  kExporter,
  kPd,
  kImportedPd,
  kXrcd,
  kChannel,
  kCq,
  kCqSize,
  kAh,
  kMr,
  kImportedMr,
  kMw,
  kSrq,
  kSrqSize,
  kQp,
  kTarget,
  kQpState,
  kBinding,
  kFlow,
  kClaim,
  kNote,
};
constexpr Stored kLastStored = Stored::kNote;

// --- records ---
// kPd, kCq, kCqSize, kAh, kMr, kMw, kSrq, kQp and kFlow are a request and its reply, as the call
// that made the object has them (ServedShape); kChannel is empty.
struct ServedShape {
  ipc::Call call;
  size_t request, reply;
};
// Empty: the kind is not a request and its reply.
[[nodiscard]] std::optional<ServedShape> shape_of(Stored kind);

// The session from which this one imports.
struct ExporterRecord {
  uint32_t context;
};
struct ImportedPdRecord {
  rdma::Origin origin;
};
struct ImportedMrRecord {
  uint32_t key;
  uint32_t pd;  // handle
  rdma::Origin origin;
};
struct XrcdRecord {
  uint32_t named;  // 1: a file, which is among the anchors, names the domain
};
// An XRC target that the session created or opened.
struct TargetRecord {
  uint32_t xrcd;  // handle
  uint32_t qpn;
};
struct SrqSizeRecord {
  uint32_t max_wr;
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
  uint32_t qp;                  // that gets its completion; 0: to the inbox of an XRC SRQ
  uint32_t inbox, peer_outbox;  // how many entries were published there
};
[[nodiscard]] inline uint32_t claim_number(const rdma::Srq& srq, uint32_t slot) {
  static_assert(ipc::kMaxQueueDepth <= 1u << 15);
  return srq.handle << 15 | slot;
}
// A note of a queue pair (core/rdma/notes.h) is some bytes; its sender decodes them.
[[nodiscard]] inline uint32_t note_number(uint32_t qp, uint32_t note) {
  static_assert(uint64_t{ipc::kMaxQpSlots} * rdma::Notes::kMost + rdma::Notes::kMost <= UINT32_MAX);
  return qp * rdma::Notes::kMost + note;
}
struct QpRecord {
  verbs::QpAttributes attributes;
  verbs::Gid sgid;
  uint64_t outbox, peer_outbox;  // offsets; 0: none
  uint32_t outbox_depth;
  uint32_t maps_peer;
  uint8_t linked_out, linked_in, out_made, in_made;
  uint32_t link;
  uint32_t remote;   // 1: the peer is on another host
  uint32_t changes;  // of an XRC target: see rdma::Qp
  uint32_t groups;
  // verbs::Gid[groups] follow
};

struct SessionImage {
  // What is known of an object by its handle.
  template <class T>
  struct Object {
    bool answered = true;  // the program knows that it was made
    T made{};
  };
  struct Served {
    ipc::Request request;
    ipc::Reply reply;
  };
  struct QpState {
    QpRecord record{};
    std::vector<verbs::Gid> groups;
  };
  struct Nothing {};
  template <class T>
  using Objects = std::map<uint32_t, Object<T>>;

  // By kind.
  std::map<Stored, Objects<Served>> served;
  Objects<ExporterRecord> exporter;  // of number 0, or empty
  Objects<ImportedPdRecord> imported_pds;
  Objects<ImportedMrRecord> imported_mrs;
  Objects<XrcdRecord> xrcds;
  Objects<Nothing> channels;
  Objects<TargetRecord> targets;
  Objects<SrqSizeRecord> srq_sizes;
  Objects<QpState> qp_states;
  Objects<BindingRecord> bindings;
  Objects<ClaimRecord> claims;          // by claim_number()
  Objects<std::vector<uint8_t>> notes;  // by note_number()

  uint32_t begun = 0;  // sequence of the last request that began
  ipc::Reply reply;    // the last reply; sequence 0: none

  [[nodiscard]] static base::Result<SessionImage> decode(std::span<const uint8_t> bytes);
  [[nodiscard]] std::vector<uint8_t> encode() const;
};

// Calls record(kind, number, answered, data) for each record of an image that decode() accepts, in
// the order of the bytes.
using EachRecord =
    std::function<void(Stored kind, uint32_t number, bool answered, std::span<const uint8_t> data)>;
void each_record(std::span<const uint8_t> image, const EachRecord& record);

// Puts the bytes of an image together.
class ImageBytes {
 public:
  ImageBytes(uint32_t begun, const ipc::Reply& reply);
  void add(Stored kind, uint32_t number, bool answered, std::span<const uint8_t> data);
  [[nodiscard]] std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace vrdma::vrdmad
