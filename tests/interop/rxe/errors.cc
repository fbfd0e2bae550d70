// Tests of what fails: each has queue pairs that end in the state ERR, from both sides.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>

#include "tests/interop/rxe/side.h"

namespace exchange {
namespace {

constexpr uint32_t kBytes = 16384;

ibv_send_wr request(uint64_t wr_id, ibv_wr_opcode opcode) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}
ibv_send_wr to_remote(uint64_t wr_id, ibv_wr_opcode opcode, const Memory::Remote& remote) {
  ibv_send_wr wr = request(wr_id, opcode);
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
    wr.wr.atomic = {remote.address, 1, 0, remote.rkey};
  else
    wr.wr.rdma = {remote.address, remote.rkey};
  return wr;
}

// A peer's memory with a flaw, and the requests that it refuses.
struct Flaw {
  int access = Memory::kAllAccess;
  uint64_t beyond = 0;     // added to the address
  uint32_t key_mask = 0;   // changes the key
  uint32_t length = 5000;  // of the request
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
};
constexpr Flaw kFlaws[] = {
    {.key_mask = 0x5500},
    {.key_mask = 0x5500, .opcode = IBV_WR_RDMA_READ},
    {.key_mask = 0x5500, .length = 8, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD},
    {.beyond = kBytes - 4999},
    {.beyond = kBytes - 4999, .opcode = IBV_WR_RDMA_READ},
    {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, .length = 10},
    {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, .opcode = IBV_WR_RDMA_READ},
    {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
     .length = 8,
     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD},
};

void bad_rkey(Side& side) {
  for (const Flaw& flaw : kFlaws) {
    for (const bool from_client : {true, false}) {
      Memory memory(side, kBytes, flaw.access), good(side, kBytes);
      const Memory::Remote good_there = side.channel.swap(good.remote());
      Memory::Remote there = side.channel.swap(memory.remote());
      Qp qp(side, {});
      std::vector<uint8_t> unchanged(kBytes);
      fill(unchanged.data(), kBytes, 7);
      std::copy(unchanged.begin(), unchanged.end(), memory.data);
      ibv_sge sge = good.sge(0, flaw.length);
      if (side.is_client == from_client) {
        side.channel.meet(0x40);
        there.address += flaw.beyond;
        there.rkey ^= flaw.key_mask;
        qp.post(to_remote(0, IBV_WR_RDMA_WRITE, good_there), {&sge, 1});
        qp.expect_sent(0);
        qp.post(to_remote(1, flaw.opcode, there), {&sge, 1});
        qp.expect_sent(1, IBV_WC_REM_ACCESS_ERR);
        qp.post(to_remote(2, IBV_WR_RDMA_WRITE, good_there), {&sge, 1});
        qp.expect_sent(2, IBV_WC_WR_FLUSH_ERR);
      } else {
        qp.post_receive(3, {&sge, 1});
        side.channel.meet(0x40);
        qp.expect_received(3, IBV_WC_WR_FLUSH_ERR);
      }
      qp.await_error_state();
      side.channel.meet(0x41);
      memory.compare(unchanged, "memory of a refused request");
      side.messages += 3;
    }
  }
}

void too_long(Side& side) {
  static constexpr struct {
    uint32_t message, receive;
  } kCases[] = {{101, 100}, {1, 0}, {5000, 300}, {9000, 8999}};
  for (const auto& lengths : kCases) {
    for (const bool from_client : {true, false}) {
      Memory memory(side, kBytes);
      Qp qp(side, {});
      ibv_sge sge = memory.sge(0, lengths.receive);
      // Linux 6.1's rxe takes its own receive for the cause.
      const bool asks = side.is_client == from_client;
      const bool by_rxe = (asks ? side.peer : side.mine).is_rxe != 0;
      if (asks) {
        sge.length = lengths.message;
        side.channel.meet(0x42);
        qp.post(request(0, IBV_WR_SEND), {&sge, 1});
        const ibv_wc wc = qp.sent();
        if (wc.status != IBV_WC_REM_INV_REQ_ERR && !(by_rxe && wc.status == IBV_WC_REM_OP_ERR))
          fail("a message that is too long ends with '%s'", ibv_wc_status_str(wc.status));
      } else {
        qp.post_receive(1, {&sge, lengths.receive == 0 ? size_t{0} : size_t{1}});
        side.channel.meet(0x42);
        const ibv_wc wc = qp.received();
        if (by_rxe ? wc.status == IBV_WC_SUCCESS : wc.status != IBV_WC_LOC_LEN_ERR)
          fail("the receive of a longer message ends with '%s'", ibv_wc_status_str(wc.status));
      }
      qp.await_error_state();
      side.channel.meet(0x43);
      ++side.messages;
    }
  }
}

// The peer's queue pair is destroyed.
void nothing_there(Side& side) {
  for (const bool from_client : {true, false}) {
    Memory memory(side, kBytes);
    QpOptions options;
    options.timeout = 10;  // 4 ms
    options.retry_cnt = 3;
    std::optional<Qp> qp(std::in_place, side, options);
    if (side.is_client == from_client) {
      side.channel.meet(0x44);
      ibv_sge sge = memory.sge(0, 3000);
      qp->post(request(0, IBV_WR_SEND), {&sge, 1});
      qp->post(request(1, IBV_WR_SEND), {&sge, 1});
      qp->expect_sent(0, IBV_WC_RETRY_EXC_ERR);
      qp->expect_sent(1, IBV_WC_WR_FLUSH_ERR);
      qp->await_error_state();
    } else {
      qp.reset();
      side.channel.meet(0x44);
    }
    side.channel.meet(0x45);
    ++side.messages;
  }
}

// There is never a receive, and the requester does not wait forever.
void no_receive(Side& side) {
  for (const bool from_client : {true, false}) {
    Memory memory(side, kBytes);
    QpOptions options;
    options.rnr_retry = 2;
    Qp qp(side, options);
    if (side.is_client == from_client) {
      ibv_sge sge = memory.sge(0, 100);
      qp.post(request(0, IBV_WR_SEND), {&sge, 1});
      qp.expect_sent(0, IBV_WC_RNR_RETRY_EXC_ERR);
      qp.await_error_state();
    }
    side.channel.meet(0x46);
    ++side.messages;
  }
}

// A SEND with invalidate ends a memory window of its receiver.
void invalidate(Side& side) {
  if (side.mine.has_windows == 0 || side.peer.has_windows == 0)
    throw Skipped("a device has no memory windows of type 2");
  for (const bool from_client : {true, false}) {
    const bool asks = side.is_client == from_client;
    Memory memory(side, kBytes, Memory::kAllAccess | IBV_ACCESS_MW_BIND);
    Qp qp(side, {});
    std::vector<uint8_t> expected(kBytes);
    fill(expected.data(), kBytes, side.random.next());
    const auto deleter = [](ibv_mw* mw) { ibv_dealloc_mw(mw); };
    const std::unique_ptr<ibv_mw, decltype(deleter)> window(ibv_alloc_mw(side.pd, IBV_MW_TYPE_2),
                                                            deleter);
    if (!window) fail("ibv_alloc_mw fails");
    Memory::Remote here = memory.remote();
    if (!asks) {
      ibv_send_wr bind = request(0, IBV_WR_BIND_MW);
      bind.bind_mw.mw = window.get();
      bind.bind_mw.rkey = here.rkey = ibv_inc_rkey(window->rkey);
      bind.bind_mw.bind_info = {memory.mr, here.address, kBytes, IBV_ACCESS_REMOTE_WRITE};
      qp.post(bind, {});
      qp.expect_sent(0);
      ibv_sge sge = memory.sge(0, 100);
      qp.post_receive(1, {&sge, 1});
      qp.post_receive(2, {&sge, 1});
    } else {
      std::copy(expected.begin(), expected.end(), memory.data);
    }
    const Memory::Remote there = side.channel.swap(here);
    ibv_sge all = memory.sge(0, kBytes), first = memory.sge(0, 100);
    if (asks) {
      qp.post(to_remote(0, IBV_WR_RDMA_WRITE, there), {&all, 1});
      ibv_send_wr wr = request(1, IBV_WR_SEND_WITH_INV);
      wr.invalidate_rkey = there.rkey;
      qp.post(wr, {&first, 1});
      qp.expect_sent(0);
      qp.expect_sent(1);
    } else {
      const ibv_wc wc = qp.expect_received(1);
      // rxe's library hands on the kernel's flags, of which this is another one.
      const unsigned flag = side.mine.is_rxe != 0 ? 1U << 2 : unsigned{IBV_WC_WITH_INV};
      if ((wc.wc_flags & flag) == 0 || wc.invalidated_rkey != here.rkey)
        fail("the receive says flags %x, key %x instead of %x", wc.wc_flags, wc.invalidated_rkey,
             here.rkey);
    }
    memory.compare(expected, "memory behind the window");
    side.channel.meet(0x47);
    if (asks) {
      qp.post(to_remote(2, IBV_WR_RDMA_WRITE, there), {&all, 1});
      qp.expect_sent(2, IBV_WC_REM_ACCESS_ERR);
    } else {
      qp.expect_received(2, IBV_WC_WR_FLUSH_ERR);
    }
    qp.await_error_state();
    side.channel.meet(0x48);
    side.messages += 3;
    side.bytes += kBytes + 100;
  }
}

constexpr Test kTestsOfErrors[] = {{"rc.invalidate", invalidate},
                                   {"rc.bad_rkey", bad_rkey},
                                   {"rc.too_long", too_long},
                                   {"rc.no_receive", no_receive},
                                   {"rc.nothing_there", nothing_there}};

}  // namespace

const std::span<const Test> kErrorTests = kTestsOfErrors;

}  // namespace exchange
