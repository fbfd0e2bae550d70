// Batches of messages: both processes derive the same list of steps from random numbers, write
// down what every byte of both regions must be afterwards, post, and compare.
//
// A batch has `out` steps, which this side requests, and `in` steps, which the peer requests here.
// The steps' own data lie in the region `source` of the side that requests, what they address or
// are received into in the region `target` of the other. Both regions are filled with a string of
// the batch beforehand, so that a byte that is written beside its place is found.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/interop/rxe/side.h"

namespace exchange {

constexpr uint64_t kRegion = 20U << 20, kGuard = 4096;  // bytes
constexpr uint32_t kDepth = 128, kGrh = 40;

struct Piece {
  uint64_t offset;
  uint32_t length;
};
using Pieces = std::vector<Piece>;

struct Step {
  ibv_wr_opcode opcode{};
  uint32_t length = 0;
  uint64_t key = 0;  // of its data
  uint32_t imm = 0;
  bool is_inline = false, is_signaled = true, is_datagram = false;
  Pieces local;         // in the requester's source
  Pieces receive;       // in the peer's target: of a SEND; of a datagram, the header comes first
  uint64_t remote = 0;  // in the peer's target: the others
  uint64_t compare_add = 0, swap = 0, original = 0;

  [[nodiscard]] bool is_send() const {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
  }
  [[nodiscard]] bool is_write() const {
    return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  [[nodiscard]] bool has_imm() const {
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  [[nodiscard]] bool takes_receive() const { return is_send() || has_imm(); }
  [[nodiscard]] bool is_atomic() const {
    return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  }
  [[nodiscard]] bool brings() const { return opcode == IBV_WR_RDMA_READ || is_atomic(); }
};

// What a test wants of its steps.
struct Wish {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t least_pieces = 1, most_pieces = 1;
  uint32_t max_inline = 0;  // 0: nothing is inline
};

// One direction of a batch: steps, and how far they fill the regions.
struct Flow {
  std::vector<Step> steps;
  uint64_t source_key = 0, target_key = 0;
  uint64_t source_end = 0, target_end = 0;
};

// Makes the steps of a flow, as far as the regions have room.
class Planner {
 public:
  Planner(Random& random, const Wish& wish) : random_(random), wish_(wish) {
    flow_.source_key = random.next();
    flow_.target_key = random.next();
    flow_.target_end = 64;  // the operands of atomics
    for (size_t i = 0; i < words_.size(); ++i)
      fill(reinterpret_cast<uint8_t*>(&words_[i]), 8, flow_.target_key, 8 * i);
  }
  [[nodiscard]] bool has_room(uint32_t length) const {
    constexpr uint64_t kSlack = 2 * kGuard;
    return flow_.steps.size() < kDepth - 1 && flow_.source_end + length + kSlack < kRegion &&
           flow_.target_end + length + kSlack < kRegion;
  }
  void add(ibv_wr_opcode opcode, uint32_t length) {
    Step step;
    step.opcode = opcode;
    step.length = step.is_atomic() ? 8 : length;
    step.key = random_.next();
    step.imm = static_cast<uint32_t>(random_.next());
    step.is_signaled = wish_.type != IBV_QPT_RC || random_.one_in(3);
    step.is_inline = !step.brings() && length <= wish_.max_inline && wish_.max_inline != 0;
    const bool aligned = random_.one_in(4);
    step.local = pieces(flow_.source_end, step.length, aligned);
    if (step.is_atomic())
      plan_atomic(step);
    else if (step.is_send())
      plan_receive(step);
    else
      step.remote = take(flow_.target_end, step.length, aligned);
    flow_.steps.push_back(std::move(step));
  }
  [[nodiscard]] Flow finish() {
    if (!flow_.steps.empty()) flow_.steps.back().is_signaled = true;
    return std::move(flow_);
  }

 private:
  uint64_t take(uint64_t& end, uint32_t length, bool aligned) {
    const uint64_t at = aligned ? (end + 64) / 64 * 64 : end + random_.range(1, 67);
    end = at + length;
    return at;
  }
  Pieces pieces(uint64_t& end, uint32_t length, bool aligned) {
    Pieces made;
    uint32_t count = random_.range(wish_.least_pieces, wish_.most_pieces);
    while (length > 0) {
      const bool is_last = count <= 1 || length == 1;
      const uint32_t part = is_last ? length : random_.range(1, length - 1);
      made.push_back({take(end, part, aligned), part});
      length -= part;
      --count;
    }
    return made;
  }
  void plan_receive(Step& step) {
    const bool is_datagram = step.is_datagram = wish_.type == IBV_QPT_UD;
    if (is_datagram) step.receive.push_back({take(flow_.target_end, kGrh, false), kGrh});
    const Pieces rest = pieces(flow_.target_end, step.length, false);
    step.receive.insert(step.receive.end(), rest.begin(), rest.end());
    // A receive may be longer than the message.
    if (!is_datagram && random_.one_in(2)) {
      const uint32_t more = random_.range(1, 100);
      if (rest.empty()) {
        step.receive.push_back({take(flow_.target_end, more, false), more});
      } else {
        step.receive.back().length += more;
        flow_.target_end += more;
      }
    }
  }
  void plan_atomic(Step& step) {
    const size_t which = random_.range(0, static_cast<uint32_t>(words_.size()) - 1);
    uint64_t& word = words_[which];
    step.remote = 8 * which;
    step.original = word;
    if (step.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      step.compare_add = random_.next();
      word += step.compare_add;
    } else {
      step.compare_add = random_.one_in(2) ? word : random_.next();
      step.swap = random_.next();
      if (word == step.compare_add) word = step.swap;
    }
  }

  Random& random_;
  Wish wish_;
  Flow flow_;
  std::array<uint64_t, 8> words_{};
};

using Image = std::vector<uint8_t>;

inline void put(Image& image, std::span<const Piece> pieces, const uint8_t* data, size_t length) {
  for (const Piece& piece : pieces) {
    const size_t count = std::min<size_t>(piece.length, length);
    std::memcpy(image.data() + piece.offset, data, count);
    data += count;
    length -= count;
  }
}

// The two regions of a side.
class Board {
 public:
  explicit Board(const Side& side) : source_(side, kRegion), target_(side, kRegion) {
    peer_ = side.channel.swap(target_.remote());
  }

  // Fills the regions, and derives what they must be at the end.
  void prepare(const Flow& out, const Flow& in) {
    Image bytes;
    source_image_.resize(out.source_end + kGuard);
    fill(source_image_.data(), source_image_.size(), out.source_key);
    for (const Step& step : out.steps)
      if (!step.brings()) put(source_image_, step.local, data_of(step, bytes), step.length);
    std::memcpy(source_.data, source_image_.data(), source_image_.size());
    for (const Step& step : out.steps) {
      if (!step.brings()) continue;
      bytes.resize(step.length);
      if (step.is_atomic())
        std::memcpy(bytes.data(), &step.original, 8);
      else
        fill(bytes.data(), step.length, out.target_key, step.remote);
      put(source_image_, step.local, bytes.data(), step.length);
    }

    before_.resize(in.target_end + kGuard);
    fill(before_.data(), before_.size(), in.target_key);
    // Each byte that a WRITE brings differs from what was there. Else one byte that is still on its
    // way can seem to have come, and would change the memory of the next batch.
    for (const Step& step : in.steps) {
      if (!step.is_write()) continue;
      const uint8_t* data = data_of(step, bytes);
      for (uint32_t i = 0; i < step.length; ++i)
        before_[step.remote + i] = static_cast<uint8_t>(~data[i]);
    }
    std::memcpy(target_.data, before_.data(), before_.size());
    target_image_ = before_;
    for (const Step& step : in.steps) {
      if (step.opcode == IBV_WR_RDMA_READ) continue;
      if (step.is_atomic())
        apply_atomic(step);
      else if (step.is_send())
        put(target_image_, without_header(step), data_of(step, bytes), step.length);
      else
        std::memcpy(target_image_.data() + step.remote, data_of(step, bytes), step.length);
    }
  }
  void post(Qp& qp, const Step& step, uint64_t wr_id) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = step.opcode;
    wr.imm_data = step.imm;
    wr.send_flags = 0;
    if (step.is_signaled) wr.send_flags |= IBV_SEND_SIGNALED;
    if (step.is_inline) wr.send_flags |= IBV_SEND_INLINE;
    if (step.is_atomic())
      wr.wr.atomic = {peer_.address + step.remote, step.compare_add, step.swap, peer_.rkey};
    else if (!step.is_send())
      wr.wr.rdma = {peer_.address + step.remote, peer_.rkey};
    std::vector<ibv_sge> sges = sges_of(source_, step.local);
    qp.post(wr, sges);
    if (!step.is_inline) return;
    // The bytes of an inline request may be changed at once.
    for (const Piece& piece : step.local) {
      for (uint64_t i = piece.offset; i < piece.offset + piece.length; ++i)
        source_.data[i] = source_image_[i] = static_cast<uint8_t>(~source_image_[i]);
    }
  }
  void post_receive(Qp& qp, const Step& step, uint64_t wr_id) {
    std::vector<ibv_sge> sges = sges_of(target_, step.receive);
    qp.post_receive(wr_id, sges);
  }
  // The header of a datagram that came is not compared byte by byte.
  void accept_header(const Step& step) {
    const uint8_t* header = target_.data + step.receive.front().offset;
    if (header[0] >> 4 != 6 && header[20] >> 4 != 4) fail("a datagram has no network header");
    std::memcpy(target_image_.data() + step.receive.front().offset, header, kGrh);
  }
  void compare() const {
    source_.compare(source_image_, "the requester's memory");
    target_.compare(target_image_, "the responder's memory");
  }
  // A copy is compared: memcmp() may find bytes equal that change meanwhile.
  [[nodiscard]] bool target_is_complete() const {
    return Image(target_.data, target_.data + target_image_.size()) == target_image_;
  }
  // After a loss: each byte is as it was or as it should have become.
  void compare_partly() const {
    for (size_t i = 0; i < before_.size(); ++i)
      if (target_.data[i] != before_[i] && target_.data[i] != target_image_[i])
        fail("a lost message has written byte %zu wrongly", i);
  }

 private:
  static const uint8_t* data_of(const Step& step, Image& bytes) {
    bytes.resize(step.length);
    fill(bytes.data(), step.length, step.key);
    return bytes.data();
  }
  static std::span<const Piece> without_header(const Step& step) {
    return std::span(step.receive).subspan(step.is_datagram ? 1 : 0);
  }
  void apply_atomic(const Step& step) {
    uint64_t word = 0;
    std::memcpy(&word, target_image_.data() + step.remote, 8);
    if (step.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      word += step.compare_add;
    else if (word == step.compare_add)
      word = step.swap;
    std::memcpy(target_image_.data() + step.remote, &word, 8);
  }
  static std::vector<ibv_sge> sges_of(const Memory& memory, const Pieces& pieces) {
    std::vector<ibv_sge> sges;
    sges.reserve(pieces.size());
    for (const Piece& piece : pieces) sges.push_back(memory.sge(piece.offset, piece.length));
    return sges;
  }

  Memory source_, target_;
  Memory::Remote peer_{};
  Image source_image_, target_image_, before_;
};

// Runs a batch. False: a message of an unreliable queue pair was lost, and the queue pair must be
// replaced.
[[nodiscard]] bool run_batch(Side& side, Board& board, Qp& qp, ibv_qp_type type, const Flow& out,
                             const Flow& in);

}  // namespace exchange
