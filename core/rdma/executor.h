// Executing one work request of a connected queue pair between two processes' memory.
//
// The same code runs in the program that posts (direct) and in a worker of the daemon (mediated).
// It has three steps, so that nothing is touched before everything is checked:
//
//   prepare()  checks keys, lengths, rights and the responder's receive; makes a Plan
//   perform()  moves the bytes, the last of them last (programs poll the end of a WRITE)
//   receive_entry()  is the receive's completion, which consumes the receive when it is published
//
// prepare() leaves no trace on failure, so a request may be prepared again later, elsewhere. A
// direct executor does only what succeeds; every other Outcome is for the worker to act on.
// What lies in memory that another party writes is copied once and then checked.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/ipc/layout.h"
#include "core/rdma/address_space.h"
#include "core/rdma/keys.h"
#include "core/verbs/types.h"

namespace vrdma::rdma {

enum class Outcome : uint8_t {
  kDone,
  kNoReceive,          // the responder has posted none: RNR
  kLocalLength,        // requester: the message or the atomic's result has no right length
  kLocalProtection,    // requester: an lkey does not cover what the SGE names
  kRemoteAccess,       // responder: the rkey does not allow it
  kRemoteInvalid,      // responder: misaligned atomic, operation not enabled
  kReceiveTooSmall,    // responder: the receive is shorter than the message
  kReceiveProtection,  // responder: an lkey of the receive does not cover what its SGE names
  kPeerBroken,         // the responder's ring indices are impossible
};

class Process;
class Imports;

// A process's memory as the executor sees it.
struct Memory {
  Keys keys;
  AddressSpace* space = nullptr;
  Process* process = nullptr;        // in the daemon
  const Imports* imports = nullptr;  // in the daemon: what keys of Way::kImported mean
};

// Whoever knows the regions that a process imported from another.
class Imports {
 public:
  // The region as its owner registered it, in the importer's protection domain, and whose
  // memory it is. False: `key` is no such region (any more).
  [[nodiscard]] virtual bool resolve(uint32_t key, Region* region, Memory* owner) const = 0;

 protected:
  ~Imports() = default;
};

// Where the receives of a queue pair's own stand (those of an SRQ: core/rdma/shared_receives.h).
struct ReceiveQueue {
  const ipc::Word* head = nullptr;
  const uint8_t* wqes = nullptr;
  uint32_t depth = 0;  // a power of two
  uint32_t max_sge = 0;
  uint32_t known_head = 0;  // as last looked at, so that the owner's line is left to it
};

[[nodiscard]] inline const uint8_t* receive_at(const ReceiveQueue& queue, uint32_t index) {
  return queue.wqes + uint64_t{index & (queue.depth - 1)} * ipc::recv_stride(queue.max_sge);
}

// Whether receive number `index` was posted as far as known_head tells.
[[nodiscard]] inline bool is_known(const ReceiveQueue& queue, uint32_t index) {
  return queue.known_head - index - 1 < queue.depth;
}

struct Requester {
  Memory memory;
  uint32_t pd = 0;
};

struct Responder {
  // Never AddressSpace::own(), also if the requester is the same process: an atomic on memory that
  // is not in place would else be another instruction than the one of the reach.
  Memory memory;
  uint32_t pd = 0;
  uint32_t qpn = 0;
  uint32_t access = 0;      // verbs::Access granted by the queue pair
  uint32_t receive_pd = 0;  // that of an SRQ may be another
  ReceiveQueue receives;
  uint32_t next_receive = 0;                // index of the receive that would be consumed
  const struct Receive* claimed = nullptr;  // or the one of an SRQ
};

// One stretch of a message: a pointer of our own (inline data), an address in `space`, or, with
// neither, nothing: it reads as zeroes, and what is written to it is gone.
struct Piece {
  uint8_t* data;
  uint64_t addr;
  uint64_t length;
  bool reached;  // not in place: only by way of the owner's page tables
  AddressSpace* space;
  Process* process;  // in the daemon: the owner

  static Piece of(uint8_t* data, uint64_t length) {
    return {data, 0, length, false, nullptr, nullptr};
  }
};

// Made for each request, so the pieces begin with nothing written to them.
struct PieceList {
  uint32_t count = 0;
  Piece pieces[ipc::kMaxSge];
};

// A work request copied out of its ring: the header and what stands behind it.
struct WorkRequest {
  ipc::SendWqe wqe;
  union {
    verbs::Sge sges[ipc::kMaxSge];
    uint8_t inline_data[ipc::kMaxInline];
  };
};

struct Receive {
  uint64_t wr_id;
  uint32_t slot;
  uint32_t num_sge;
  verbs::Sge sges[ipc::kMaxSge];
};

struct Plan {  // good only when prepare() has said kDone
  verbs::Opcode opcode;
  uint64_t length;  // bytes of the message
  bool reached;     // some piece is: perform() may not be called
  bool receives;    // `receive` is consumed when its entry is published
  PieceList source, target;
  Receive receive;
  // Atomics: the operand is `source`, the old value goes to `target`.
};

// The requester's half: its memory, and how long the message is.
[[nodiscard]] Outcome prepare_requester(WorkRequest& request, const Requester& requester,
                                        Plan* plan);
// The responder's half, of a plan whose opcode and length are known: the memory that the request
// names, and the receive that it completes. It needs nothing of the requester's memory, and may be
// repeated.
[[nodiscard]] Outcome prepare_responder(const WorkRequest& request, Responder& responder,
                                        Plan* plan);
[[nodiscard]] inline Outcome prepare(WorkRequest& request, const Requester& requester,
                                     Responder& responder, Plan* plan) {
  const Outcome local = prepare_requester(request, requester, plan);
  return local == Outcome::kDone ? prepare_responder(request, responder, plan) : local;
}

// Requires !plan.reached. False if memory could not be mapped: nothing was delivered, and the
// request may be tried in another way.
[[nodiscard]] bool perform(const WorkRequest& request, const Plan& plan);

// What an atomic makes of the operand.
[[nodiscard]] uint64_t changed(const WorkRequest& request, uint64_t old);

// Changes an atomic's operand, which is in place, by one instruction of the processor. False if it
// could not be mapped: nothing was changed.
[[nodiscard]] bool change_operand(const WorkRequest& request, const Piece& operand, uint64_t* old);

// Makes sure that perform() can touch `list`, where its memory is in place.
[[nodiscard]] bool map_pieces(const PieceList& list);

// The completion of a receive, in whose slot a message of `length` bytes arrived. `imm`: as in its
// request.
[[nodiscard]] inline ipc::RecvEntry receive_entry(uint32_t slot, uint64_t length,
                                                  verbs::Opcode opcode, bool solicited,
                                                  uint32_t imm, verbs::WcStatus status) {
  ipc::RecvEntry entry{};
  entry.slot = slot;
  entry.byte_len = static_cast<uint32_t>(length);
  entry.imm = imm;
  entry.opcode = static_cast<uint8_t>(opcode);
  entry.status = static_cast<uint8_t>(status);
  entry.flags = solicited ? ipc::kRecvSolicited : 0;
  return entry;
}

// The same of plan.receive.
[[nodiscard]] inline ipc::RecvEntry receive_entry(
    const WorkRequest& request, const Plan& plan,
    verbs::WcStatus status = verbs::WcStatus::kSuccess) {
  return receive_entry(plan.receive.slot, plan.length, plan.opcode,
                       (request.wqe.flags & ipc::kSolicited) != 0, request.wqe.imm, status);
}

// Copies receive number `index` out of the queue. kNoReceive, kPeerBroken, or kDone.
[[nodiscard]] Outcome fetch_receive(ReceiveQueue& queue, uint32_t index, Receive* receive);

// Lays `length` bytes over the receive's elements. kReceiveTooSmall, kReceiveProtection, kDone.
[[nodiscard]] Outcome scatter(const Receive& receive, const Memory& memory, uint32_t pd,
                              uint64_t length, PieceList* target, bool* reached);

// Finds the memory of `count` elements. kLocalProtection or kDone.
[[nodiscard]] Outcome gather(const verbs::Sge* sges, uint32_t count, const Memory& memory,
                             uint32_t pd, uint32_t access, PieceList* list, uint64_t* length,
                             bool* reached);

// The part of `list` from byte `offset`, `length` bytes long (less if the list ends before).
[[nodiscard]] PieceList slice(const PieceList& list, uint64_t offset, uint64_t length);

// Copies the whole of one piece to or from memory of our own.
[[nodiscard]] bool read_piece(const Piece& piece, uint8_t* to);
[[nodiscard]] bool write_piece(const uint8_t* from, const Piece& piece);

// Copies `length` > 0 bytes. The last ones are stored last and by plain stores, so that a program
// that polls the end of its buffer finds the rest there too (memcpy may store in any order). "Last"
// is the aligned word that the end lies in: it appears at once if it is all of the message's.
void copy_ordered_by_words(uint8_t* to, const uint8_t* from, uint64_t length);
[[gnu::always_inline]] inline void copy_ordered(uint8_t* to, const uint8_t* from, uint64_t length) {
  const auto store = [&]<class T>(T value) {
    std::memcpy(&value, from, sizeof value);
    __atomic_store_n(reinterpret_cast<T*>(to), value, __ATOMIC_RELAXED);
  };
  // What one store can do is done by one.
  const bool aligned = (reinterpret_cast<uintptr_t>(to) & (length - 1)) == 0;
  if (length == 8 && aligned) return store(uint64_t{});
  if (length == 4 && aligned) return store(uint32_t{});
  if (length == 2 && aligned) return store(uint16_t{});
  if (length == 1) return store(uint8_t{});
  copy_ordered_by_words(to, from, length);
}

// Copies plan bytes from one list to the other, front to back. False if memory cannot be mapped.
[[nodiscard]] bool copy_pieces(const PieceList& source, const PieceList& target);

}  // namespace vrdma::rdma
