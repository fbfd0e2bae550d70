// The memory that a process, its peers and the daemon share: theory of operation and layout.
//
// A session has a *queue arena* (written by its owner and the daemon; mapped read-only by peers
// with a direct link) and a *bell file* (written by anyone linked; hints only). A process has one
// *memory arena* for all its sessions, in which offset = virtual address.
//
// A queue pair is a QpBlock and three rings, whose places the daemon chooses and tells:
//
//   send queue      SendWqe[sq_depth]     owner -> executor       head: block.sq_head
//   send results    SendResult[sq_depth]  executor -> owner       head: block.sq_tail
//   receive queue   RecvWqe[rq_depth]     owner -> initiator      head: block.rq_head
//   inbox           RecvEntry[depth]      initiator -> owner      head: ring.head
//
// Each index runs free over 32 bits; a slot is index & (depth - 1). A slot of the send (receive)
// queue is used again only after the program has polled its completion, so that no result and no
// inbox entry ever has to wait for room, and a completion queue cannot overrun: it is no ring of
// its own but the sum of its queue pairs' results and inboxes.
//
// The store of an inbox entry's own number publishes it and consumes the receive in one: whoever
// dies, there is no moment at which a receive is neither posted nor completed. A receiver that
// polls so looks at one cache line, the entry's. The head follows, for those who count; it is one
// behind if the initiator died in between (head_of). The inbox of a mediated queue pair stands in
// its own arena and is written by the daemon; of a direct one, it is the *outbox* in the arena of
// the peer that initiates, and is only read by the receiver.
//
// A shared receive queue has several initiators: workers, and peers on direct links. Its receives
// are slots; the owner writes the numbers of posted slots into a ring, the daemon those of receives
// that were claimed and given back into another. An initiator copies the oldest receive that is
// posted and claims it by CAS of the slot's word; where to begin looking is a hint. The words and
// hints stand in the bell file, because all initiators write them. A word is
//
//   {0, n}            posted; n differs each time, so that what was copied is what is claimed
//   {1, 0}            claimed by a worker, which knows what it holds
//   {link, index}     claimed for entry `index` of that link's outbox: completed if the outbox's
//                     head is beyond `index`, else in progress. An initiator that dies in between
//                     has named the slot in its QpBlock.claiming, and the daemon gives it back.
//   0                 never posted
//
// Ordering: publish is a release store, look is an acquire load. A side that must not miss the
// other's word after storing its own uses AsymmetricFence (named at each place) or a full fence.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/verbs/types.h"

namespace vrdma::ipc {

constexpr uint64_t kQueueArenaSize = 8ull << 30;   // sparse
constexpr uint64_t kMemoryArenaSize = 1ull << 47;  // sparse; every user address of x86-64
constexpr uint64_t kWindowSize = 1ull << 30;       // of the memory arena, mapped on demand

// --- queue arena ---
// At its beginning, for whoever is handed the file as a context's command descriptor.
struct ArenaHeader {
  uint64_t magic;
  char vdevice[64];  // its name
  // Which daemon serves the session, by a number; by compare-and-swap: a new daemon that takes
  // the session over makes it its own number, the program that waits no longer makes it 0.
  std::atomic<uint32_t> epoch;
  // Written by the daemon after a key has ended or changed: counts them.
  std::atomic<uint32_t> key_changes;
};
constexpr uint64_t kArenaMagic = 0x7664726d61717565;
constexpr uint64_t kExportOffset = 3072;  // an ExportState (export_state.h); zeros mean none
constexpr uint32_t kMaxQpSlots = 65536;   // queue pairs of a session
constexpr uint32_t kMaxCqSlots = 65536;   // completion queues of a session
constexpr uint32_t kMaxKeys = 1u << 20;   // memory regions of a session
constexpr uint64_t kKickOffset = 4096;    // uint64_t[kMaxQpSlots / 64], one bit a QP slot
constexpr uint64_t kKeyOffset = 1u << 20;
constexpr uint64_t kHeapOffset = 128ull << 20;  // blocks and rings, allocated by the daemon

using Word = std::atomic<uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);

// While memory is put in place, the daemon's stopper keeps the other threads of the process from
// running (kHold). It, or all of the daemon, may be killed in between, and then they run. So the
// thread that copies claims each exchange of pages, and looks afterwards whether it was in time:
//
//   state  phase, of the hold with this serial. kHeld: nobody else runs. The program makes it
//          kExchanging while it maps, or kMoving if for a moment there are no pages at all, then
//          kHeld again, and at last kOver. The stopper makes it kOver only from kHeld: when the
//          hold has lasted too long. It waits for the end of kMoving as long as that takes.
//   rest   1 while the program has work for the hold. It makes it another number each time that it
//          has none: the stopper ends the hold unless the work goes on within kRest. A stopper that
//          lets programs rest makes it 1 before a hold; one that does not leaves it 0.
//   owner  number of the stopper's thread. It is a robust futex (set_robust_list(2)): when that
//          thread dies, the kernel sets FUTEX_OWNER_DIED here before it lets any thread go. The
//          stopper does the same if it must let go while the state is kExchanging.
//
// So if the owner is as it was when pages have been exchanged, nobody wrote to the old ones.
struct HoldWords {
  alignas(64) Word state;
  Word owner;
  Word rest;
};
constexpr auto kRest = std::chrono::milliseconds(1);
constexpr uint64_t kHoldOffset = 2048;
enum class HoldPhase : uint32_t { kOver = 0, kHeld = 1, kExchanging = 2, kMoving = 3 };
constexpr uint32_t kHoldSerials = 1u << 30;
constexpr uint32_t hold_word(HoldPhase phase, uint32_t serial) {
  return static_cast<uint32_t>(phase) | serial << 2;
}
constexpr HoldPhase hold_phase(uint32_t word) { return static_cast<HoldPhase>(word & 3); }

// Who executes a send queue's work requests: see transport/send_ring.h. kWorker and kAsked stand
// beside the epoch of the daemon that is meant, so that a program which takes a dead worker's token
// and a new daemon that goes on with its work do not meet.
enum class Token : uint32_t { kFree = 0, kClient = 1, kWorker = 2, kAsked = 3 };
constexpr uint32_t kEpochs = 1u << 24;
constexpr uint32_t token_word(Token token, uint32_t epoch) {
  return static_cast<uint32_t>(token) | epoch << 8;
}
constexpr Token token_in(uint32_t word) { return static_cast<Token>(word & 0xff); }
constexpr bool is_workers(uint32_t word) {
  return token_in(word) == Token::kWorker || token_in(word) == Token::kAsked;
}

// What a worker notes of the request at sq_tail before and after what others may notice of it, so
// that another one, after its death, neither repeats it nor leaves it out.
enum class Mark : uint32_t {
  kNone = 0,
  kBegun = 1,
  kDone = 2,
  kChanged = 3,  // an atomic has changed its operand, and SendWqe::old_value is the answer to bring
};
constexpr uint32_t mark_word(Mark mark, uint32_t index) {
  return static_cast<uint32_t>(mark) | index << 2;
}

// How the work of a send queue reaches the peer.
enum class Link : uint32_t { kNone = 0, kMediated = 1, kDirect = 2 };

struct QpBlock {
  // Written by the owner.
  alignas(64) Word sq_head;  // work requests published
  Word busy;                 // odd while the owner executes on its direct link
  Word claiming;             // slot of the peer's SRQ that the owner claimed last, plus 1
  std::atomic<uint64_t> direct_requests;  // that the owner executed by itself, ever
  std::atomic<uint64_t> direct_bytes;     // that these moved; see core/rdma/traffic.h
  std::atomic<uint64_t> direct_reads;     // of these requests: READs and atomics
  std::atomic<uint64_t> direct_read_bytes;
  // While `busy` is odd: where the owner may store in its peer's memory, so that a peer that cannot
  // wait for it any longer knows which pages to take back.
  std::atomic<uint64_t> aim, aim_length;
  alignas(64) Word rq_head;  // receives published (unused with an SRQ)
  // Written by both, by compare-and-swap where they could meet.
  alignas(64) Word token;
  // Written by who holds the token.
  alignas(64) Word sq_tail;  // work requests executed; their results stand
  Word mark;                 // mark_word(), of a worker
  Word mark_receive;         // the entry of the peer's inbox that its completion will be
  // Written by the daemon.
  alignas(64) Word state;      // verbs::QpState
  Word link;                   // Link, of this queue pair's send queue
  Word inbox_direct;           // 1: receives arrive in the peer's outbox, after those of the inbox
  Word blocked;                // 1: the worker waits for something; asking for the token is vain
  Word access;                 // verbs::Access that peers have through this queue pair
  Word arriving;               // not 0: bytes may still arrive by way of it; nothing is flushed yet
  alignas(64) Word rq_waiter;  // 1: tell the daemon (doorbell) when a receive is posted
  // Of a WRITE or an atomic by a peer on another host, whose last bytes, or whose operand, a thread
  // of the daemon stores: how far that is, and what stood there before.
  Word storing;  // mark_word(), of the psn that follows it
  std::atomic<uint64_t> stood;
};
static_assert(sizeof(QpBlock) == size_t{6} * 64);

struct SendWqe {
  uint64_t wr_id;
  uint8_t opcode;  // verbs::Opcode
  uint8_t flags;   // SendFlags
  uint16_t num_sge;
  uint32_t imm;            // as it goes on the wire: big-endian; or the rkey to invalidate
  uint32_t inline_length;  // bytes behind the header instead of elements, if kInline
  uint32_t srqn;           // of an XRC initiator: the SRQ at the other end
  union {
    struct {
      uint64_t remote_addr;
      uint64_t compare_add;  // of an atomic write: the value
      uint64_t swap;
      uint32_t rkey;
    } rdma;
    struct {
      uint8_t dgid[16];
      uint32_t qpn;
      uint32_t qkey;
      uint32_t flow_label;
      uint8_t sgid_index;
      uint8_t traffic_class;
      uint8_t hop_limit;
      uint8_t sl;
    } ud;
    struct {
      uint64_t addr;    // as the memory region calls it
      uint64_t length;  // 0: unbind
      uint32_t mr;      // handle, or kNoObject with length 0
      uint32_t access;  // verbs::Access
      uint32_t window;  // handle
      uint32_t rkey;    // the new one
    } bind;
  };
  // Written by a worker, with a mark: what the operand of an atomic was, or the last bytes of a
  // WRITE's target, before this request.
  uint64_t old_value;
  // verbs::Sge[num_sge] or inline_length bytes follow, up to the queue's stride.
};
static_assert(sizeof(SendWqe) == 64);

enum SendFlags : uint8_t { kSignaled = 1, kSolicited = 2, kFence = 4, kInline = 8 };

struct SendResult {
  uint32_t status;    // verbs::WcStatus
  uint32_t byte_len;  // of a READ or an atomic
};

struct RecvWqe {
  uint64_t wr_id;
  uint32_t num_sge;
  uint32_t reserved;
  // verbs::Sge[num_sge] follows, up to the queue's stride.
};
static_assert(sizeof(RecvWqe) == 16);

struct RecvEntry {
  uint32_t slot;      // of the SRQ's WQE; of a QP's own receive queue: the index, low bits
  uint32_t byte_len;  // of a datagram, the 40 bytes of the GRH included
  uint32_t imm;       // big-endian; or the rkey that was invalidated
  uint32_t src_qpn;   // of a datagram
  uint8_t opcode;     // verbs::Opcode of the initiator
  uint8_t status;     // verbs::WcStatus
  uint8_t flags;      // RecvFlags
  uint8_t sl;         // of a datagram, the kind of its header: see transport/shm/datagram.cc
  uint32_t qpn;       // in the inbox of an XRC SRQ: the target queue pair
  uint32_t number;    // its index + 1 once it stands; see publish()
  uint32_t reserved;
};
static_assert(sizeof(RecvEntry) == 32);

enum RecvFlags : uint8_t { kRecvSolicited = 1, kRecvGrh = 2 };

// An inbox or outbox: the head, then the entries.
struct RecvRing {
  alignas(64) Word head;
  RecvEntry* entries() { return reinterpret_cast<RecvEntry*>(this + 1); }
  const RecvEntry* entries() const { return reinterpret_cast<const RecvEntry*>(this + 1); }
};
static_assert(sizeof(RecvRing) == 64);
constexpr uint64_t recv_ring_bytes(uint32_t depth) {
  return sizeof(RecvRing) + uint64_t{depth} * sizeof(RecvEntry);
}
// The entry `index` of a ring of `depth`, which was zero when it was made, stands from now on.
inline void publish(RecvRing* ring, uint32_t depth, uint32_t index, const RecvEntry& entry) {
  RecvEntry& to = ring->entries()[index & (depth - 1)];
  std::memcpy(&to, &entry, offsetof(RecvEntry, number));
  __atomic_store_n(&to.number, index + 1, __ATOMIC_RELEASE);
  ring->head.store(index + 1, std::memory_order_release);
}
[[nodiscard]] inline bool stands(const RecvRing& ring, uint32_t depth, uint32_t index) {
  return __atomic_load_n(&ring.entries()[index & (depth - 1)].number, __ATOMIC_ACQUIRE) ==
         index + 1;
}
// How many entries were published, also by an initiator that died.
[[nodiscard]] inline uint32_t head_of(const RecvRing& ring, uint32_t depth) {
  const uint32_t head = ring.head.load(std::memory_order_acquire);
  return stands(ring, depth, head) ? head + 1 : head;
}
// The same for the ring's next writer, who goes by the head alone: one that died may have left it
// one entry behind.
[[nodiscard]] inline uint32_t settle_head(RecvRing* ring, uint32_t depth) {
  const uint32_t head = head_of(*ring, depth);
  ring->head.store(head, std::memory_order_release);
  return head;
}
// Whether a writer that follows the rules can have left the ring so.
[[nodiscard]] inline bool is_sound(const RecvRing& ring, uint32_t depth) {
  const uint32_t head = ring.head.load(std::memory_order_acquire);
  for (uint32_t back = 1; back <= depth && back <= head; ++back)
    if (!stands(ring, depth, head - back)) return false;
  return true;
}
// Makes the ring as it was made: for its writer, while nobody reads it.
inline void clear(RecvRing* ring, uint32_t depth) {
  const uint32_t head = ring->head.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < depth && i < head; ++i) ring->entries()[i].number = 0;
  ring->head.store(0, std::memory_order_relaxed);
}

// A shared receive queue: this, uint32_t posted[depth], uint32_t returned[depth], RecvWqe[depth].
// One of an XRC domain has an inbox too, for its queue pairs may be another process's.
struct SrqBlock {
  alignas(64) Word head;           // owner: slots posted
  alignas(64) Word returned_head;  // daemon: slots given back
  Word waiter;                     // daemon: 1: tell it when a receive is posted
  Word limit;                      // daemon: tell it when fewer receives wait; 0: never
};
static_assert(sizeof(SrqBlock) == 128);
constexpr uint64_t srq_wqes_at(uint32_t depth) {
  return (sizeof(SrqBlock) + uint64_t{depth} * 2 * sizeof(uint32_t) + 63) / 64 * 64;
}

// Beside it in the bell file.
struct SrqClaims {
  alignas(64) Word hint;  // of the posted slots before it all are claimed
  Word returned_hint;     // the same of the returned ones
  [[nodiscard]] std::atomic<uint64_t>* words() {
    return reinterpret_cast<std::atomic<uint64_t>*>(this + 1);
  }
};
constexpr uint64_t srq_claims_bytes(uint32_t depth) {
  return sizeof(SrqClaims) + uint64_t{depth} * sizeof(uint64_t);
}
constexpr uint32_t kFirstLink = 2;
constexpr uint32_t kReturned = 1u << 31;  // in the number of a slot that the daemon gave back
constexpr uint64_t kClaimedByWorker = 1ull << 32;
constexpr uint64_t claimed_by(uint32_t link, uint32_t index) {
  return uint64_t{link} << 32 | index;
}
constexpr bool is_posted(uint64_t word) { return word != 0 && word >> 32 == 0; }

constexpr uint32_t send_stride(uint32_t max_sge, uint32_t max_inline) {
  const uint32_t payload = max_sge * 16 > max_inline ? max_sge * 16 : max_inline;
  return (64 + payload + 63) / 64 * 64;
}
constexpr uint32_t recv_stride(uint32_t max_sge) { return 16 + max_sge * 16; }

// --- keys ---
// How the pages of a memory region can be got at.
enum class Way : uint32_t {
  kInPlace = 1,
  kReached = 2,
  kNull = 3,      // no pages: reads as zeroes, and what is written is gone
  kImported = 4,  // of another process; only the daemon knows where it is
};

// Of a key: bits 8 to 27 are the slot in the table, the others a random tag, of which a program
// chooses the low 8 bits when it binds a window. Slot 0 is never used, so that key 0 is never
// valid.
constexpr uint32_t kSlotBits = (kMaxKeys - 1) << 8;
constexpr uint32_t slot_of(uint32_t key) { return (key & kSlotBits) >> 8; }
constexpr uint32_t key_of(uint32_t slot, uint32_t tag) { return slot << 8 | (tag & ~kSlotBits); }

// Written by the daemon, read by programs under the sequence count (odd: being changed). Workers
// never read it: see core/rdma/keys.h.
struct KeyEntry {
  Word sequence;
  uint32_t key;  // 0: free
  uint32_t pd;
  uint32_t access;  // verbs::Access
  uint64_t addr;    // virtual address in the owner's process
  uint64_t length;  // bytes
  uint64_t iova;    // what remote peers and SGEs call `addr`
  uint32_t way;     // Way
  uint32_t window;  // 1: a memory window: an rkey, no lkey
  uint32_t qpn;     // 0, or the only queue pair through which it may be used
  uint32_t reserved[3];
};
static_assert(sizeof(KeyEntry) == 64);
static_assert(kKeyOffset + uint64_t{kMaxKeys} * sizeof(KeyEntry) <= kHeapOffset);

// --- bell file ---
// When a completion channel gets an event. The owner asks (kNext, kSolicited). The producer that
// tells makes it kTelling, beside the epoch of its daemon (0: a program), writes to the channel,
// and makes it kNone: after a daemon's death the owner knows that an event may be missing, and
// whose.
enum class Arm : uint32_t { kNone = 0, kNext = 1, kSolicited = 2, kTelling = 3 };
constexpr uint32_t kProgram = 0;  // in the place of an epoch
constexpr uint32_t arm_word(Arm arm, uint32_t epoch = 0) {
  return static_cast<uint32_t>(arm) | epoch << 8;
}
constexpr Arm arm_in(uint32_t word) { return static_cast<Arm>(word & 0xff); }
constexpr bool is_armed(uint32_t word) {
  return arm_in(word) == Arm::kNext || arm_in(word) == Arm::kSolicited;
}

// In a CQ of many queue pairs, whoever publishes a completion also marks the queue pair, so that a
// poll looks at those alone; see core/ipc/bell.h.
constexpr uint32_t kNews = 1024;     // a queue pair's: qpn % kNews
constexpr uint32_t kNewsGroup = 64;  // a cache line of news
constexpr uint32_t kNewsGroups = kNews / kNewsGroup;
struct CqBell {
  alignas(64) Word arm;
  Word many;                                // owner: 1: it looks at the marks
  Word untold;                              // epoch of the worker that has published and not told
  alignas(64) uint8_t groups[kNewsGroups];  // 1: there are some in that group
  alignas(64) uint8_t news[kNews];          // 1: set by producers, cleared by the owner
};
constexpr uint64_t kClaimsOffset = uint64_t{kMaxCqSlots} * sizeof(CqBell);  // SrqClaims
constexpr uint64_t kBellFileSize = kClaimsOffset + (256ull << 20);          // sparse

// What is written into a completion channel: the slot of the completion queue.
struct ChannelMessage {
  uint32_t cq;
  uint32_t reserved;
};

constexpr uint32_t kMaxRdAtomic = 128;  // of a queue pair, in either direction
constexpr uint32_t kMaxSge = 16;
constexpr uint32_t kMaxInline = 512;  // bytes
constexpr uint32_t kMaxQueueDepth = 32768;
// Slots that an SRQ has at least, so that it can be made larger: its rings never move.
constexpr uint32_t kMinSrqDepth = 1024;

}  // namespace vrdma::ipc
