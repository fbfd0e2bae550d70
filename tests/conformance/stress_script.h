// One side's operations on the other, as a function of a seed. Both ends know it, so the receiving
// end can check each byte without further messages.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <random>
#include <vector>

namespace conformance {

constexpr size_t kMaxMessage = 3u << 20;
constexpr size_t kRemoteSize = 6u << 20;  // targets of RC peers' WRITEs, READs and atomics
constexpr size_t kMaxPieces = 16;         // scatter/gather elements
constexpr size_t kMaxGap = 64;            // bytes between pieces
constexpr size_t kSlotSize = kMaxMessage + (kMaxPieces + 1) * kMaxGap;
constexpr size_t kSmallMessage = 2000;  // of UC and UD; fits all MTUs but the smallest

struct Op {
  ibv_wr_opcode opcode;
  uint64_t index;    // among all operations of this script
  uint64_t message;  // among those that consume a receive
  size_t length;     // bytes
  size_t remote;     // offset in the peer's memory
  uint64_t compare_add, swap;
  uint64_t key;      // of its bytes: fill()
  bool with_inline;  // if it fits
  bool signaled;
  bool solicited;
  [[nodiscard]] bool consumes_receive() const {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
           opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  [[nodiscard]] bool has_immediate() const {
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  [[nodiscard]] bool is_send() const {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
  }
  [[nodiscard]] bool is_atomic() const {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  }
  [[nodiscard]] bool answers() const { return opcode == IBV_WR_RDMA_READ || is_atomic(); }
  [[nodiscard]] uint32_t immediate() const { return static_cast<uint32_t>(message); }
};

class Script {
 public:
  Script(uint64_t seed, ibv_qp_type type, uint64_t count);
  [[nodiscard]] bool done() const { return index_ == count_; }
  Op next();
  // Skips to the next operation that consumes a receive; false if there are no more.
  bool next_message(Op* op);

 private:
  size_t random_length();
  uint64_t below(uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }

  uint64_t seed_;
  ibv_qp_type type_;
  uint64_t count_;
  uint64_t index_ = 0, messages_ = 0;
  std::mt19937_64 random_;
};

// `length` bytes in 1..max pieces with gaps between them, from the beginning of a slot.
struct Piece {
  size_t offset, length;
};
std::vector<Piece> random_pieces(std::mt19937_64& random, size_t length, size_t max_pieces);

// Fills the pieces with the bytes of `key`, and the gaps (and the gap behind) with 0xee.
void fill_pieces(uint8_t* slot, const std::vector<Piece>& pieces, uint64_t key);
void clear_pieces(uint8_t* slot, const std::vector<Piece>& pieces);
// The first `length` bytes of the pieces are those of `key` (or of `bytes`), all else is 0xee.
void check_pieces(const uint8_t* slot, const std::vector<Piece>& pieces, size_t length,
                  uint64_t key);
void check_pieces(const uint8_t* slot, const std::vector<Piece>& pieces,
                  const std::vector<uint8_t>& bytes);

}  // namespace conformance
