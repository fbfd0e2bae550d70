// Tests that move data, by every kind of queue pair and request.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "tests/interop/rxe/batch.h"

namespace exchange {
namespace {

constexpr uint32_t kSizes[] = {0,    1,    2,    3,    5,    255,   256,      257,
                               1023, 1024, 1025, 4096, 4097, 65535, 1U << 20, 8U << 20};

// What a data test consists of.
struct Plan {
  std::vector<ibv_wr_opcode> opcodes;
  Wish wish;
  uint32_t most = 8U << 20;  // bytes of a message
  bool both_ways = false;
  uint32_t flight = 32;  // steps of a batch
  uint32_t repeat = 1;   // of each size
};

Flow plan_flow(Random& random, const Plan& plan, std::span<const uint32_t> sizes, size_t& at) {
  Planner planner(random, plan.wish);
  const uint32_t count = random.range(1, plan.flight);
  for (uint32_t i = 0; i < count && at < sizes.size() && planner.has_room(sizes[at]); ++i, ++at)
    planner.add(plan.opcodes[random.next() % plan.opcodes.size()], sizes[at]);
  return planner.finish();
}

void move(Side& side, const Plan& plan) {
  const bool has_atomics =
      std::ranges::any_of(plan.opcodes, [](auto op) { return op >= IBV_WR_ATOMIC_CMP_AND_SWP; });
  if (has_atomics && !(side.mine.has_atomics != 0 && side.peer.has_atomics != 0))
    throw Skipped("a device has no atomics");
  Board board(side);
  QpOptions options;
  options.type = plan.wish.type;
  options.depth = kDepth;
  options.max_inline = plan.wish.max_inline;
  std::optional<Qp> qp(std::in_place, side, options);

  std::vector<uint32_t> sizes;
  for (uint32_t round = 0; round < plan.repeat * plan.opcodes.size(); ++round)
    for (const uint32_t size : kSizes)
      if (size <= plan.most) sizes.push_back(size);
  // In another order, so that short and long ones follow each other.
  for (size_t i = sizes.size(); i > 1; --i) std::swap(sizes[i - 1], sizes[side.random.next() % i]);

  // Passes: from the client, from the server; or both in one.
  uint32_t batches = 0;
  for (int pass = 0; pass < (plan.both_ways ? 1 : 2); ++pass) {
    size_t at = 0, at_server = 0;
    while (at < sizes.size() || (plan.both_ways && at_server < sizes.size())) {
      Flow of_client, of_server;
      Flow& first = pass == 0 ? of_client : of_server;
      first = plan_flow(side.random, plan, sizes, at);
      if (plan.both_ways) of_server = plan_flow(side.random, plan, sizes, at_server);
      ++batches;
      const bool complete =
          run_batch(side, board, *qp, plan.wish.type, side.is_client ? of_client : of_server,
                    side.is_client ? of_server : of_client);
      if (!complete) {
        qp.reset();
        qp.emplace(side, options);
      }
    }
  }
  if (side.options.lost_after == 0 && side.lost > batches / 2)
    fail("%llu of %u batches were lost", static_cast<unsigned long long>(side.lost), batches);
}

Plan one(ibv_wr_opcode opcode) {
  Plan plan;
  plan.opcodes = {opcode};
  return plan;
}

void rc_send(Side& side) { move(side, one(IBV_WR_SEND)); }
void rc_send_imm(Side& side) { move(side, one(IBV_WR_SEND_WITH_IMM)); }
void rc_write(Side& side) { move(side, one(IBV_WR_RDMA_WRITE)); }
void rc_write_imm(Side& side) { move(side, one(IBV_WR_RDMA_WRITE_WITH_IMM)); }
void rc_read(Side& side) { move(side, one(IBV_WR_RDMA_READ)); }
void rc_atomic(Side& side) {
  Plan plan;
  plan.opcodes = {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
  plan.repeat = 4;
  move(side, plan);
}
const std::vector<ibv_wr_opcode> kWithoutAtomics = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
                                                    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                                    IBV_WR_RDMA_READ};
void rc_sges(Side& side) {
  Plan plan;
  plan.opcodes = kWithoutAtomics;
  plan.wish.least_pieces = 2;
  plan.wish.most_pieces = 4;
  plan.most = 1U << 20;
  move(side, plan);
}
void rc_inline(Side& side) {
  Plan plan;
  plan.opcodes = kWithoutAtomics;
  plan.opcodes.pop_back();
  plan.wish.max_inline = 256;
  plan.wish.most_pieces = 4;
  plan.most = 256;
  plan.repeat = 4;
  move(side, plan);
}
std::vector<ibv_wr_opcode> with_atomics(const Side& side) {
  std::vector<ibv_wr_opcode> all = kWithoutAtomics;
  if (side.mine.has_atomics != 0 && side.peer.has_atomics != 0) {
    all.push_back(IBV_WR_ATOMIC_CMP_AND_SWP);
    all.push_back(IBV_WR_ATOMIC_FETCH_AND_ADD);
  }
  return all;
}
void rc_both_ways(Side& side) {
  Plan plan;
  plan.opcodes = with_atomics(side);
  plan.wish.most_pieces = 4;
  plan.both_ways = true;
  plan.most = 1U << 20;
  move(side, plan);
}
void rc_in_flight(Side& side) {
  Plan plan;
  plan.opcodes = with_atomics(side);
  plan.flight = kDepth - 1;
  plan.both_ways = true;
  plan.most = 4097;
  plan.repeat = 10;
  move(side, plan);
}

Plan unreliable(ibv_qp_type type, ibv_wr_opcode opcode, uint32_t most) {
  Plan plan = one(opcode);
  plan.wish.type = type;
  plan.wish.most_pieces = type == IBV_QPT_UD ? 3 : 4;
  plan.flight = 1;  // nothing holds the sender back
  plan.repeat = 2;
  plan.most = most;
  return plan;
}
void uc_send(Side& side) { move(side, unreliable(IBV_QPT_UC, IBV_WR_SEND, 65535)); }
void uc_send_imm(Side& side) { move(side, unreliable(IBV_QPT_UC, IBV_WR_SEND_WITH_IMM, 65535)); }
void uc_write(Side& side) { move(side, unreliable(IBV_QPT_UC, IBV_WR_RDMA_WRITE, 65535)); }
void uc_write_imm(Side& side) {
  move(side, unreliable(IBV_QPT_UC, IBV_WR_RDMA_WRITE_WITH_IMM, 65535));
}
// A datagram has one packet.
void ud_send(Side& side) {
  move(side, unreliable(IBV_QPT_UD, IBV_WR_SEND, std::min(side.mine.mtu, side.peer.mtu)));
}
void ud_send_imm(Side& side) {
  move(side, unreliable(IBV_QPT_UD, IBV_WR_SEND_WITH_IMM, std::min(side.mine.mtu, side.peer.mtu)));
}

// Two queue pairs receive from one shared receive queue. The immediate tells what a message is.
void rc_srq(Side& side) {
  constexpr uint32_t kSlots = 32, kSlot = 9000, kMessages = 300;
  ibv_srq_init_attr init{};
  init.attr = {kSlots, 1, 0};
  const std::unique_ptr<ibv_srq, int (*)(ibv_srq*)> srq(ibv_create_srq(side.pd, &init),
                                                        ibv_destroy_srq);
  if (!srq) fail("ibv_create_srq fails");
  QpOptions options;
  options.srq = srq.get();
  const uint64_t key = side.random.next();
  for (const bool from_client : {true, false}) {
    Memory memory(side, kSlots * kSlot);
    std::array<std::unique_ptr<Qp>, 2> qps;
    for (auto& qp : qps) qp = std::make_unique<Qp>(side, options);
    const auto length_of = [&](uint32_t imm) {
      return static_cast<uint32_t>(Random(key + imm).next() % kSlot);
    };
    if (side.is_client != from_client) {
      const auto post = [&](uint64_t slot) {
        ibv_sge sge = memory.sge(slot * kSlot, kSlot);
        qps[0]->post_receive(slot, {&sge, 1});
      };
      for (uint32_t slot = 0; slot < kSlots; ++slot) post(slot);
      side.channel.meet(0x30);
      Image expected;
      std::array<uint32_t, 2> next{};
      for (uint32_t i = 0; i < kMessages; ++i) {
        // Their receives have a queue each. That of the other has what comes next, if this has not.
        ibv_wc wc{};
        size_t of = 0;
        for (int tries = 0; !qps[of]->received(&wc, 2); of ^= 1, ++tries)
          if (tries * 2 > kPatience) fail("message %u does not come", i);
        const uint32_t imm = wc.imm_data;
        if (wc.status != IBV_WC_SUCCESS || imm != 2 * next[of]++ + of)
          fail("a message of queue pair %zu is %u, '%s'", of, imm, ibv_wc_status_str(wc.status));
        if (wc.byte_len != length_of(imm)) fail("a message has %u bytes", wc.byte_len);
        expected.resize(wc.byte_len);
        fill(expected.data(), expected.size(), key + imm);
        if (std::memcmp(memory.data + wc.wr_id * kSlot, expected.data(), expected.size()) != 0)
          fail("message %u is damaged", imm);
        ++side.messages;
        side.bytes += wc.byte_len;
        post(wc.wr_id);
      }
    } else {
      side.channel.meet(0x30);
      std::array<uint32_t, 2> begun{}, ended{};
      for (uint32_t i = 0; i < kMessages; ++i) {
        const size_t of = i % 2;
        if (begun[of] - ended[of] == kSlots / 2) qps[of]->expect_sent(ended[of]++);
        const uint32_t imm = 2 * begun[of] + static_cast<uint32_t>(of);
        const uint64_t slot = of * (kSlots / 2) + begun[of] % (kSlots / 2);
        fill(memory.data + slot * kSlot, length_of(imm), key + imm);
        ibv_send_wr wr{};
        wr.wr_id = begun[of]++;
        wr.opcode = IBV_WR_SEND_WITH_IMM;
        wr.imm_data = imm;
        wr.send_flags = IBV_SEND_SIGNALED;
        ibv_sge sge = memory.sge(slot * kSlot, length_of(imm));
        qps[of]->post(wr, {&sge, 1});
        ++side.messages;
        side.bytes += sge.length;
      }
      for (const size_t of : {0, 1})
        while (ended[of] != begun[of]) qps[of]->expect_sent(ended[of]++);
    }
    side.channel.meet(0x31);
  }
}

// Receives are posted long after the messages were sent.
void rc_late_receive(Side& side) {
  constexpr uint32_t kBytes = 3000, kMessages = 8;
  Memory memory(side, kMessages * kBytes);
  Qp qp(side, {});
  const uint64_t key = side.random.next();
  for (const bool from_client : {true, false}) {
    Image expected(memory.size);
    fill(expected.data(), expected.size(), key);
    const bool sends = side.is_client == from_client;
    std::memset(memory.data, 0, memory.size);
    if (sends) std::memcpy(memory.data, expected.data(), memory.size);
    side.channel.meet(0x32);
    for (uint32_t i = 0; i < kMessages; ++i) {
      ibv_sge sge = memory.sge(i * kBytes, kBytes);
      if (sends) {
        ibv_send_wr wr{};
        wr.wr_id = i;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        qp.post(wr, {&sge, 1});
      } else {
        if (i == 0 || i == kMessages / 2) ::usleep(150'000);
        qp.post_receive(i, {&sge, 1});
      }
    }
    for (uint32_t i = 0; i < kMessages; ++i) {
      if (sends)
        qp.expect_sent(i);
      else if (qp.expect_received(i).byte_len != kBytes)
        fail("a message has another length");
    }
    memory.compare(expected, "the receiver's memory");
    side.messages += kMessages;
    side.bytes += memory.size;
    side.channel.meet(0x33);
  }
}

// Only a solicited message wakes a queue that is armed for these.
void rc_solicited(Side& side) {
  Memory memory(side, 64);
  Qp qp(side, {});
  for (const bool from_client : {true, false}) {
    ibv_sge sge = memory.sge(0, 64);
    const auto send = [&](unsigned flags) {
      ibv_send_wr wr{};
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED | flags;
      qp.post(wr, {&sge, 1});
      qp.expect_sent(0);
    };
    const auto has_event = [&](int milliseconds) {
      pollfd entry{qp.events->fd, POLLIN, 0};
      return ::poll(&entry, 1, milliseconds) > 0;
    };
    if (side.is_client == from_client) {
      side.channel.meet(0x34);
      send(0);
      side.channel.meet(0x35);
      side.channel.meet(0x36);
      send(IBV_SEND_SOLICITED);
    } else {
      if (ibv_req_notify_cq(qp.recv_cq, 1) != 0) fail("ibv_req_notify_cq fails");
      for (uint64_t i = 0; i < 2; ++i) qp.post_receive(i, {&sge, 1});
      side.channel.meet(0x34);
      side.channel.meet(0x35);
      qp.expect_received(0);
      if (has_event(50)) fail("a message that is not solicited raises an event");
      side.channel.meet(0x36);
      if (!has_event(kPatience)) fail("a solicited message raises no event");
      ibv_cq* cq = nullptr;
      void* unused = nullptr;
      if (ibv_get_cq_event(qp.events, &cq, &unused) != 0) fail("ibv_get_cq_event fails");
      ibv_ack_cq_events(cq, 1);
      qp.expect_received(1);
    }
    side.messages += 2;
    side.channel.meet(0x37);
  }
}

constexpr Test kTestsOfData[] = {{"rc.send", rc_send},
                                 {"rc.send_imm", rc_send_imm},
                                 {"rc.write", rc_write},
                                 {"rc.write_imm", rc_write_imm},
                                 {"rc.read", rc_read},
                                 {"rc.atomic", rc_atomic},
                                 {"rc.sges", rc_sges},
                                 {"rc.inline", rc_inline},
                                 {"rc.both_ways", rc_both_ways},
                                 {"rc.in_flight", rc_in_flight},
                                 {"rc.srq", rc_srq},
                                 {"rc.late_receive", rc_late_receive},
                                 {"rc.solicited", rc_solicited},
                                 {"uc.send", uc_send},
                                 {"uc.send_imm", uc_send_imm},
                                 {"uc.write", uc_write},
                                 {"uc.write_imm", uc_write_imm},
                                 {"ud.send", ud_send},
                                 {"ud.send_imm", ud_send_imm}};

}  // namespace

const std::span<const Test> kDataTests = kTestsOfData;

}  // namespace exchange
