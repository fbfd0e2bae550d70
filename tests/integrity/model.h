// What every byte of every member must be.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tests/integrity/plan.h"

namespace integrity {

// Bytes that a link that ends in a batch may have stored, or not, or in part.
struct Doubt {
  unsigned member;
  unsigned side;  // of the link: whose memory it is
  Piece piece;
  std::vector<uint8_t> bytes;
  Kind kind;     // of the request
  bool is_sink;  // of a READ or an atomic of this side; otherwise the other side stores here
};
// A message that consumes a receive.
struct Message {
  Kind kind;
  uint32_t length, immediate;
  std::vector<uint8_t> bytes;  // where an SRQ receives it
};
struct Prediction {
  std::vector<Doubt> doubts;
  std::map<const Stream*, std::vector<Message>> messages;
};

class Model {
 public:
  explicit Model(const World& world);
  // The model is as after the batch; `batch` gets the operands of its atomics that hit.
  Prediction apply(Batch* batch);
  // Its owner has filled this anew.
  void refill(unsigned member, const Piece& piece, uint64_t key) {
    fill(bytes_of(member, piece), key);
  }
  [[nodiscard]] std::span<uint8_t> area(unsigned member, size_t index) {
    return bytes_[member][index];
  }

 private:
  std::span<uint8_t> bytes_of(unsigned member, const Piece& piece) {
    return std::span(bytes_[member][piece.area]).subspan(piece.at, piece.length);
  }
  std::vector<uint8_t> gather(unsigned member, const Pieces& pieces);
  // Into the first of the pieces that have room.
  void scatter(unsigned member, unsigned side, const Pieces& pieces, std::span<const uint8_t> bytes,
               bool is_sink);
  void put(unsigned member, unsigned side, const Piece& piece, std::span<const uint8_t> bytes,
           bool is_sink);
  void run(const Stream& stream, Op* op, size_t* message);

  const World& world_;
  std::vector<std::vector<std::vector<uint8_t>>> bytes_;  // by member, area
  bool doubtful_ = false;
  Kind kind_{};  // of the request that runs
  Prediction made_;
};

// The key of what a member fills in after a batch; the same for all members.
inline uint64_t refill_key(const Batch& batch, const Piece& piece) {
  return mixed(batch.seed ^ (uint64_t{piece.area} << 40) ^ piece.at);
}

}  // namespace integrity
