// How a link ends in the middle of its work: see Ending.
#include <algorithm>
#include <cstring>

#include "tests/integrity/post.h"
#include "tests/integrity/runner.h"
#include "tests/integrity/wait.h"

namespace integrity {

// What the other side, or this one, may have stored there stays as it is from here on: it is whole,
// old or new in each byte, and is filled anew, which must not change any more.
template <class Which>
void Runner::give_back(const Batch& batch, unsigned side, Which which) {
  for (const Doubt& doubt : doubts_) {
    if (doubt.member != options_.number || doubt.side != side || !which(doubt)) continue;
    uint8_t* const at = device_->at(doubt.piece);
    const uint8_t* const old =
        model_->area(options_.number, doubt.piece.area).data() + doubt.piece.at;
    for (size_t i = 0; i < doubt.bytes.size(); ++i)
      if (at[i] != old[i] && at[i] != doubt.bytes[i])
        fail(
            "link %u: byte %zu of %zu of %s (%s, area %u, at %u) is 0x%02x, neither the old 0x%02x "
            "nor the new 0x%02x",
            batch.ending->link, i, doubt.bytes.size(), kKindNames[static_cast<size_t>(doubt.kind)],
            doubt.is_sink ? "its sink" : "its target", doubt.piece.area, doubt.piece.at, at[i],
            old[i], doubt.bytes[i]);
    fill({at, doubt.bytes.size()}, refill_key(batch, doubt.piece));
  }
}

namespace {
constexpr auto kEndsAtLatest = std::chrono::microseconds(1500);  // when all has been posted
constexpr auto kAll = [](const Doubt&) { return true; };
constexpr auto kSinks = [](const Doubt& doubt) { return doubt.is_sink; };
constexpr auto kTargets = [](const Doubt& doubt) { return !doubt.is_sink; };
}  // namespace

void Runner::end_if_due(const Batch& batch, bool all_posted) {
  using Clock = std::chrono::steady_clock;
  if (!batch.ending || ended_ || !device_->has(batch.ending->link, batch.ending->by)) return;
  Endpoint& endpoint = device_->endpoint(batch.ending->link, batch.ending->by);
  const Way way = batch.ending->way;
  const bool by_itself = way == Way::kBadRemote || way == Way::kBadLocal;
  if (by_itself && !all_posted) return;
  const bool late = all_posted && all_posted_since_ != Clock::time_point{} &&
                    Clock::now() - all_posted_since_ > kEndsAtLatest;
  if (!late && device_->ledger().completions(endpoint.qp->qp_num) < batch.ending->after) return;
  ended_ = true;
  ++counts().ends[static_cast<size_t>(way)];
  end(batch, &endpoint);
}

void Runner::end(const Batch& batch, Endpoint* endpoint) {
  const unsigned side = endpoint->side;
  const uint32_t qpn = endpoint->qp->qp_num;
  const unsigned spare = world_->members[options_.number].spare;
  const auto in_spare = [&](const Doubt& doubt) { return doubt.piece.region == spare; };
  switch (batch.ending->way) {
    case Way::kReset:
      device_->reset(endpoint);
      give_back(batch, side, kAll);
      return;
    case Way::kDestroy:
      device_->destroy(endpoint);
      give_back(batch, side, kAll);
      return;
    case Way::kDeregister:
      device_->deregister(spare);
      give_back(batch, side, in_spare);
      break;
    case Way::kReregister:
      if (ibv_rereg_mr(device_->region(spare), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                       IBV_ACCESS_LOCAL_WRITE) != 0)
        fail("ibv_rereg_mr");
      give_back(batch, side, in_spare);
      device_->deregister(spare);
      break;
    case Way::kBadRemote:
    case Way::kBadLocal:
      wait([&] { return device_->ledger().is_settled(qpn); }, "the flush after a wrong key");
      give_back(batch, side, kAll);
      return;
    default:
      break;
  }
  device_->to_error(*endpoint);
  // The last request that was posted may be one without a completion: this one has one.
  Stream stream{};
  stream.link = endpoint->link;
  stream.from = side;
  Op last{};
  last.kind = Kind::kSend;
  last.signaled = true;
  post(device_.get(), *endpoint, stream, last, infos_, &random_);
  give_back(batch, side, [&](const Doubt& doubt) {
    return !doubt.is_sink && (device_->region(spare) != nullptr || !in_spare(doubt));
  });
  wait([&] { return device_->ledger().is_settled(qpn); }, "the flush after ERR");
  give_back(batch, side, kSinks);
}

void Runner::end_other_side(const Batch& batch) {
  const unsigned side = 1 - batch.ending->by;
  if (!device_->has(batch.ending->link, side)) return;
  Endpoint& endpoint = device_->endpoint(batch.ending->link, side);
  device_->to_error(endpoint);
  give_back(batch, side, kTargets);
  wait([&] { return device_->ledger().is_settled(endpoint.qp->qp_num); },
       "the flush at the other side");
  give_back(batch, side, kSinks);
}

}  // namespace integrity
