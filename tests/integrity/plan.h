// What all members do, as a function of a seed: each member derives the same, so it knows what
// every other one posts, and what every byte of every member must be afterwards.
//
// An *epoch* is a set of objects (World) and some *batches* of work on it. Within a batch, no byte
// is written by one stream and used by another: whatever order the streams run in, the result is
// one. Within a stream, what overlaps is ordered by the rules of the reliable service
// (IBTA 10.8.3.3), by a fence where they ask for one.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/integrity/base.h"

namespace integrity {

// --- objects ---

enum class Memory : uint8_t { kAnonymous, kShared, kHeap, kPrivateFile, kStatic, kCount };
inline constexpr std::array kMemoryNames{"anonymous", "shared", "heap", "private file", "static"};

struct Area {  // memory of one member, of which regions register parts
  Memory memory;
  uint32_t size;
};
struct Region {  // a memory region
  uint32_t area, at, length;
};
struct Queue {       // a completion queue
  unsigned threads;  // that poll it; 0: the member's main thread
  bool events;       // they sleep in its channel
  bool extended;     // polled by ibv_start_poll()
  bool ordered;      // one thread at a time, so that the order can be checked
};
struct Member {
  std::vector<Area> areas;
  std::vector<Region> regions;
  uint32_t spare;  // a region that only a link that ends uses
  std::vector<Queue> queues;
};

constexpr uint32_t kInline = 64;           // bytes
constexpr uint32_t kSharedReceives = 400;  // of each member's SRQ
constexpr uint32_t kSharedReceiveSize = 1024;
constexpr uint32_t kDatagrams = 48;  // receives of each member's UD queue pair
constexpr uint32_t kDatagramSize = 1024;
constexpr uint32_t kGrh = 40;
constexpr uint32_t kDepth = 128;  // of send and receive queues
constexpr uint32_t kPieces = 4;   // scatter/gather elements

struct End {  // one queue pair of a link
  unsigned member, send_queue, receive_queue;
  bool shared_receives, all_signaled, builder;  // builder: posts by ibv_wr_*
};
struct Link {
  ibv_qp_type type;  // RC or UC
  std::array<End, 2> ends;
  uint8_t outstanding_reads;
};
// Parts of a plan that can be left out, to find the smallest one that fails. The rest stays as it
// is.
inline constexpr std::array kPartNames{"write", "write-imm",  "send",      "send-imm", "send-inv",
                                       "read",  "swap",       "add",       "windows",  "late",
                                       "ends",  "ping-pongs", "datagrams", "regions"};
enum Part : uint32_t { kWindows = 8, kLate, kEnds, kPingPongs, kDatagramsPart, kRegions };

struct World {
  uint32_t without;  // bits: kPartNames
  [[nodiscard]] bool has(uint32_t part) const { return (without >> part & 1) == 0; }
  uint64_t seed;
  std::vector<Member> members;
  std::vector<Link> links;
  bool close_only;  // the device is closed with all its objects
};

// The key of what an area of a member begins with.
inline uint64_t first_key(const World& world, size_t member, size_t area) {
  return mixed(world.seed + member * 64 + area);
}
// `unreliable`: UC can be used, because nothing is lost between any two members.
World make_world(uint64_t seed, unsigned members, bool unreliable, uint32_t without = 0);

// --- work ---

enum class Kind : uint8_t {
  kWrite,
  kWriteImmediate,
  kSend,
  kSendImmediate,
  kSendInvalidate,
  kRead,
  kSwap,
  kAdd,
  kCount
};
inline constexpr std::array kKindNames{"WRITE",         "WRITE_WITH_IMM", "SEND",
                                       "SEND_WITH_IMM", "SEND_WITH_INV",  "READ",
                                       "CMP_SWAP",      "FETCH_ADD"};
constexpr bool consumes_receive(Kind kind) {
  return kind >= Kind::kWriteImmediate && kind <= Kind::kSendInvalidate;
}
constexpr bool is_send(Kind kind) { return kind >= Kind::kSend && kind <= Kind::kSendInvalidate; }
constexpr bool is_atomic(Kind kind) { return kind == Kind::kSwap || kind == Kind::kAdd; }
constexpr bool has_immediate(Kind kind) {
  return kind == Kind::kWriteImmediate || kind == Kind::kSendImmediate;
}
constexpr bool stores_locally(Kind kind) { return kind == Kind::kRead || is_atomic(kind); }

struct Piece {  // bytes of a member, by way of one of its regions
  uint32_t region, area, at, length;
};
using Pieces = std::vector<Piece>;

struct Op {
  Kind kind;
  Pieces local;
  Piece remote{};  // not of a SEND
  uint32_t length = 0;
  uint32_t immediate = 0;
  uint64_t operand = 0, swap = 0;  // of atomics: compare or add
  bool hits = false;               // the compare finds its value
  bool signaled = false, fenced = false, solicited = false, inlined = false, by_window = false;
  bool bad_remote = false, bad_local = false;  // a wrong key
};
struct Receive {
  Pieces pieces;
  uint32_t length = 0;  // of all pieces
};
enum class Window : uint8_t { kNone, kType1, kType2 };
struct Stream {  // what one end of a link posts, and the other end's receives
  unsigned link, from;
  std::vector<Op> ops;
  std::vector<Receive> receives;  // not of an SRQ
  bool late = false;              // some receives are posted when messages are on their way
  Window window = Window::kNone;  // of the other end, for this stream
  Piece bound{};
};

enum class Way : uint8_t {
  kError,
  kReset,
  kDestroy,
  kDeregister,
  kReregister,
  kBadRemote,
  kBadLocal,
  kCount
};
inline constexpr std::array kWayNames{"ERR",   "RESET",      "destroy",   "dereg",
                                      "rereg", "wrong rkey", "wrong lkey"};

struct Ending {  // of a link, in the middle of a batch
  unsigned link, by;
  Way way;
  uint32_t after;  // completions of its end
};
// A ping-pong on one link, in which each side looks at its memory as soon as it may.
enum class Sign : uint8_t { kFlag, kImmediate, kSend, kAdd, kReadBack, kCount };
inline constexpr std::array kSignNames{"write, flag", "write, immediate", "write, send",
                                       "write, add", "write, read back"};
struct PingPong {
  unsigned link;
  Sign sign;
  bool inlined;
  uint32_t rounds;
  std::array<Piece, 2> data, flag, answer;  // by side; `answer` is what it reads back or sends
};
struct Batch {
  uint64_t seed;
  std::vector<Stream> streams;
  std::optional<Ending> ending;
  std::optional<PingPong> ping_pong;
  std::vector<std::pair<unsigned, unsigned>> anew;  // member, region: registered anew before
  unsigned datagrams = 0;                           // that each member sends to each
  [[nodiscard]] bool ends(unsigned link) const { return ending && ending->link == link; }
};

Batch make_batch(const World& world, uint64_t seed);

}  // namespace integrity
