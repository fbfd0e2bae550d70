#include "tests/integrity/model.h"

#include <algorithm>
#include <cstring>

namespace integrity {

Model::Model(const World& world) : world_(world) {
  for (size_t member = 0; member < world.members.size(); ++member) {
    auto& areas = bytes_.emplace_back();
    for (size_t i = 0; i < world.members[member].areas.size(); ++i) {
      areas.emplace_back(world.members[member].areas[i].size);
      fill(areas.back(), first_key(world, member, i));
    }
  }
}

std::vector<uint8_t> Model::gather(unsigned member, const Pieces& pieces) {
  std::vector<uint8_t> all;
  for (const Piece& piece : pieces) {
    const auto bytes = bytes_of(member, piece);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

void Model::put(unsigned member, unsigned side, const Piece& piece, std::span<const uint8_t> bytes,
                bool is_sink) {
  if (bytes.empty()) return;
  Piece part = piece;
  part.length = static_cast<uint32_t>(bytes.size());
  if (doubtful_)
    made_.doubts.push_back({member, side, part, {bytes.begin(), bytes.end()}, kind_, is_sink});
  else
    std::ranges::copy(bytes, bytes_of(member, part).begin());
}

void Model::scatter(unsigned member, unsigned side, const Pieces& pieces,
                    std::span<const uint8_t> bytes, bool is_sink) {
  for (const Piece& piece : pieces) {
    const size_t length = std::min<size_t>(piece.length, bytes.size());
    put(member, side, piece, bytes.first(length), is_sink);
    bytes = bytes.subspan(length);
  }
}

void Model::run(const Stream& stream, Op* op, size_t* message) {
  kind_ = op->kind;
  const Link& link = world_.links[stream.link];
  const unsigned near_side = stream.from, far_side = 1 - stream.from;
  const unsigned near = link.ends[near_side].member, far = link.ends[far_side].member;
  if (op->kind == Kind::kRead) {
    const auto found = bytes_of(far, op->remote);
    scatter(near, near_side, op->local, std::vector<uint8_t>(found.begin(), found.end()), true);
    return;
  }
  if (is_atomic(op->kind)) {
    const auto found = bytes_of(far, op->remote);
    uint64_t old = 0;
    std::memcpy(&old, found.data(), 8);
    std::vector<uint8_t> bytes(found.begin(), found.end());
    scatter(near, near_side, op->local, bytes, true);
    if (op->kind == Kind::kSwap && op->hits) op->operand = old;
    const uint64_t now = op->kind == Kind::kAdd ? old + op->operand
                         : op->operand == old   ? op->swap
                                                : old;
    std::memcpy(bytes.data(), &now, 8);
    put(far, far_side, op->remote, bytes, false);
    return;
  }
  const std::vector<uint8_t> bytes = gather(near, op->local);
  if (!is_send(op->kind)) put(far, far_side, op->remote, bytes, false);
  if (!consumes_receive(op->kind)) return;
  Message made{op->kind, op->length, op->immediate, {}};
  if (link.ends[far_side].shared_receives) {
    if (is_send(op->kind)) made.bytes = bytes;
  } else if (is_send(op->kind)) {
    scatter(far, far_side, stream.receives[*message].pieces, bytes, false);
  }
  made_.messages[&stream].push_back(std::move(made));
  ++*message;
}

Prediction Model::apply(Batch* batch) {
  made_ = {};
  for (Stream& stream : batch->streams) {
    doubtful_ = batch->ends(stream.link);
    size_t message = 0;
    for (Op& op : stream.ops) run(stream, &op, &message);
  }
  doubtful_ = false;
  return std::move(made_);
}

}  // namespace integrity
