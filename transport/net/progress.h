// What a NetSender notes of a connection (core/rdma/notes.h), for the one that goes on in its
// place.
//
// The order: what leads to a packet is noted before the packet is sent; that a request is complete,
// before its completion is published; a step of a peer's request that others notice, before it is
// taken. So the next sender finds each such step noted and not taken, and takes it; or taken; or
// not noted, and then nobody has noticed anything and the peer sends the packet again. It sees
// which of the first two it is by what the step leaves: a completion has a number, a word of
// memory is not what it was, and the store of another thread has a mark (QpBlock::storing). What
// that thread has not begun counts as not noted. Between its two marks nobody knows; if the operand
// of an atomic is then neither what it was nor what it was to become, its answer is lost, and the
// queue pair goes to ERR.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/ipc/layout.h"
#include "core/rdma/notes.h"
#include "transport/net/requester.h"
#include "transport/net/responder.h"

namespace vrdma::transport::net {

// The numbers of the notes.
enum class Note : uint32_t { kSent, kReceived, kStep, kFirstResource };
// Resource number n is in note kFirstResource + n % kMostResources.
constexpr uint32_t kNotes = static_cast<uint32_t>(Note::kFirstResource) + Responder::kMostResources;
static_assert(kNotes <= rdma::Notes::kMost);

struct SentNote {
  Requester::Record record;
  uint32_t oldest = 0;  // request of the ring, to which record.request_psn belongs
  bool operator==(const SentNote&) const = default;
};

struct ReceivedNote {
  Responder::Record record;
  uint32_t claimed = 0;  // slot of the SRQ whose receive is in hand, plus 1
  bool operator==(const ReceivedNote&) const = default;
};

// The last step of the last message, if others can notice it.
struct StepNote {
  enum class Kind : uint32_t { kNone, kReceive, kWord, kStore, kChange };
  Kind kind = Kind::kNone;
  // kReceive: entry number `entry` of the inbox becomes this.
  uint32_t entry = 0;
  ipc::RecvEntry completion{};
  // kWord: the operand of an atomic, or the last bytes of a WRITE, become these. kStore: the last
  // bytes of a WRITE to memory that is reached, which a thread stores. kChange: the operand of an
  // atomic there, which a thread changes; nobody knows yet what it was.
  uint32_t length = 0;
  std::array<uint8_t, sizeof(uint64_t)> was{}, becomes{};
  // kStore, kChange: the record when that is done. Before, what is noted as received holds.
  Responder::Record then{};
};
static_assert(sizeof(StepNote) <= 256);

// False: the bytes are no such note.
[[nodiscard]] bool decode(std::span<const uint8_t> bytes, SentNote* note);
[[nodiscard]] bool decode(std::span<const uint8_t> bytes, ReceivedNote* note);
[[nodiscard]] bool decode(std::span<const uint8_t> bytes, StepNote* note);
[[nodiscard]] bool decode(std::span<const uint8_t> bytes, Responder::Resource* resource);

}  // namespace vrdma::transport::net
