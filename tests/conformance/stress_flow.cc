#include "tests/conformance/stress_flow.h"

#include <algorithm>
#include <cstring>

namespace conformance {

namespace {

constexpr size_t kSendSlots = 5, kReceiveSlots = 6;
constexpr size_t kSmallSlot = kSmallMessage + 40 + (kMaxPieces + 1) * kMaxGap;
constexpr size_t kGrh = 40;
constexpr uint32_t kMaxInline = 256;

QpOptions qp_options(const FlowOptions& options) {
  QpOptions qp;
  qp.type = options.type;
  qp.max_recv_wr = static_cast<uint32_t>(options.count);
  qp.max_inline = kMaxInline;
  if (options.shared != nullptr) qp.srq = options.shared->srq.srq;
  return qp;
}

size_t memory_size(const FlowOptions& options) {
  return options.type == IBV_QPT_RC ? kRemoteSize : options.count * kSmallMessage;
}

}  // namespace

// ---- SharedReceives ----

SharedReceives::SharedReceives(const Side& side)
    : srq(side, kSlots), buffer_(side, kSlots * kSlotSize), random_(side.seed()) {
  for (uint64_t slot = 0; slot < kSlots; ++slot) post(slot);
}

void SharedReceives::post(uint64_t slot) {
  auto& pieces = pieces_[slot] = random_pieces(random_, kMaxMessage, kMaxPieces);
  std::vector<ibv_sge> list;
  for (const Piece& piece : pieces)
    list.push_back(buffer_.sge(slot * kSlotSize + piece.offset, piece.length));
  srq.receive(slot, std::move(list));
}

void SharedReceives::take(uint64_t slot, size_t length, uint64_t key) {
  const std::lock_guard lock(mutex_);
  size_t position = 0;
  for (const Piece& piece : pieces_[slot]) {
    if (position >= length) break;
    check_filled(buffer_.data + slot * kSlotSize + piece.offset,
                 std::min(piece.length, length - position), key, position);
    position += piece.length;
  }
  post(slot);
}

// ---- Flow ----

Flow::Flow(const Side& side, Cq& cq, const FlowOptions& wanted)
    : options(wanted),
      random_(wanted.out_seed ^ 0x5555),
      qp(side, cq, qp_options(wanted)),
      memory(side, memory_size(wanted), kAllAccess, nullptr, some_mapping()),
      side_(side),
      script_(wanted.out_seed, wanted.type, wanted.count) {
  fill(memory.data, memory.size, options.in_seed);
}

int Flow::some_mapping() {
  return options.mixed_memory && random_() % 2 == 0 ? MAP_SHARED : MAP_PRIVATE;
}

void Flow::connect(const Address& peer) {
  peer_ = peer.endpoint;
  peer_memory_ = peer.memory;
  qp.to_init();
  qp.to_rtr(peer_);
  qp.to_rts();
  if (options.type != IBV_QPT_UD) return;
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = peer_.gid;
  attr.grh.sgid_index = side_.gid_index;
  attr.grh.hop_limit = 64;
  ah_.reset(ibv_create_ah(side_.pd, &attr), [](ibv_ah* ah) { CHECK_EQ(ibv_destroy_ah(ah), 0); });
  CHECK(ah_ != nullptr);
}

std::vector<ibv_sge> Flow::sges(const Buffer& buffer, size_t at,
                                const std::vector<Piece>& pieces) const {
  std::vector<ibv_sge> list;
  for (const Piece& piece : pieces) list.push_back(buffer.sge(at + piece.offset, piece.length));
  return list;
}

void Flow::post(const Op& op, unsigned flags, std::vector<ibv_sge> list) {
  ibv_send_wr wr{};
  wr.wr_id = op.index;
  wr.opcode = op.opcode;
  wr.send_flags = flags | (op.solicited ? unsigned{IBV_SEND_SOLICITED} : 0u);
  wr.sg_list = list.data();
  wr.num_sge = static_cast<int>(list.size());
  if (op.has_immediate()) wr.imm_data = op.immediate();
  if (op.is_atomic()) {
    wr.wr.atomic = {peer_memory_.addr + op.remote, op.compare_add, op.swap, peer_memory_.rkey};
  } else if (options.type == IBV_QPT_UD) {
    wr.wr.ud = {ah_.get(), peer_.qpn, qp.options.qkey};
  } else if (!op.is_send()) {
    wr.wr.rdma = {peer_memory_.addr + op.remote, peer_memory_.rkey};
  }
  ibv_send_wr* bad = nullptr;
  CHECK_EQ(ibv_post_send(qp.qp, &wr, &bad), 0);
}

namespace {

// ---- RC: all opcodes; a shadow of the peer's memory has the expected results of READs and atomics
// ----

class Reliable final : public Flow {
 public:
  Reliable(const Side& side, Cq& cq, const FlowOptions& wanted)
      : Flow(side, cq, wanted),
        slots_(side, kSendSlots * kSlotSize, kAllAccess, nullptr, some_mapping()),
        shadow_(kRemoteSize),
        peer_script_(wanted.in_seed, wanted.type, wanted.count),
        expected_script_(wanted.in_seed, wanted.type, wanted.count) {
    if (options.shared == nullptr)
      receives_.emplace(side, kReceiveSlots * kSlotSize, kAllAccess, nullptr, some_mapping());
    fill(shadow_.data(), shadow_.size(), options.out_seed);
    for (size_t slot = 0; slot < kSendSlots; ++slot) free_slots_.push_back(slot);
    Script all(wanted.in_seed, wanted.type, wanted.count);
    for (Op op; all.next_message(&op);) ++to_come_;
  }

  void post_receives() override {
    if (options.shared != nullptr) return;
    for (size_t slot = 0; slot < kReceiveSlots; ++slot) post_receive(slot);
  }

  void pump() override {
    while (!script_.done() && !free_slots_.empty()) begin(script_.next());
  }

  void sent(const ibv_wc& wc) override {
    // Unsignaled requests complete with the next signaled one.
    CHECK(!pending_.empty() && wc.wr_id >= pending_.front().op.index);
    while (!pending_.empty() && pending_.front().op.index <= wc.wr_id) {
      if (pending_.front().op.index == wc.wr_id) {
        CHECK(pending_.front().signaled);
        if (pending_.front().op.answers()) CHECK_EQ(wc.byte_len, pending_.front().op.length);
      }
      end(pending_.front());
      pending_.pop_front();
    }
  }

  void received(const ibv_wc& wc) override {
    Op op;
    CHECK(expected_script_.next_message(&op));
    --to_come_;
    CHECK_EQ(wc.byte_len, op.length);
    CHECK_EQ(static_cast<int>(wc.opcode),
             static_cast<int>(op.is_send() ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM));
    CHECK_EQ((wc.wc_flags & IBV_WC_WITH_IMM) != 0, op.has_immediate());
    if (op.has_immediate()) CHECK_EQ(wc.imm_data, op.immediate());
    const size_t in_receive = op.is_send() ? op.length : 0;
    if (options.shared != nullptr) {
      options.shared->take(wc.wr_id, in_receive, op.key);
      return;
    }
    CHECK_EQ(wc.wr_id, order_.front());
    order_.pop_front();
    check_pieces(receives_->data + wc.wr_id * kSlotSize, posted_[wc.wr_id], in_receive, op.key);
    post_receive(wc.wr_id);
  }

  [[nodiscard]] bool finished() const override {
    return script_.done() && pending_.empty() && to_come_ == 0;
  }
  [[nodiscard]] const std::vector<uint8_t>* shadow() const override { return &shadow_; }

 private:
  struct Pending {
    Op op;
    size_t slot;
    std::vector<Piece> pieces;
    bool is_inline, signaled;
    std::vector<uint8_t> answer;
  };

  void post_receive(size_t slot) {
    Op op;
    if (!peer_script_.next_message(&op)) return;
    posted_[slot] = random_pieces(random_, op.length + random_() % 3 * 50, kMaxPieces);
    clear_pieces(receives_->data + slot * kSlotSize, posted_[slot]);
    qp.receive(slot, sges(*receives_, slot * kSlotSize, posted_[slot]));
    order_.push_back(slot);
  }

  void begin(const Op& op) {
    Pending one{op, free_slots_.front(), {}, false, op.signaled, {}};
    free_slots_.pop_front();
    if (free_slots_.empty()) one.signaled = true;  // otherwise no slot would be freed
    one.is_inline = op.with_inline && !op.answers() && op.length <= kMaxInline;
    one.pieces = random_pieces(random_, op.length, op.is_atomic() ? 1 : kMaxPieces);
    uint8_t* slot = slots_.data + one.slot * kSlotSize;
    uint8_t* there = shadow_.data() + op.remote;
    if (op.answers()) {
      clear_pieces(slot, one.pieces);
      one.answer.assign(there, there + op.length);
    } else {
      fill_pieces(slot, one.pieces, op.key);
    }
    if (op.is_atomic())
      change_shadow(op, there);
    else if (!op.is_send() && op.opcode != IBV_WR_RDMA_READ)
      fill(there, op.length, op.key);
    unsigned flags = one.signaled ? unsigned{IBV_SEND_SIGNALED} : 0u;
    if (one.is_inline) flags |= IBV_SEND_INLINE;
    // Requests behind a READ or an atomic may overtake it, except with a fence.
    const bool behind_answer = std::any_of(pending_.begin(), pending_.end(),
                                           [](const Pending& p) { return p.op.answers(); });
    if (behind_answer) flags |= IBV_SEND_FENCE;
    post(op, flags, sges(slots_, one.slot * kSlotSize, one.pieces));
    if (one.is_inline) std::memset(slot, 0x11, kSlotSize < 4096 ? kSlotSize : 4096);
    pending_.push_back(std::move(one));
  }

  static void change_shadow(const Op& op, uint8_t* there) {
    uint64_t value = 0;
    std::memcpy(&value, there, 8);
    if (op.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      value += op.compare_add;
    else if (value == op.compare_add)
      value = op.swap;
    std::memcpy(there, &value, 8);
  }

  void end(const Pending& one) {
    const uint8_t* slot = slots_.data + one.slot * kSlotSize;
    if (one.op.answers())
      check_pieces(slot, one.pieces, one.answer);
    else if (!one.is_inline)
      check_pieces(slot, one.pieces, one.op.length, one.op.key);  // the source is unchanged
    free_slots_.push_back(one.slot);
  }

  Buffer slots_;
  std::optional<Buffer> receives_;
  std::vector<uint8_t> shadow_;
  Script peer_script_;      // receives posted so far
  Script expected_script_;  // messages arrived so far
  uint64_t to_come_ = 0;
  std::deque<Pending> pending_;
  std::deque<size_t> free_slots_;
  std::deque<size_t> order_;
  std::vector<Piece> posted_[kReceiveSlots];
};

// ---- UC, UD: the immediate of each message is its number; some messages may be lost ----

class Unreliable final : public Flow {
 public:
  Unreliable(const Side& side, Cq& cq, const FlowOptions& wanted)
      : Flow(side, cq, wanted),
        slots_(side, kWindow * kSmallSlot, kAllAccess, nullptr, some_mapping()),
        receives_(side, wanted.count * kSmallSlot, kAllAccess, nullptr, some_mapping()),
        pieces_(wanted.count) {
    Script peer(wanted.in_seed, wanted.type, wanted.count);
    for (Op op; peer.next_message(&op);) messages_.push_back(op);
  }

  void post_receives() override {
    for (size_t slot = 0; slot < messages_.size(); ++slot) {
      pieces_[slot] = random_pieces(random_, kSmallMessage + grh(), kMaxPieces);
      clear_pieces(receives_.data + slot * kSmallSlot, pieces_[slot]);
      qp.receive(slot, sges(receives_, slot * kSmallSlot, pieces_[slot]));
    }
  }

  void pump() override {
    while (!script_.done() && posted_ - completed_ < kWindow) {
      const Op op = script_.next();
      const size_t slot = posted_++ % kWindow;
      const auto pieces = random_pieces(random_, op.length, kMaxPieces);
      fill_pieces(slots_.data + slot * kSmallSlot, pieces, op.key);
      unsigned flags = IBV_SEND_SIGNALED;
      if (op.with_inline && op.length <= kMaxInline) flags |= IBV_SEND_INLINE;
      post(op, flags, sges(slots_, slot * kSmallSlot, pieces));
    }
  }

  void sent(const ibv_wc& wc) override { CHECK_EQ(wc.wr_id, completed_++); }

  void received(const ibv_wc& wc) override {
    CHECK((wc.wc_flags & IBV_WC_WITH_IMM) != 0);
    CHECK(wc.imm_data < messages_.size());
    const Op& op = messages_[wc.imm_data];
    CHECK_EQ(wc.byte_len, op.length + grh());
    std::vector<uint8_t> bytes;
    for (const Piece& piece : pieces_[wc.wr_id]) {
      const uint8_t* from = receives_.data + wc.wr_id * kSmallSlot + piece.offset;
      bytes.insert(bytes.end(), from, from + piece.length);
    }
    if (op.is_send())
      check_filled(bytes.data() + grh(), op.length, op.key);
    else
      check_filled(memory.data + op.remote, op.length, op.key);
    if (options.type == IBV_QPT_UD) {
      CHECK((wc.wc_flags & IBV_WC_GRH) != 0);
      CHECK_EQ(wc.src_qp, peer_.qpn);
    }
    ++arrived_;
  }

  [[nodiscard]] bool finished() const override { return script_.done() && posted_ == completed_; }

  void check_messages() override {
    CHECK(arrived_ > 0);
    if (arrived_ < messages_.size())
      std::printf("    %zu of %zu unreliable messages were lost\n", messages_.size() - arrived_,
                  messages_.size());
  }

 private:
  static constexpr size_t kWindow = 16;
  [[nodiscard]] size_t grh() const { return options.type == IBV_QPT_UD ? kGrh : 0; }

  Buffer slots_, receives_;
  std::vector<std::vector<Piece>> pieces_;
  std::vector<Op> messages_;
  uint64_t posted_ = 0, completed_ = 0, arrived_ = 0;
};

}  // namespace

std::unique_ptr<Flow> make_flow(const Side& side, Cq& cq, const FlowOptions& options) {
  if (options.type == IBV_QPT_RC) return std::make_unique<Reliable>(side, cq, options);
  return std::make_unique<Unreliable>(side, cq, options);
}

}  // namespace conformance
