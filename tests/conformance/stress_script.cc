#include "tests/conformance/stress_script.h"

#include <algorithm>
#include <cstring>

#include "tests/conformance/queue.h"

namespace conformance {

namespace {
constexpr uint8_t kGap = 0xee;
}  // namespace

Script::Script(uint64_t seed, ibv_qp_type type, uint64_t count)
    : seed_(seed), type_(type), count_(count), random_(seed) {}

// Mostly small, often odd, sometimes empty, occasionally several MiB.
size_t Script::random_length() {
  const uint64_t kind = below(100);
  if (kind < 5) return 0;
  if (kind < 40) return below(64) + 1;
  if (kind < 50) return size_t{1} << below(13);
  if (kind < 75) return below(4096) + 1;
  if (kind < 92) return below(65536) | 1;
  if (kind < 99) return below(300'000) + 1;
  return below(kMaxMessage - 1) + 1;
}

Op Script::next() {
  Op op{};
  op.index = index_++;
  op.key = seed_ * 1'000'003 + op.index;
  op.with_inline = below(2) == 0;
  op.signaled = below(3) == 0 || op.index % 8 == 7 || index_ == count_;
  op.solicited = below(4) == 0;
  if (type_ == IBV_QPT_RC) {
    static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND,
                                                 IBV_WR_SEND_WITH_IMM,
                                                 IBV_WR_RDMA_WRITE,
                                                 IBV_WR_RDMA_WRITE_WITH_IMM,
                                                 IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_CMP_AND_SWP,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD};
    op.opcode = kOpcodes[below(std::size(kOpcodes))];
  } else if (type_ == IBV_QPT_UC) {
    op.opcode = below(2) == 0 ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM;
  } else {
    op.opcode = IBV_WR_SEND_WITH_IMM;
  }
  if (op.consumes_receive()) op.message = messages_++;
  if (op.is_atomic()) {
    op.length = 8;
    op.remote = below(kRemoteSize / 8) * 8;
    if (below(2) == 0) op.remote %= 64;  // some words are used repeatedly
    op.compare_add = random_();
    op.swap = random_();
    return op;
  }
  op.length = type_ == IBV_QPT_RC ? random_length() : below(kSmallMessage + 1);
  // Unreliable writes have distinct places, so that a lost one is not mistaken for a late one.
  op.remote = type_ == IBV_QPT_RC ? below(kRemoteSize - op.length + 1) : op.message * kSmallMessage;
  return op;
}

bool Script::next_message(Op* op) {
  while (!done()) {
    *op = next();
    if (op->consumes_receive()) return true;
  }
  return false;
}

std::vector<Piece> random_pieces(std::mt19937_64& random, size_t length, size_t max_pieces) {
  const size_t count = 1 + random() % max_pieces;
  std::vector<size_t> cuts{0, length};
  for (size_t i = 1; i < count; ++i) cuts.push_back(random() % (length + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<Piece> pieces;
  size_t at = random() % kMaxGap;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const size_t size = cuts[i + 1] - cuts[i];
    pieces.push_back({at, size});
    at += size + random() % kMaxGap;
  }
  return pieces;
}

namespace {

// Calls `inside(piece, position)` for the pieces and `outside(from, to)` for the gaps.
template <class Inside, class Outside>
void walk(const std::vector<Piece>& pieces, Inside inside, Outside outside) {
  size_t at = 0, position = 0;
  for (const Piece& piece : pieces) {
    outside(at, piece.offset);
    inside(piece, position);
    at = piece.offset + piece.length;
    position += piece.length;
  }
  outside(at, at + 1);
}

void check_gap(const uint8_t* slot, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) CHECK_EQ(slot[i], kGap);
}

}  // namespace

void fill_pieces(uint8_t* slot, const std::vector<Piece>& pieces, uint64_t key) {
  walk(
      pieces,
      [&](const Piece& piece, size_t position) {
        fill(slot + piece.offset, piece.length, key, position);
      },
      [&](size_t from, size_t to) { std::memset(slot + from, kGap, to - from); });
}

void clear_pieces(uint8_t* slot, const std::vector<Piece>& pieces) {
  const Piece& last = pieces.back();
  std::memset(slot, kGap, last.offset + last.length + 1);
}

void check_pieces(const uint8_t* slot, const std::vector<Piece>& pieces, size_t length,
                  uint64_t key) {
  walk(
      pieces,
      [&](const Piece& piece, size_t position) {
        const size_t used = position >= length ? 0 : std::min(piece.length, length - position);
        check_filled(slot + piece.offset, used, key, position);
        check_gap(slot, piece.offset + used, piece.offset + piece.length);
      },
      [&](size_t from, size_t to) { check_gap(slot, from, to); });
}

void check_pieces(const uint8_t* slot, const std::vector<Piece>& pieces,
                  const std::vector<uint8_t>& bytes) {
  walk(
      pieces,
      [&](const Piece& piece, size_t position) {
        const uint8_t* from = slot + piece.offset;
        CHECK(std::equal(from, from + piece.length,
                         bytes.begin() + static_cast<std::ptrdiff_t>(position)));
      },
      [&](size_t from, size_t to) { check_gap(slot, from, to); });
}

}  // namespace conformance
