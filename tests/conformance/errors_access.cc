// Forbidden access to a peer's memory: the initiator gets an error, b an event, and b's memory does
// not change.
#include <algorithm>
#include <cstring>

#include "tests/conformance/errors.h"

namespace conformance {

namespace {

constexpr int kAccessEvent = IBV_EVENT_QP_ACCESS_ERR;
constexpr int kRequestEvent = IBV_EVENT_QP_REQ_ERR;

// b sends its address; a tries `act` there. None of b's `watched` changes.
void refused(Breakable& pair, const Buffer& watched, Remote remote,
             const std::function<void(const Remote&)>& act) {
  const Side& side = pair.side;
  fill(watched.data, watched.size, 3);
  remote = side.exchange(remote);
  pair.provoke([&] { act(remote); }, {IBV_WC_REM_ACCESS_ERR}, kAccessEvent);
  check_filled(watched.data, watched.size, 3);
}

}  // namespace

CONFORMANCE_TEST(errors, remote_key) {
  Breakable pair(side);
  Qp& qp = pair.qp;
  ibv_pd* foreign = ibv_alloc_pd(side.context);
  CHECK(foreign != nullptr);
  {
    Buffer target(side, 8192), of_foreign(side, 8192, kAllAccess, foreign);
    const auto write = [&](const Remote& remote) { qp.write(1, {pair.buffer.sge(0, 64)}, remote); };
    const auto read = [&](const Remote& remote) { qp.read(1, {pair.buffer.sge(0, 64)}, remote); };
    const auto add = [&](const Remote& remote) {
      qp.fetch_add(1, pair.buffer.sge(0, 8), remote, 0, 1);
    };
    Remote wrong = remote_of(target);
    for (const uint32_t change : {0x1u, 0x80u, 0x100u, 0x40000000u}) {
      wrong.rkey = target.mr->rkey ^ change;
      refused(pair, target, wrong, write);
      refused(pair, target, wrong, read);
    }
    wrong.rkey = 0;
    refused(pair, target, wrong, add);
    refused(pair, of_foreign, remote_of(of_foreign), write);
    refused(pair, of_foreign, remote_of(of_foreign), read);
    refused(pair, of_foreign, remote_of(of_foreign), add);
    // a's own key, used at b.
    const Remote mine = remote_of(target);
    const Remote theirs = side.exchange(mine);
    if (mine.rkey != theirs.rkey) {
      wrong = mine;
      wrong.rkey = theirs.rkey;
      refused(pair, target, wrong, write);
    }
  }
  CHECK_EQ(ibv_dealloc_pd(foreign), 0);
}

CONFORMANCE_TEST(errors, remote_range) {
  Breakable pair(side);
  Qp& qp = pair.qp;
  // The region is the middle of memory that is registered as a whole in another protection domain.
  ibv_pd* other = ibv_alloc_pd(side.context);
  CHECK(other != nullptr);
  {
    Buffer whole(side, 3 * 4096, kAllAccess, other);
    ibv_mr* middle = ibv_reg_mr(side.pd, whole.data + 4096, 4096, kAllAccess);
    CHECK(middle != nullptr);
    const Remote at{whole.address(4096), 4096, middle->rkey, 0};
    const auto shifted = [&](int64_t by) {
      Remote remote = at;
      remote.addr += static_cast<uint64_t>(by);
      return remote;
    };
    const auto write = [&](size_t length) {
      return [&qp, &pair, length](const Remote& remote) {
        qp.write(1, {pair.buffer.sge(0, length)}, remote);
      };
    };
    const auto read = [&](size_t length) {
      return [&qp, &pair, length](const Remote& remote) {
        qp.read(1, {pair.buffer.sge(0, length)}, remote);
      };
    };
    refused(pair, whole, at, write(4097));
    refused(pair, whole, at, read(4097));
    refused(pair, whole, shifted(-1), write(1));
    refused(pair, whole, shifted(-1), read(4096));
    refused(pair, whole, shifted(4096), write(1));
    refused(pair, whole, shifted(4095), write(2));
    refused(pair, whole, Remote{UINT64_MAX - 3, 0, middle->rkey, 0}, write(8));
    refused(pair, whole, shifted(4096 - 4), [&](const Remote& remote) {
      Remote aligned = remote;
      aligned.addr = (remote.addr + 7) / 8 * 8;
      qp.fetch_add(1, pair.buffer.sge(0, 8), aligned, 0, 1);
    });
    // A message that exceeds the region changes nothing, whatever its length.
    refused(pair, whole, shifted(1), write(4096));
    CHECK_EQ(ibv_dereg_mr(middle), 0);
  }
  CHECK_EQ(ibv_dealloc_pd(other), 0);
}

CONFORMANCE_TEST(errors, region_access) {
  Breakable pair(side);
  Qp& qp = pair.qp;
  constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
  Buffer readable(side, 4096, IBV_ACCESS_REMOTE_READ);
  Buffer writable(side, 4096, kLocal | IBV_ACCESS_REMOTE_WRITE);
  Buffer local(side, 4096, kLocal);
  const auto write = [&](const Remote& remote) { qp.write(1, {pair.buffer.sge(0, 64)}, remote); };
  const auto write_imm = [&](const Remote& remote) {
    qp.write_imm(1, 5, {pair.buffer.sge(0, 64)}, remote);
  };
  const auto read = [&](const Remote& remote) { qp.read(1, {pair.buffer.sge(0, 64)}, remote); };
  const auto swap = [&](const Remote& remote) {
    qp.compare_swap(1, pair.buffer.sge(0, 8), remote, 0, 0, 1);
  };
  refused(pair, readable, remote_of(readable), write);
  refused(pair, readable, remote_of(readable), write_imm);
  refused(pair, readable, remote_of(readable), swap);
  refused(pair, writable, remote_of(writable), read);
  refused(pair, writable, remote_of(writable), swap);
  refused(pair, local, remote_of(local), write);
  refused(pair, local, remote_of(local), read);
}

CONFORMANCE_TEST(errors, deregistered) {
  Breakable pair(side);
  for (int round = 0; round < 2; ++round) {
    Buffer gone(side, 4096);
    const Remote remote = remote_of(gone);
    gone.deregister();
    refused(pair, gone, remote, [&](const Remote& there) {
      if (round == 0)
        pair.qp.write(1, {pair.buffer.sge(0, 64)}, there);
      else
        pair.qp.read(1, {pair.buffer.sge(0, 64)}, there);
    });
  }
}

// Zero bytes need no key (IBTA C9-88).
CONFORMANCE_TEST(errors, nothing_needs_no_key) {
  Breakable pair(side);
  if (side.is_a()) {
    pair.qp.write(1, {}, Remote{0, 0, 0x12345678, 0});
    pair.cq.expect(1);
    pair.qp.read(2, {}, Remote{0, 0, 0, 0});
    pair.cq.expect(2);
  }
  side.meet(1);
  pair.mend();
}

CONFORMANCE_TEST(errors, misaligned_atomic) {
  Breakable pair(side);
  const Remote remote = side.exchange(remote_of(pair.buffer));
  for (const size_t offset : {1u, 4u, 4095u})
    pair.provoke([&] { pair.qp.fetch_add(1, pair.buffer.sge(0, 8), remote, offset, 1); },
                 {IBV_WC_REM_INV_REQ_ERR}, kRequestEvent);
}

// The queue pair itself may forbid what the region allows. (Devices differ in the NAK that they
// send.) Eight bytes at once or not at all.
CONFORMANCE_TEST(errors, atomic_write) {
  Breakable pair(side);
  Buffer target(side, 4096);
  const Remote remote = side.exchange(remote_of(target));
  uint64_t value = 0x0123456789abcdef;
  const auto write = [&](size_t offset, uint32_t length = sizeof(uint64_t)) {
    ibv_send_wr wr{};
    wr.wr_id = 1;
    wr.opcode = IBV_WR_ATOMIC_WRITE;
    wr.wr.rdma.remote_addr = remote.addr + offset;
    wr.wr.rdma.rkey = remote.rkey;
    return pair.qp.try_send(wr, {{reinterpret_cast<uint64_t>(&value), length, 0}});
  };
  if (side.is_a()) {
    CHECK_EQ(write(64, 4), EINVAL);
    CHECK_EQ(write(64), 0);
    const ibv_wc wc = pair.cq.expect(1);
    CHECK_EQ(static_cast<int>(wc.opcode), static_cast<int>(IBV_WC_ATOMIC_WRITE));
  }
  side.meet(1);
  if (!side.is_a()) {
    uint64_t seen = 0;
    std::memcpy(&seen, target.data + 64, sizeof seen);
    CHECK_EQ(seen, value);
  }
  side.meet(2);
  pair.provoke([&] { CHECK_EQ(write(68), 0); }, {IBV_WC_REM_INV_REQ_ERR}, IBV_EVENT_QP_REQ_ERR);
}

CONFORMANCE_TEST(errors, queue_pair_access) {
  const std::initializer_list<ibv_wc_status> kRefusals{IBV_WC_REM_INV_REQ_ERR,
                                                       IBV_WC_REM_ACCESS_ERR};
  const auto provoke = [&](int access, const std::function<void(Breakable&, const Remote&)>& act) {
    QpOptions options;
    options.access = access;
    Breakable pair(side, options);
    Buffer target(side, 4096);
    fill(target.data, 4096, 3);
    const Remote remote = side.exchange(remote_of(target));
    if (side.is_a()) {
      act(pair, remote);
      const ibv_wc wc = pair.cq.wait();
      CHECK_EQ(wc.wr_id, 1u);
      CHECK(std::find(kRefusals.begin(), kRefusals.end(), wc.status) != kRefusals.end());
    }
    side.meet(1);
    if (!side.is_a()) {
      ibv_async_event event{};
      CHECK_EQ(ibv_get_async_event(side.context, &event), 0);
      ibv_ack_async_event(&event);
      CHECK(event.event_type == IBV_EVENT_QP_REQ_ERR ||
            event.event_type == IBV_EVENT_QP_ACCESS_ERR);
      pair.qp.await_state(IBV_QPS_ERR);
    }
    check_filled(target.data, 4096, 3);
    pair.mend();
  };
  provoke(kAllAccess & ~IBV_ACCESS_REMOTE_WRITE, [](Breakable& pair, const Remote& remote) {
    pair.qp.write(1, {pair.buffer.sge(0, 64)}, remote);
  });
  provoke(kAllAccess & ~IBV_ACCESS_REMOTE_READ, [](Breakable& pair, const Remote& remote) {
    pair.qp.read(1, {pair.buffer.sge(0, 64)}, remote);
  });
  provoke(kAllAccess & ~IBV_ACCESS_REMOTE_ATOMIC, [](Breakable& pair, const Remote& remote) {
    pair.qp.fetch_add(1, pair.buffer.sge(0, 8), remote, 0, 1);
  });
}

// After ibv_dereg_mr has returned, no one writes into the memory.
CONFORMANCE_TEST(errors, deregistered_in_full_flight) {
  for (int round = 0; round < 20; ++round) {
    Breakable pair(side);
    Buffer target(side, 16u << 10);
    const Remote remote = side.exchange(remote_of(target));
    if (side.is_a()) {
      std::memset(pair.buffer.data, 0x55, 16u << 10);
      uint64_t posted = 0, done = 0;
      for (;;) {
        if (posted - done < 8) pair.qp.write(++posted, {pair.buffer.sge(0, 16u << 10)}, remote);
        ibv_wc wc{};
        const int count = ibv_poll_cq(pair.cq.cq, 1, &wc);
        if (count == 0) continue;
        CHECK_EQ(wc.wr_id, ++done);
        if (wc.status == IBV_WC_SUCCESS) continue;
        CHECK_EQ(static_cast<int>(wc.status), static_cast<int>(IBV_WC_REM_ACCESS_ERR));
        break;
      }
      while (done < posted) pair.cq.expect(++done, IBV_WC_WR_FLUSH_ERR);
      side.meet(1);
    } else {
      while (__atomic_load_n(target.data, __ATOMIC_RELAXED) != 0x55) {
      }  // until they are in flight
      target.deregister();
      fill(target.data, target.size, static_cast<uint64_t>(round));
      side.meet(1);
      check_filled(target.data, target.size, static_cast<uint64_t>(round));
      expect_async_event(side, IBV_EVENT_QP_ACCESS_ERR);
    }
    side.meet(2);
  }
}

}  // namespace conformance
