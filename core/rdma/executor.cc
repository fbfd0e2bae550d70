#include "core/rdma/executor.h"

#include <algorithm>
#include <cstring>

namespace vrdma::rdma {

using verbs::Opcode;

void copy_ordered_by_words(uint8_t* to, const uint8_t* from, uint64_t length) {
  const auto end = reinterpret_cast<uintptr_t>(to) + length;
  const uint64_t tail = std::min<uint64_t>(length, (end - 1) % 8 + 1);
  if (length > tail) {
    std::memmove(to, from, length - tail);
    to += length - tail;
    from += length - tail;
    std::atomic_thread_fence(std::memory_order_release);
  }
  const auto store = [&]<class T>(T value) {
    std::memcpy(&value, from, sizeof value);
    __atomic_store_n(reinterpret_cast<T*>(to), value, __ATOMIC_RELAXED);
    to += sizeof value;
    from += sizeof value;
  };
  for (uint64_t left = tail; left > 0;) {
    const auto place = reinterpret_cast<uintptr_t>(to);
    const uint8_t* before = from;
    if (left >= 8)
      store(uint64_t{});
    else if (left >= 4 && place % 4 == 0)
      store(uint32_t{});
    else if (left >= 2 && place % 2 == 0)
      store(uint16_t{});
    else
      store(uint8_t{});
    left -= static_cast<uint64_t>(from - before);
  }
}

namespace {

// Of an atomic on memory that may have a hole. Where it is ordered, ThreadSanitizer carries it out
// under a lock of its own, which a fault would leave locked.
#ifdef __SANITIZE_THREAD__
constexpr int kAtomicOrder = __ATOMIC_RELAXED;
#else
constexpr int kAtomicOrder = __ATOMIC_SEQ_CST;
#endif

Outcome locate(const Memory& memory, uint32_t key, const KeyUser& user, uint32_t access,
               uint64_t addr, uint64_t length, Outcome refusal, Piece* piece) {
  Region copy;
  Memory exporter;
  const Memory* owner = &memory;
  const Region* found = memory.keys.find(key, &copy);
  if (found == nullptr) return refusal;
  if (found->way == ipc::Way::kImported) {
    if (memory.imports == nullptr || !memory.imports->resolve(key, &copy, &exporter))
      return refusal;
    found = &copy;
    owner = &exporter;
  }
  const Region& region = *found;
  if (!region.admits(user, access)) return refusal;
  const bool nothing = region.way == ipc::Way::kNull;
  if (nothing && user.qpn != 0) return refusal;  // nobody else's, whatever the entry says
  if (!nothing && !region.locate(addr, length, &piece->addr)) return refusal;
  piece->data = nullptr;
  if (nothing) piece->addr = 0;
  piece->length = length;
  piece->space = nothing ? nullptr : owner->space;
  piece->process = owner->process;
  piece->reached = !nothing && !owner->space->is_own() &&
                   (region.way != ipc::Way::kInPlace || owner->space->has_no_windows());
  return Outcome::kDone;
}

Outcome remote(const WorkRequest& request, const Responder& responder, uint32_t access,
               uint64_t length, PieceList* list, bool* reached) {
  list->count = 0;
  if (length == 0) return Outcome::kDone;  // IBTA C9-88: the key of nothing is not looked at
  list->count = 1;
  const Outcome found =
      locate(responder.memory, request.wqe.rdma.rkey, {responder.pd, responder.qpn}, access,
             request.wqe.rdma.remote_addr, length, Outcome::kRemoteAccess, &list->pieces[0]);
  *reached |= found == Outcome::kDone && list->pieces[0].reached;
  return found;
}

Outcome prepare_atomic(const WorkRequest& request, const Responder& responder, Plan* plan) {
  if ((responder.access & verbs::kRemoteAtomic) == 0) return Outcome::kRemoteInvalid;
  if (request.wqe.rdma.remote_addr % 8 != 0) return Outcome::kRemoteInvalid;
  const PieceList& operand = plan->source;
  const Outcome found =
      remote(request, responder, verbs::kRemoteAtomic, 8, &plan->source, &plan->reached);
  if (found != Outcome::kDone) return found;
  return operand.pieces[0].addr % 8 == 0 ? Outcome::kDone : Outcome::kRemoteInvalid;
}

}  // namespace

Outcome gather(const verbs::Sge* sges, uint32_t count, const Memory& memory, uint32_t pd,
               uint32_t access, PieceList* list, uint64_t* length, bool* reached) {
  list->count = 0;
  *length = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (sges[i].length == 0) continue;
    Piece& piece = list->pieces[list->count];
    const Outcome found = locate(memory, sges[i].lkey, {pd}, access, sges[i].addr, sges[i].length,
                                 Outcome::kLocalProtection, &piece);
    if (found != Outcome::kDone) return found;
    *reached |= piece.reached;
    *length += piece.length;
    ++list->count;
  }
  return Outcome::kDone;
}

Outcome fetch_receive(ReceiveQueue& queue, uint32_t index, Receive* receive) {
  if (!is_known(queue, index)) queue.known_head = queue.head->load(std::memory_order_acquire);
  const uint32_t posted = queue.known_head - index;
  if (posted == 0) return Outcome::kNoReceive;
  if (posted > queue.depth) return Outcome::kPeerBroken;
  const uint32_t slot = index & (queue.depth - 1);
  const uint8_t* from = receive_at(queue, index);
  ipc::RecvWqe wqe;
  std::memcpy(&wqe, from, sizeof wqe);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (wqe.num_sge > queue.max_sge) return Outcome::kPeerBroken;
  receive->wr_id = wqe.wr_id;
  receive->slot = slot;
  receive->num_sge = wqe.num_sge;
  std::memcpy(receive->sges, from + sizeof wqe, wqe.num_sge * sizeof(verbs::Sge));
  return Outcome::kDone;
}

Outcome scatter(const Receive& receive, const Memory& memory, uint32_t pd, uint64_t length,
                PieceList* target, bool* reached) {
  target->count = 0;
  for (uint32_t i = 0; i < receive.num_sge && length > 0; ++i) {
    const uint64_t part = std::min<uint64_t>(receive.sges[i].length, length);
    if (part == 0) continue;
    Piece& piece = target->pieces[target->count];
    const Outcome found = locate(memory, receive.sges[i].lkey, {pd}, verbs::kLocalWrite,
                                 receive.sges[i].addr, part, Outcome::kReceiveProtection, &piece);
    if (found != Outcome::kDone) return found;
    *reached |= piece.reached;
    length -= part;
    ++target->count;
  }
  return length == 0 ? Outcome::kDone : Outcome::kReceiveTooSmall;
}

Outcome prepare_requester(WorkRequest& request, const Requester& requester, Plan* plan) {
  const auto& wqe = request.wqe;
  plan->opcode = static_cast<Opcode>(wqe.opcode);
  plan->reached = false;
  const bool to_local = plan->opcode == Opcode::kRdmaRead || is_atomic(plan->opcode);
  PieceList& local = to_local ? plan->target : plan->source;

  if (plan->opcode == Opcode::kAtomicWrite) {
    local.count = 1;
    local.pieces[0] =
        Piece::of(reinterpret_cast<uint8_t*>(&request.wqe.rdma.compare_add), sizeof(uint64_t));
    plan->length = sizeof(uint64_t);
  } else if ((wqe.flags & ipc::kInline) != 0) {
    if (to_local) return Outcome::kLocalProtection;  // an answer has no place in a request
    local.count = wqe.inline_length > 0 ? 1 : 0;
    local.pieces[0] = Piece::of(request.inline_data, wqe.inline_length);
    plan->length = wqe.inline_length;
  } else {
    const Outcome found =
        gather(request.sges, wqe.num_sge, requester.memory, requester.pd,
               to_local ? verbs::kLocalWrite : 0u, &local, &plan->length, &plan->reached);
    if (found != Outcome::kDone) return found;
  }
  if (plan->length > verbs::kMaxMessage) return Outcome::kLocalLength;
  return !is_atomic(plan->opcode) || plan->length == 8 ? Outcome::kDone : Outcome::kLocalLength;
}

Outcome prepare_responder(const WorkRequest& request, Responder& responder, Plan* plan) {
  plan->receives = consumes_receive(plan->opcode);
  if (is_atomic(plan->opcode)) return prepare_atomic(request, responder, plan);

  if (plan->opcode == Opcode::kRdmaRead) {
    if ((responder.access & verbs::kRemoteRead) == 0) return Outcome::kRemoteInvalid;
    return remote(request, responder, verbs::kRemoteRead, plan->length, &plan->source,
                  &plan->reached);
  }
  if (is_write(plan->opcode)) {
    if ((responder.access & verbs::kRemoteWrite) == 0) return Outcome::kRemoteInvalid;
    const Outcome found = remote(request, responder, verbs::kRemoteWrite, plan->length,
                                 &plan->target, &plan->reached);
    if (found != Outcome::kDone) return found;
    // Stored at once, as copy_ordered does with what is aligned.
    if (plan->opcode == Opcode::kAtomicWrite &&
        (request.wqe.rdma.remote_addr % 8 != 0 || plan->target.pieces[0].addr % 8 != 0))
      return Outcome::kRemoteInvalid;
  }
  if (!plan->receives) return Outcome::kDone;
  Outcome fetched = Outcome::kDone;
  if (responder.claimed != nullptr)
    plan->receive = *responder.claimed;
  else
    fetched = fetch_receive(responder.receives, responder.next_receive, &plan->receive);
  if (fetched != Outcome::kDone || !is_send(plan->opcode)) return fetched;
  return scatter(plan->receive, responder.memory, responder.receive_pd, plan->length, &plan->target,
                 &plan->reached);
}

PieceList slice(const PieceList& list, uint64_t offset, uint64_t length) {
  PieceList part;
  for (uint32_t i = 0; i < list.count && length > 0; ++i) {
    Piece piece = list.pieces[i];
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    if (piece.data != nullptr) piece.data += offset;
    piece.addr += offset;
    piece.length = std::min(piece.length - offset, length);
    length -= piece.length;
    offset = 0;
    part.pieces[part.count++] = piece;
  }
  return part;
}

namespace {

constexpr uint8_t kZeroes[4096] = {};

// Where the bytes of `piece` from `offset` on are, good for *run of them.
const uint8_t* source_at(const Piece& piece, uint64_t offset, uint64_t length, uint64_t* run) {
  if (piece.space != nullptr) return piece.space->at(piece.addr + offset, length, run);
  *run = piece.data != nullptr ? length : std::min<uint64_t>(length, sizeof kZeroes);
  return piece.data != nullptr ? piece.data + offset : kZeroes;
}

}  // namespace

bool map_pieces(const PieceList& list) {
  for (uint32_t i = 0; i < list.count; ++i) {
    const Piece& piece = list.pieces[i];
    uint64_t run = 0;
    for (uint64_t at = 0; piece.space != nullptr && at < piece.length; at += run)
      if (piece.space->at(piece.addr + at, piece.length - at, &run) == nullptr) return false;
  }
  return true;
}

bool read_piece(const Piece& piece, uint8_t* to) {
  for (uint64_t done = 0; done < piece.length;) {
    uint64_t run = 0;
    const uint8_t* from = source_at(piece, done, piece.length - done, &run);
    if (from == nullptr) return false;
    std::memcpy(to + done, from, run);
    done += run;
  }
  return true;
}

bool write_piece(const uint8_t* from, const Piece& piece) {
  if (piece.space == nullptr) return true;
  for (uint64_t done = 0; done < piece.length;) {
    uint64_t run = 0;
    uint8_t* to = piece.space->at(piece.addr + done, piece.length - done, &run);
    if (to == nullptr) return false;
    copy_ordered(to, from + done, run);
    done += run;
  }
  return true;
}

bool copy_pieces(const PieceList& source, const PieceList& target) {
  uint32_t from = 0;
  uint64_t from_offset = 0;
  for (uint32_t to = 0; to < target.count; ++to) {
    const Piece& sink = target.pieces[to];
    for (uint64_t done = 0; done < sink.length;) {
      while (from < source.count && from_offset == source.pieces[from].length) {
        ++from;
        from_offset = 0;
      }
      if (from == source.count) return true;
      const Piece& origin = source.pieces[from];
      uint64_t run = std::min(sink.length - done, origin.length - from_offset);
      if (sink.space != nullptr) {
        const uint8_t* read = source_at(origin, from_offset, run, &run);
        if (read == nullptr) return false;
        uint8_t* write = sink.space->at(sink.addr + done, run, &run);
        if (write == nullptr) return false;
        const bool last = to + 1 == target.count && done + run == sink.length;
        if (last)
          copy_ordered(write, read, run);
        else
          std::memmove(write, read, run);  // a program may name memory that overlaps
      }
      done += run;
      from_offset += run;
    }
  }
  return true;
}

uint64_t changed(const WorkRequest& request, uint64_t old) {
  const auto& rdma = request.wqe.rdma;
  if (static_cast<Opcode>(request.wqe.opcode) == Opcode::kFetchAdd) return old + rdma.compare_add;
  return old == rdma.compare_add ? rdma.swap : old;
}

bool change_operand(const WorkRequest& request, const Piece& operand, uint64_t* old) {
  uint64_t run = 0;
  if (operand.space == nullptr) return false;
  auto* word = reinterpret_cast<uint64_t*>(operand.space->at(operand.addr, sizeof(uint64_t), &run));
  if (word == nullptr) return false;
  const auto& rdma = request.wqe.rdma;
  if (static_cast<Opcode>(request.wqe.opcode) == Opcode::kFetchAdd) {
    *old = __atomic_fetch_add(word, rdma.compare_add, kAtomicOrder);
  } else {
    *old = rdma.compare_add;
    __atomic_compare_exchange_n(word, old, rdma.swap, false, kAtomicOrder, kAtomicOrder);
  }
  return true;
}

bool perform(const WorkRequest& request, const Plan& plan) {
  if (!is_atomic(plan.opcode)) return copy_pieces(plan.source, plan.target);
  uint64_t run = 0;
  // The result's place must be there before the operand changes.
  PieceList old_value;
  old_value.count = 1;
  uint64_t old = 0;
  old_value.pieces[0] = Piece::of(reinterpret_cast<uint8_t*>(&old), sizeof old);
  const Piece& result = plan.target.pieces[0];
  if (result.space != nullptr && result.space->at(result.addr, 1, &run) == nullptr) return false;
  return change_operand(request, plan.source.pieces[0], &old) &&
         copy_pieces(old_value, plan.target);
}

}  // namespace vrdma::rdma
