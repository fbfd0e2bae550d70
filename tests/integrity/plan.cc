#include "tests/integrity/plan.h"

#include <algorithm>

namespace integrity {

namespace {

Member make_member(Random& random) {
  Member made;
  const size_t areas = random.between(2, 4);
  for (size_t i = 0; i < areas; ++i) {
    const auto memory = static_cast<Memory>(random.below(static_cast<size_t>(Memory::kCount)));
    const size_t most = i == 0 && random.one_in(3) ? 1u << 20 : 160u << 10;
    made.areas.push_back({memory, static_cast<uint32_t>(random.between(48u << 10, most))});
  }
  // Parts of areas, not aligned, some of which overlap; the rest of an area belongs to no region.
  const auto region = [&](uint32_t area) {
    const uint32_t size = made.areas[area].size;
    const auto at = static_cast<uint32_t>(random.below(size / 4));
    made.regions.push_back({area, at, static_cast<uint32_t>(random.between(size / 2, size - at))});
  };
  for (uint32_t area = 0; area < areas; ++area) region(area);
  for (size_t i = random.below(3); i-- > 0;) region(static_cast<uint32_t>(random.below(areas)));
  made.spare = static_cast<uint32_t>(made.regions.size());
  region(static_cast<uint32_t>(random.below(areas)));
  for (size_t i = random.between(1, 3); i-- > 0;) {
    Queue queue{};
    queue.threads = static_cast<unsigned>(random.below(3));
    queue.events = queue.threads > 0 && random.one_in(2);
    if (queue.events) queue.threads = 1;
    queue.extended = random.one_in(3);
    queue.ordered = queue.threads < 2 || random.one_in(2);
    made.queues.push_back(queue);
  }
  return made;
}

End make_end(Random& random, const std::vector<Member>& members, unsigned member) {
  const size_t queues = members[member].queues.size();
  End end{};
  end.member = member;
  end.send_queue = static_cast<unsigned>(random.below(queues));
  end.receive_queue = static_cast<unsigned>(random.below(queues));
  end.shared_receives = random.one_in(3);
  end.all_signaled = random.one_in(4);
  end.builder = random.one_in(3);
  return end;
}

}  // namespace

World make_world(uint64_t seed, unsigned members, bool unreliable, uint32_t without) {
  Random random(mixed(seed));
  World world{};
  world.without = without;
  world.seed = seed;
  world.close_only = random.one_in(4);
  for (unsigned i = 0; i < members; ++i) world.members.push_back(make_member(random));
  const auto add = [&](unsigned one, unsigned other) {
    Link link{};
    link.type = unreliable && random.one_in(5) ? IBV_QPT_UC : IBV_QPT_RC;
    link.ends = {make_end(random, world.members, one), make_end(random, world.members, other)};
    if (link.type == IBV_QPT_UC)
      for (End& end : link.ends) end.shared_receives = false;
    link.outstanding_reads = static_cast<uint8_t>(random.between(1, 8));
    world.links.push_back(link);
  };
  for (unsigned one = 0; one < members; ++one) {
    for (unsigned other = one + 1; other < members; ++other)
      for (size_t i = random.between(1, 3); i-- > 0;) add(one, other);
    if (random.one_in(2)) add(one, one);
  }
  return world;
}

namespace {

class Planner {
 public:
  Planner(const World& world, uint64_t seed) : world_(world), random_(mixed(seed ^ world.seed)) {
    batch_.seed = seed;
    for (const Member& member : world.members) used_.emplace_back(member.areas.size());
  }

  Batch make() {
    if (random_.one_in(6)) {
      const auto member = static_cast<unsigned>(random_.below(world_.members.size()));
      batch_.anew.emplace_back(
          member, static_cast<unsigned>(random_.below(world_.members[member].regions.size())));
    }
    batch_.datagrams = random_.one_in(3) ? static_cast<unsigned>(random_.between(1, 6)) : 0;
    const auto links = static_cast<unsigned>(world_.links.size());
    if (random_.one_in(8)) choose_ending(static_cast<unsigned>(random_.below(links)));
    if (random_.one_in(8)) choose_ping_pong(static_cast<unsigned>(random_.below(links)));
    const size_t most = random_.one_in(4) ? 4 : 80;
    if (!world_.has(kEnds)) batch_.ending.reset();
    if (!world_.has(kPingPongs)) batch_.ping_pong.reset();
    if (!world_.has(kDatagramsPart)) batch_.datagrams = 0;
    if (!world_.has(kRegions)) batch_.anew.clear();
    for (unsigned link = 0; link < links; ++link)
      for (unsigned from = 0; from < 2; ++from) make_stream(link, from, random_.between(0, most));
    return std::move(batch_);
  }

 private:
  enum class Use : uint8_t { kSource, kTargetRead, kTargetWritten, kStored };
  struct Used {
    uint32_t at, past;
    Use use;
    unsigned stream;
    bool is_read;  // by a READ or an atomic, which a later request does not wait for
  };
  static bool is_only_read(Use use) { return use == Use::kSource || use == Use::kTargetRead; }

  // False if another use of these bytes forbids this one. Sets *fence where the order needs it.
  bool may(unsigned member, const Piece& piece, Use use, unsigned stream, bool* fence) const {
    for (const Used& used : used_[member][piece.area]) {
      if (used.past <= piece.at || piece.at + piece.length <= used.at) continue;
      if (is_only_read(used.use) && is_only_read(use)) continue;
      const bool both_of_stream = used.stream == stream && used.use != Use::kSource &&
                                  used.use != Use::kStored && use != Use::kSource &&
                                  use != Use::kStored;
      if (!both_of_stream || doubtful_) return false;
      if (used.is_read) *fence = true;
    }
    return true;
  }

  std::optional<Piece> find(unsigned member, uint32_t region_index, uint32_t length, Use use,
                            unsigned stream, bool is_read, bool* fence, uint32_t align = 1) {
    const Region& region = world_.members[member].regions[region_index];
    if (region.length < length + align) return std::nullopt;
    for (int attempt = 0; attempt < 6; ++attempt) {
      auto at = static_cast<uint32_t>(region.at + random_.below(region.length - length + 1));
      if (random_.one_in(8)) at = region.at;  // the very ends
      if (random_.one_in(8)) at = region.at + region.length - length;
      at = (at + align - 1) / align * align;
      if (at + length > region.at + region.length) continue;
      const Piece piece{region_index, region.area, at, length};
      bool needs_fence = false;
      if (!may(member, piece, use, stream, &needs_fence)) continue;
      if (needs_fence && fence == nullptr) continue;
      if (needs_fence) *fence = true;
      if (length > 0) used_[member][piece.area].push_back({at, at + length, use, stream, is_read});
      return piece;
    }
    return std::nullopt;
  }

  uint32_t any_region(unsigned member) {
    return static_cast<uint32_t>(random_.below(world_.members[member].spare));
  }

  // Pieces of `length` bytes in all; fewer if there is no room.
  Pieces pieces(unsigned member, uint32_t* length, Use use, unsigned stream) {
    Pieces made;
    const size_t count = random_.one_in(3) ? random_.between(1, kPieces) : 1;
    uint32_t left = *length;
    for (size_t i = 0; i < count && (left > 0 || i == 0); ++i) {
      const uint32_t part = i + 1 == count ? left : static_cast<uint32_t>(random_.between(0, left));
      const auto piece = find(member, any_region(member), part, use, stream, false, nullptr);
      if (!piece) break;
      made.push_back(*piece);
      left -= part;
    }
    *length -= left;
    return made;
  }

  uint32_t random_length(uint32_t most) {
    const size_t kind = random_.below(200);
    const size_t wanted = kind < 8     ? 0
                          : kind < 100 ? random_.between(1, 64)
                          : kind < 150 ? random_.between(65, 1500)
                          : kind < 190 ? random_.between(1501, 8192)
                          : kind < 199 ? random_.between(8193, 40000)
                                       : random_.between(40001, 300000);
    return static_cast<uint32_t>(std::min<size_t>(wanted, most));
  }

  void choose_ending(unsigned link) {
    const Link& of = world_.links[link];
    if (of.type != IBV_QPT_RC) return;
    Ending ending{};
    ending.link = link;
    ending.by = static_cast<unsigned>(random_.below(2));
    ending.way = static_cast<Way>(random_.below(static_cast<size_t>(Way::kCount)));
    // What was taken from an SRQ and not completed is the SRQ's only by ERR.
    if (of.ends[0].shared_receives || of.ends[1].shared_receives) ending.way = Way::kError;
    ending.after = static_cast<uint32_t>(random_.below(20));
    batch_.ending = ending;
  }

  void choose_ping_pong(unsigned link) {
    const Link& of = world_.links[link];
    if (of.type != IBV_QPT_RC || batch_.ends(link) || of.ends[0].member == of.ends[1].member)
      return;
    PingPong made{};
    made.link = link;
    made.sign = static_cast<Sign>(random_.below(static_cast<size_t>(Sign::kCount)));
    if ((made.sign == Sign::kImmediate || made.sign == Sign::kSend) &&
        (of.ends[0].shared_receives || of.ends[1].shared_receives))
      made.sign = Sign::kFlag;
    made.inlined = random_.one_in(2);
    made.rounds = static_cast<uint32_t>(random_.between(2, 24));
    const uint32_t length = made.inlined ? kInline : std::max(8u, random_length(20000));
    for (unsigned side = 0; side < 2; ++side) {
      const unsigned member = of.ends[side].member;
      const unsigned stream = 1000 + side;
      const auto data =
          find(member, any_region(member), length, Use::kStored, stream, false, nullptr);
      const auto flag =
          find(member, any_region(member), 8, Use::kStored, stream, false, nullptr, 8);
      const auto answer =
          find(member, any_region(member), length, Use::kStored, stream, false, nullptr);
      if (!data || !flag || !answer) return;
      made.data[side] = *data;
      made.flag[side] = *flag;
      made.answer[side] = *answer;
    }
    batch_.ping_pong = made;
  }

  Kind random_kind(ibv_qp_type type) {
    if (type == IBV_QPT_UC) return static_cast<Kind>(random_.below(4));
    static constexpr std::array kKinds{
        Kind::kWrite,         Kind::kWrite, Kind::kWriteImmediate, Kind::kSend, Kind::kSend,
        Kind::kSendImmediate, Kind::kRead,  Kind::kRead,           Kind::kSwap, Kind::kAdd};
    return kKinds[random_.below(kKinds.size())];
  }

  void make_stream(unsigned link, unsigned from, size_t count) {
    if (batch_.ping_pong && batch_.ping_pong->link == link) return;
    const Link& of = world_.links[link];
    doubtful_ = batch_.ends(link);
    number_ = static_cast<unsigned>(batch_.streams.size());
    Stream stream{};
    stream.link = link;
    stream.from = from;
    const unsigned target = of.ends[1 - from].member;
    if (of.type == IBV_QPT_RC && !doubtful_ && count > 2 && random_.one_in(4)) {
      const Region& region = world_.members[target].regions[any_region(target)];
      const auto index = static_cast<uint32_t>(&region - world_.members[target].regions.data());
      const auto skip = static_cast<uint32_t>(random_.below(region.length / 2));
      stream.window = random_.one_in(2) ? Window::kType1 : Window::kType2;
      stream.bound = {index, region.area, region.at + skip, region.length - skip};
    }
    if (!world_.has(kWindows)) stream.window = Window::kNone;
    for (size_t i = 0; i < count; ++i) add_op(&stream, random_kind(of.type));
    if (of.type == IBV_QPT_UC && !stream.ops.empty()) add_op(&stream, Kind::kSend, 8);
    if (stream.window == Window::kType2 && random_.one_in(2))
      add_op(&stream, Kind::kSendInvalidate, 30);
    end_badly(&stream);
    if (stream.ops.empty()) return;
    stream.ops.back().signaled = true;
    stream.late = of.type == IBV_QPT_RC && random_.one_in(6) && world_.has(kLate);
    batch_.streams.push_back(std::move(stream));
  }

  // Makes one of its requests the one with the wrong key. Where none can be, the link ends by ERR.
  void end_badly(Stream* stream) {
    if (!doubtful_ || batch_.ending->by != stream->from) return;
    Way& way = batch_.ending->way;
    if (way != Way::kBadRemote && way != Way::kBadLocal) return;
    Op* const op = stream->ops.empty() ? nullptr : &stream->ops[random_.below(stream->ops.size())];
    if (op == nullptr || op->length == 0 || (way == Way::kBadRemote && is_send(op->kind))) {
      way = Way::kError;
      return;
    }
    op->signaled = true;
    if (way == Way::kBadRemote) {
      op->bad_remote = true;
    } else {
      op->bad_local = true;
      op->inlined = false;
    }
  }

  void add_op(Stream* stream, Kind kind, uint32_t most = 1u << 20) {
    const Link& of = world_.links[stream->link];
    const End& near = of.ends[stream->from];
    const End& far = of.ends[1 - stream->from];
    Op op{};
    op.kind = kind;
    op.signaled = near.all_signaled || random_.one_in(3);
    op.solicited = consumes_receive(kind) && random_.one_in(2);
    op.immediate = static_cast<uint32_t>(random_.word());
    op.operand = random_.word();
    op.swap = random_.word();
    op.hits = random_.one_in(2);
    op.length = is_atomic(kind)                        ? 8
                : is_send(kind) && far.shared_receives ? random_length(kSharedReceiveSize)
                                                       : random_length(most);
    // The one end last: what a larger message takes is not taken twice.
    if (is_atomic(kind)) {
      const auto local =
          find(near.member, any_region(near.member), 8, Use::kStored, number_, false, nullptr);
      if (!local) return;
      op.local = {*local};
    } else {
      op.local = pieces(near.member, &op.length, stores_locally(kind) ? Use::kStored : Use::kSource,
                        number_);
      if (op.local.empty()) return;
      if (op.length == 0 && random_.one_in(2)) op.local.clear();
    }
    if (!is_send(kind)) {
      uint32_t region = any_region(far.member);
      if (doubtful_ &&
          (batch_.ending->way == Way::kDeregister || batch_.ending->way == Way::kReregister) &&
          batch_.ending->by != stream->from)
        region = world_.members[far.member].spare;
      op.by_window = stream->window != Window::kNone && random_.one_in(2);
      const Use use = kind == Kind::kRead ? Use::kTargetRead : Use::kTargetWritten;
      const auto remote =
          op.by_window ? find_in_window(*stream, far.member, op.length, use, stores_locally(kind),
                                        &op.fenced, is_atomic(kind) ? 8 : 1)
                       : find(far.member, region, op.length, use, number_, stores_locally(kind),
                              &op.fenced, is_atomic(kind) ? 8 : 1);
      if (!remote) return;
      op.remote = *remote;
    }
    if (consumes_receive(kind) && !far.shared_receives) {
      Receive receive{};
      receive.length = is_send(kind) ? op.length : 0;
      const uint32_t needed = receive.length;
      if (random_.one_in(2)) receive.length += static_cast<uint32_t>(random_.below(100));
      receive.pieces = pieces(far.member, &receive.length, Use::kStored, number_);
      if (receive.length < needed) return;
      stream->receives.push_back(std::move(receive));
    }
    // A READ by the window may still be answered, or be asked for again.
    if (kind == Kind::kSendInvalidate) op.fenced = true;
    op.inlined = !stores_locally(kind) && op.length <= kInline && random_.one_in(2);
    if (!world_.has(static_cast<uint32_t>(kind))) {
      if (consumes_receive(kind) && !far.shared_receives) stream->receives.pop_back();
      return;
    }
    stream->ops.push_back(std::move(op));
  }

  std::optional<Piece> find_in_window(const Stream& stream, unsigned member, uint32_t length,
                                      Use use, bool is_read, bool* fence, uint32_t align) {
    for (int attempt = 0; attempt < 4; ++attempt) {
      const size_t before = used_[member][stream.bound.area].size();
      const bool fenced = *fence;
      const auto found =
          find(member, stream.bound.region, length, use, number_, is_read, fence, align);
      if (!found) return found;
      if (found->at >= stream.bound.at &&
          found->at + length <= stream.bound.at + stream.bound.length)
        return found;
      used_[member][stream.bound.area].resize(before);
      *fence = fenced;
    }
    return std::nullopt;
  }

  const World& world_;
  Random random_;
  Batch batch_;
  unsigned number_ = 0;                               // of the stream that is made
  bool doubtful_ = false;                             // its link ends in this batch
  std::vector<std::vector<std::vector<Used>>> used_;  // by member, area
};

}  // namespace

Batch make_batch(const World& world, uint64_t seed) { return Planner(world, seed).make(); }

}  // namespace integrity
