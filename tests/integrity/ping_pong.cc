// Memory order: what a sign announces is there when the sign is seen (IBTA 9.5, 10.8.3.3).
#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/integrity/post.h"
#include "tests/integrity/runner.h"
#include "tests/integrity/wait.h"

namespace integrity {
namespace {

// Of a round's data.
uint64_t key_of(const Batch& batch, uint32_t round) { return mixed(batch.seed + round) ^ 0x5555; }

uint64_t flag_at(const uint8_t* at) {
  return std::atomic_ref(*reinterpret_cast<uint64_t*>(const_cast<uint8_t*>(at)))
      .load(std::memory_order_acquire);
}

// What stands where the data of `round` should: empty if all of it does.
std::string wrong_in(std::span<const uint8_t> bytes, const Batch& batch, uint32_t round) {
  std::vector<uint8_t> expected(bytes.size());
  fill(expected, key_of(batch, round));
  size_t wrong = 0, first = 0;
  for (size_t i = bytes.size(); i-- > 0;)
    if (bytes[i] != expected[i]) ++wrong, first = i;
  if (wrong == 0) return {};
  std::string whose = "no round's";
  const size_t word = first / 8 * 8;
  const size_t length = std::min<size_t>(8, bytes.size() - word);
  for (uint32_t other = 0; other < 2 * batch.ping_pong->rounds; ++other) {
    fill(expected, key_of(batch, other));
    if (std::memcmp(bytes.data() + word, expected.data() + word, length) == 0)
      whose = "round " + std::to_string(other) + "'s";
  }
  return std::to_string(wrong) + " of " + std::to_string(bytes.size()) +
         " bytes are wrong in round " + std::to_string(round) + ", byte " + std::to_string(first) +
         " is the first and is " + whose;
}

}  // namespace

void Runner::prepare_ping_pong(const PingPong& plan) {
  for (unsigned side = 0; side < 2; ++side) {
    if (!device_->has(plan.link, side)) continue;
    std::memset(device_->at(plan.flag[side]), 0, 8);
    if (plan.sign != Sign::kImmediate && plan.sign != Sign::kSend) continue;
    Stream stream{};
    stream.link = plan.link;
    const Endpoint& endpoint = device_->endpoint(plan.link, side);
    for (uint32_t i = 0; i < plan.rounds; ++i) {
      const bool sends = plan.sign == Sign::kSend;
      stream.receives.push_back({{plan.flag[side]}, 8});
      device_->ledger().message(
          endpoint.qp->qp_num,
          {sends ? Kind::kSend : Kind::kWriteImmediate, sends ? 8u : 0u, i, {}});
    }
    post_receives(device_.get(), endpoint, stream, 0, plan.rounds);
  }
}

// Sends the round's data, then its sign.
void Runner::serve(const Batch& batch, uint32_t round) {
  const PingPong& plan = *batch.ping_pong;
  const unsigned side = device_->has(plan.link, 0) ? 0 : 1;
  const Endpoint& endpoint = device_->endpoint(plan.link, side);
  Stream stream{};
  stream.link = plan.link;
  stream.from = side;
  const Piece& source = plan.answer[side];
  const Piece& target = plan.data[1 - side];
  fill({device_->at(source), source.length}, key_of(batch, round));
  Op op{};
  op.kind = Kind::kWrite;
  op.local = {source};
  op.remote = target;
  op.length = source.length;
  op.inlined = plan.inlined;
  op.signaled = !plan.inlined || device_->end_of(endpoint).all_signaled;
  const auto post_one = [&] { post(device_.get(), endpoint, stream, op, infos_, &random_); };
  const auto settle = [&] {
    wait([&] { return device_->ledger().requests(endpoint.qp->qp_num) == 0; }, "a ping-pong");
  };
  post_one();
  if (plan.sign == Sign::kReadBack) {
    op.kind = Kind::kRead;
    op.local = {plan.data[side]};
    op.inlined = false;
    op.signaled = true;
    post_one();
    settle();
    if (const auto wrong = wrong_in({device_->at(plan.data[side]), target.length}, batch, round);
        !wrong.empty())
      fail("link %u: a READ behind a WRITE does not read what was written: %s", plan.link,
           wrong.c_str());
  }
  op.signaled = true;
  op.inlined = true;
  op.immediate = round / 2;
  op.length = 8;
  op.local = {{source.region, source.area, source.at, 8}};
  op.remote = plan.flag[1 - side];
  const uint64_t sign = round + 1;
  // Inline, so that the source can be used for the sign as soon as the data has been taken.
  if (!plan.inlined && plan.sign != Sign::kAdd && plan.sign != Sign::kImmediate) settle();
  if (plan.sign == Sign::kAdd) {
    op.kind = Kind::kAdd;  // behind the WRITE: the old value may come to where that has come from
    op.inlined = false;
    op.operand = 1;
  } else if (plan.sign == Sign::kImmediate) {
    op.kind = Kind::kWriteImmediate;
    op.local.clear();
    op.length = 0;
  } else {
    op.kind = plan.sign == Sign::kSend ? Kind::kSend : Kind::kWrite;
    std::memcpy(device_->at(source), &sign, 8);
  }
  post_one();
  settle();
}

// The sign of this round, and at once what it announces.
void Runner::await(const Batch& batch, uint32_t round, uint32_t left) {
  const PingPong& plan = *batch.ping_pong;
  const unsigned side = device_->has(plan.link, 0) ? 0 : 1;
  const uint32_t qpn = device_->endpoint(plan.link, side).qp->qp_num;
  const uint8_t* const flag = device_->at(plan.flag[side]);
  switch (plan.sign) {
    case Sign::kImmediate:
    case Sign::kSend:
      wait([&] { return device_->ledger().messages(qpn) <= left; }, "a ping-pong's message");
      break;
    case Sign::kAdd:
      wait([&] { return flag_at(flag) == round / 2 + 1; }, "a ping-pong's atomic");
      break;
    default:
      wait([&] { return flag_at(flag) == round + 1; }, "a ping-pong's flag");
      break;
  }
  const Piece& data = plan.data[side];
  if (const auto wrong = wrong_in({device_->at(data), data.length}, batch, round); !wrong.empty())
    fail("link %u, %s: the data is not there when its sign is seen: %s", plan.link,
         kSignNames[static_cast<size_t>(plan.sign)], wrong.c_str());
}

void Runner::ping_pong(const Batch& batch) {
  const PingPong& plan = *batch.ping_pong;
  if (!device_->has(plan.link, 0) && !device_->has(plan.link, 1)) return;
  const unsigned side = device_->has(plan.link, 0) ? 0 : 1;
  for (uint32_t round = 0; round < 2 * plan.rounds; ++round) {
    if (round % 2 == side)
      serve(batch, round);
    else
      await(batch, round, plan.rounds - 1 - round / 2);
  }
  if (side == 0) ++counts().ping_pongs[static_cast<size_t>(plan.sign)];
}

}  // namespace integrity
