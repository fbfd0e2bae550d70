// How a queue pair is paired with the peer that it names.
//
// A link is none, local (the peer is a queue pair of this daemon) or remote (it is on another
// host). The sends of queue pair A arrive at B when both are at least in RTR (A in RTS), name
// each other by GID and QPN, and A's sq_psn is B's rq_psn (Fabric::relink). Each direction of a
// local link is made once in the life of a queue pair between two RESETs. Meanwhile the peer may
// leave for another host and come back: the link becomes remote (Fabric::move_to) and local again,
// which neither program notices.
//
// Who executes. A local link is direct when the two processes trust each other (Context::trusts):
// then the initiator's program carries out its requests by itself, as long as nothing speaks
// against it (Qp::runs_direct). What a worker does on such a link completes in the same ring as
// what the program does, so that there is one order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/mapping.h"
#include "core/ipc/layout.h"
#include "core/rdma/arena_heap.h"
#include "core/verbs/gid.h"

namespace vrdma::rdma {

struct Qp;
struct Srq;

// Room in the initiator's arena for the completions of its direct link, read by the receiver; it
// stays until both queue pairs have gone.
struct Outbox {
  ArenaHeap::Range range;
  ipc::RecvRing* ring = nullptr;  // in `arena`
  uint32_t depth = 0;
  std::shared_ptr<const base::Mapping> arena;  // the initiator's, which it may outlive
};

// A peer on another host.
struct RemoteEnd {
  verbs::Gid gid;
  uint32_t qpn = 0;
  uint32_t sq_psn = 0, rq_psn = 0;  // of the next packet to it, and from it
};

// Why a worker executes what goes between two queue pairs of this host, for operators: the first
// reason that holds.
enum class NotDirect : uint8_t {
  kNone,           // the programs do it, or it is not so
  kType,           // datagrams and XRC
  kTenant,         // different ones
  kUser,           // the processes have different ones
  kUserNamespace,  // the processes are in different ones
  kNotDumpable,    // a process keeps others of its user out (PR_SET_DUMPABLE(2const))
  kOperator,       // Mediated::kNotDirect
  kRate,           // Mediated::kRate
  kPortDown,       // Mediated::kPortDown
  kParked,         // a program is being checkpointed
  kEarlier,        // a reason that has ended since they were connected
};

// Why a worker executes what programs could: reasons of one device, for all links from and to it.
enum class Mediated : uint8_t {
  kRate = 1,        // what it moves is paced
  kCapture = 2,     // what it moves is looked at
  kMigration = 4,   // it is about to move to another host
  kPinned = 8,      // to a transport that a program cannot use
  kNotDirect = 16,  // the operator said so
  kPortDown = 32,   // nothing goes from there or to it
};
class MediatedBecause {
 public:
  [[nodiscard]] bool has(Mediated reason) const { return (bits_ & bit(reason)) != 0; }
  [[nodiscard]] bool any() const { return bits_ != 0; }
  // A link that is made while one of these holds stays mediated, so that no program maps its
  // peer's memory.
  [[nodiscard]] bool lasts() const {
    return has(Mediated::kRate) || has(Mediated::kPinned) || has(Mediated::kNotDirect);
  }
  // False: it was so before.
  bool set(Mediated reason, bool holds) {
    const auto before = bits_;
    bits_ = static_cast<uint8_t>(holds ? bits_ | bit(reason) : bits_ & ~bit(reason));
    return bits_ != before;
  }

 private:
  static constexpr uint8_t bit(Mediated reason) { return static_cast<uint8_t>(reason); }
  uint8_t bits_ = 0;
};

struct Link {
  enum class Kind : uint8_t { kNone, kLocal, kRemote };

  Qp* out = nullptr;                       // local: where our sends arrive
  Qp* in = nullptr;                        // local: whose sends arrive here
  std::optional<RemoteEnd> remote;         // then neither `out` nor `in`
  bool out_made = false, in_made = false;  // a local one, since RESET
  bool out_direct = false;                 // the program may execute what goes `out`
  bool in_direct = false;          // receives complete in `peer_outbox`: a peer did so by itself
  bool peer_lost = false;          // the queue pair goes to ERR: mostly, because its peer has died
  uint32_t maps_peer = 0;          // id of the context whose arenas the program mapped at RTR
  uint32_t number = 0;             // of this direct link in claims of the peer's SRQ
  std::weak_ptr<Srq> claims;       // that SRQ
  std::shared_ptr<Outbox> outbox;  // completions of our sends
  std::shared_ptr<Outbox> peer_outbox;  // kept for what the peer delivered

  [[nodiscard]] Kind kind() const {
    if (remote) return Kind::kRemote;
    return out != nullptr || in != nullptr ? Kind::kLocal : Kind::kNone;
  }
};

}  // namespace vrdma::rdma
