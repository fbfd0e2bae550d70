// Memory windows, invalidation, changed regions, and null regions.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/conformance/errors.h"

namespace conformance {

namespace {

constexpr int kAccessEvent = IBV_EVENT_QP_ACCESS_ERR;
constexpr int kBindable = kAllAccess | IBV_ACCESS_MW_BIND;

struct Window {
  Window(const Side& side, ibv_mw_type type, ibv_pd* pd = nullptr)
      : mw(ibv_alloc_mw(pd != nullptr ? pd : side.pd, type)) {
    CHECK(mw != nullptr);
  }
  ~Window() { CHECK_EQ(ibv_dealloc_mw(mw), 0); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ibv_mw* mw;
};

ibv_mw_bind_info part_of(const Buffer& buffer, size_t offset, size_t length, unsigned access) {
  return {buffer.mr, buffer.address(offset), length, access};
}

// Binds by the verb of the window's type; returns the new rkey.
uint32_t post_bind(Qp& qp, ibv_mw* mw, const ibv_mw_bind_info& info, uint64_t wr_id) {
  if (mw->type == IBV_MW_TYPE_1) {
    ibv_mw_bind bind{wr_id, IBV_SEND_SIGNALED, info};
    const uint32_t before = mw->rkey;
    CHECK_EQ(ibv_bind_mw(qp.qp, mw, &bind), 0);
    CHECK(mw->rkey != before);
    return mw->rkey;
  }
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = info;
  CHECK_EQ(qp.try_send(wr, {}), 0);
  mw->rkey = wr.bind_mw.rkey;
  return mw->rkey;
}

void invalidate(Qp& qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t wr_id) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.invalidate_rkey = rkey;
  CHECK_EQ(qp.try_send(wr, {}), 0);
}

}  // namespace

// b binds; a may do in the window what it allows, and nothing outside.
CONFORMANCE_TEST(protection, bound_part_only) {
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    Breakable pair(side);
    Buffer target(side, 8192, kBindable);
    Remote at{};
    {
      Window window(side, type);
      if (!side.is_a()) {
        at = {target.address(1000), 100, 0, 0};
        at.rkey =
            post_bind(pair.qp, window.mw, part_of(target, 1000, 100, IBV_ACCESS_REMOTE_WRITE), 5);
        CHECK_EQ(pair.cq.expect(5).opcode, IBV_WC_BIND_MW);
      }
      at = side.exchange(at);
      if (side.is_a()) {
        fill(pair.buffer.data, 100, 9);
        pair.qp.write(1, {pair.buffer.sge(0, 100)}, at);
        pair.cq.expect(1);
      }
      side.meet(1);
      if (!side.is_a()) check_filled(target.data + 1000, 100, 9);
      const auto refuse = [&](const std::function<void()>& act) {
        pair.provoke(act, {IBV_WC_REM_ACCESS_ERR}, kAccessEvent);
      };
      refuse([&] { pair.qp.write(1, {pair.buffer.sge(0, 100)}, at, 1); });
      refuse([&] { pair.qp.read(1, {pair.buffer.sge(0, 8)}, at); });
      refuse([&] { pair.qp.fetch_add(1, pair.buffer.sge(0, 8), at, 0, 1); });
      // A region with a window is busy.
      if (!side.is_a()) CHECK_EQ(ibv_dereg_mr(target.mr), EBUSY);
      side.meet(2);
    }
    side.meet(3);
    pair.provoke([&] { pair.qp.write(1, {pair.buffer.sge(0, 8)}, at); }, {IBV_WC_REM_ACCESS_ERR},
                 kAccessEvent);
  }
}

CONFORMANCE_TEST(protection, type_1_bound_again_and_unbound) {
  Breakable pair(side);
  Buffer target(side, 8192, kBindable);
  Window window(side, IBV_MW_TYPE_1);
  Remote first{}, second{};
  if (!side.is_a()) {
    first = {target.address(), 64, 0, 0};
    first.rkey = post_bind(pair.qp, window.mw, part_of(target, 0, 64, IBV_ACCESS_REMOTE_WRITE), 5);
    pair.cq.expect(5);
    second = {target.address(4096), 64, 0, 0};
    second.rkey =
        post_bind(pair.qp, window.mw, part_of(target, 4096, 64, IBV_ACCESS_REMOTE_WRITE), 6);
    pair.cq.expect(6);
  }
  first = side.exchange(first);
  second = side.exchange(second);
  const auto refuse = [&](const Remote& remote) {
    pair.provoke([&] { pair.qp.write(1, {pair.buffer.sge(0, 8)}, remote); },
                 {IBV_WC_REM_ACCESS_ERR}, kAccessEvent);
  };
  refuse(first);
  if (side.is_a()) {
    pair.qp.write(1, {pair.buffer.sge(0, 64)}, second);
    pair.cq.expect(1);
  }
  side.meet(1);
  if (!side.is_a()) {
    ibv_mw_bind nothing{7, IBV_SEND_SIGNALED, {}};
    CHECK_EQ(ibv_bind_mw(pair.qp.qp, window.mw, &nothing), 0);
    pair.cq.expect(7);
    target.deregister();
  }
  side.meet(2);
  refuse(second);
}

// LOCAL_INV at b, SEND_WITH_INV from a; only of the queue pair that bound it.
CONFORMANCE_TEST(protection, type_2_invalidated) {
  Breakable pair(side);
  Buffer target(side, 4096, kBindable);
  Window window(side, IBV_MW_TYPE_2);
  const auto bind = [&]() -> Remote {
    Remote at{};
    if (!side.is_a()) {
      at = {target.address(), 64, 0, 0};
      at.rkey = post_bind(pair.qp, window.mw, part_of(target, 0, 64, IBV_ACCESS_REMOTE_WRITE), 5);
      pair.cq.expect(5);
    }
    return side.exchange(at);
  };
  const auto refuse = [&](const Remote& remote) {
    pair.provoke([&] { pair.qp.write(1, {pair.buffer.sge(0, 8)}, remote); },
                 {IBV_WC_REM_ACCESS_ERR}, kAccessEvent);
  };
  Remote at = bind();
  if (!side.is_a()) {
    invalidate(pair.qp, IBV_WR_LOCAL_INV, window.mw->rkey, 6);
    CHECK_EQ(pair.cq.expect(6).opcode, IBV_WC_LOCAL_INV);
  }
  side.meet(1);
  refuse(at);

  at = bind();
  if (side.is_a()) {
    pair.qp.write(1, {pair.buffer.sge(0, 64)}, at);
    pair.cq.expect(1);
    side.meet(2);
    invalidate(pair.qp, IBV_WR_SEND_WITH_INV, at.rkey, 2);
    CHECK_EQ(pair.cq.expect(2).opcode, IBV_WC_SEND);
  } else {
    pair.qp.receive(3, {pair.buffer.sge(0, 64)});
    side.meet(2);
    const ibv_wc wc = pair.recv_cq.expect(3);
    CHECK_EQ(wc.wc_flags & IBV_WC_WITH_INV, unsigned{IBV_WC_WITH_INV});
    CHECK_EQ(wc.invalidated_rkey, window.mw->rkey);
    CHECK_EQ(wc.byte_len, 0u);
  }
  side.meet(3);
  refuse(at);
  // Only a bound window can be invalidated.
  pair.provoke([&] { invalidate(pair.qp, IBV_WR_SEND_WITH_INV, at.rkey, 1); },
               {IBV_WC_REM_ACCESS_ERR}, kAccessEvent);
  pair.provoke([&] { invalidate(pair.qp, IBV_WR_LOCAL_INV, target.mr->rkey, 1); },
               {IBV_WC_LOC_QP_OP_ERR});
  pair.provoke([&] { invalidate(pair.qp, IBV_WR_LOCAL_INV, window.mw->rkey, 1); },
               {IBV_WC_LOC_QP_OP_ERR});
}

CONFORMANCE_TEST(protection, bind_errors) {
  Breakable pair(side);
  ibv_pd* foreign = ibv_alloc_pd(side.context);
  CHECK(foreign != nullptr);
  errno = 0;
  CHECK(ibv_alloc_mw(side.pd, static_cast<ibv_mw_type>(3)) == nullptr);
  CHECK_EQ(errno, EINVAL);
  {
    Buffer good(side, 4096, kBindable), unbindable(side, 4096);
    Buffer readable(side, 4096, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
    Buffer elsewhere(side, 4096, kBindable, foreign);
    for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
      const auto refuse = [&](const ibv_mw_bind_info& info) {
        Window window(side, type);
        pair.provoke([&] { (void)post_bind(pair.qp, window.mw, info, 1); }, {IBV_WC_MW_BIND_ERR});
      };
      refuse(part_of(unbindable, 0, 64, IBV_ACCESS_REMOTE_READ));
      refuse(part_of(readable, 0, 64, IBV_ACCESS_REMOTE_WRITE));
      refuse(part_of(readable, 0, 64, IBV_ACCESS_REMOTE_ATOMIC));
      // For type 1 verbs.h itself returns EPERM.
      if (type == IBV_MW_TYPE_2) refuse(part_of(elsewhere, 0, 64, IBV_ACCESS_REMOTE_READ));
      refuse(part_of(good, 4000, 97, IBV_ACCESS_REMOTE_READ));
      if (type == IBV_MW_TYPE_2) refuse(part_of(good, 0, 0, IBV_ACCESS_REMOTE_READ));
    }
    Window one(side, IBV_MW_TYPE_1), two(side, IBV_MW_TYPE_2);
    ibv_mw_bind bind{1, IBV_SEND_SIGNALED,
                     part_of(good, 0, 64, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED)};
    CHECK_EQ(ibv_bind_mw(pair.qp.qp, one.mw, &bind), EINVAL);
    CHECK_EQ(ibv_bind_mw(pair.qp.qp, two.mw, &bind), EINVAL);
    // An rkey of another window.
    pair.provoke(
        [&] {
          ibv_send_wr wr{};
          wr.wr_id = 1;
          wr.opcode = IBV_WR_BIND_MW;
          wr.bind_mw.mw = two.mw;
          wr.bind_mw.rkey = two.mw->rkey ^ 0x100;
          wr.bind_mw.bind_info = part_of(good, 0, 64, IBV_ACCESS_REMOTE_READ);
          CHECK_EQ(pair.qp.try_send(wr, {}), 0);
        },
        {IBV_WC_MW_BIND_ERR});
    if (side.is_a()) {  // bound already
      (void)post_bind(pair.qp, two.mw, part_of(good, 0, 64, IBV_ACCESS_REMOTE_READ), 2);
      pair.cq.expect(2);
    }
    pair.provoke(
        [&] { (void)post_bind(pair.qp, two.mw, part_of(good, 0, 64, IBV_ACCESS_REMOTE_READ), 1); },
        {IBV_WC_MW_BIND_ERR});
  }
  CHECK_EQ(ibv_dealloc_pd(foreign), 0);
}

// ibv_rereg_mr: the key stays; its rights and its range change.
CONFORMANCE_TEST(protection, region_changed) {
  Breakable pair(side);
  Buffer target(side, 8192);
  ibv_mr* mr = ibv_reg_mr(side.pd, target.data, 4096, kAllAccess);
  CHECK(mr != nullptr);
  ibv_pd* other = ibv_alloc_pd(side.context);
  CHECK(other != nullptr);
  const Remote first = side.exchange(Remote{target.address(), 4096, mr->rkey, 0});
  Remote second = first;
  second.addr += 4096;
  const auto write = [&](const Remote& remote) {
    pair.qp.write(1, {pair.buffer.sge(0, 64)}, remote);
  };
  const auto refuse = [&](const Remote& remote) {
    pair.provoke([&] { write(remote); }, {IBV_WC_REM_ACCESS_ERR}, kAccessEvent);
  };
  const auto allow = [&](const Remote& remote) {
    if (side.is_a()) {
      write(remote);
      pair.cq.expect(1);
    }
    side.meet(7);
  };
  const auto change = [&](int flags, ibv_pd* pd, void* addr, size_t length, int access) {
    if (!side.is_a()) CHECK_EQ(ibv_rereg_mr(mr, flags, pd, addr, length, access), 0);
    side.meet(8);
  };
  allow(first);
  change(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE);
  refuse(first);
  change(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess);
  allow(first);
  change(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, target.data + 4096, 4096, 0);
  refuse(first);
  allow(second);
  change(IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0);
  refuse(second);
  change(IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
         side.pd, target.data, 4096, kAllAccess);
  allow(first);
  refuse(second);

  const auto fails = [&](int flags, ibv_pd* pd, void* addr, size_t length, int access, int code) {
    errno = 0;
    CHECK_EQ(ibv_rereg_mr(mr, flags, pd, addr, length, access), code);
    CHECK(errno != 0);
  };
  fails(0, nullptr, nullptr, 0, 0, IBV_REREG_MR_ERR_INPUT);
  fails(8, nullptr, nullptr, 0, 0, IBV_REREG_MR_ERR_INPUT);
  fails(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0, IBV_REREG_MR_ERR_INPUT);
  fails(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 64, 0, IBV_REREG_MR_ERR_INPUT);
  fails(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, target.data, 0, 0, IBV_REREG_MR_ERR_INPUT);
  fails(IBV_REREG_MR_CHANGE_PD, side.pd, nullptr, 0, kAllAccess, IBV_REREG_MR_ERR_INPUT);
  fails(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE,
        IBV_REREG_MR_ERR_CMD);
  fails(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, reinterpret_cast<void*>(4096), 4096, 0,
        IBV_REREG_MR_ERR_CMD);
  side.meet(9);
  allow(first);  // a failure changes nothing
  CHECK_EQ(ibv_dereg_mr(mr), 0);
  CHECK_EQ(ibv_dealloc_pd(other), 0);
}

// Reads as zeros and discards writes.
CONFORMANCE_TEST(protection, null_region) {
  Breakable pair(side);
  ibv_mr* null = ibv_alloc_null_mr(side.pd);
  CHECK(null != nullptr);
  const ibv_sge nothing{0x123456789, 1000, null->lkey};
  Buffer target(side, 4096);
  const Remote at = side.exchange(remote_of(target));
  if (side.is_a()) {
    side.meet(1);
    fill(pair.buffer.data, 200, 4);
    pair.qp.write(1, {pair.buffer.sge(0, 100), nothing, pair.buffer.sge(100, 100)}, at);
    pair.cq.expect(1);
    pair.qp.read(2, {nothing}, at);
    pair.cq.expect(2);
    pair.qp.fetch_add(3, {0, 8, null->lkey}, at, 2048, 7);
    pair.cq.expect(3);
    pair.qp.send(4, {pair.buffer.sge(0, 200)});
    pair.cq.expect(4);
    side.meet(2);
  } else {
    fill(target.data, target.size, 3);
    const uint64_t before = 35;
    std::memcpy(target.data + 2048, &before, 8);
    pair.qp.receive(9, {{0, 100, null->lkey}, pair.buffer.sge(0, 100)});
    side.meet(1);
    side.meet(2);
    check_filled(target.data, 100, 4);
    CHECK(std::all_of(target.data + 100, target.data + 1100, [](uint8_t b) { return b == 0; }));
    check_filled(target.data + 1100, 100, 4, 100);
    uint64_t after = 0;
    std::memcpy(&after, target.data + 2048, 8);
    CHECK_EQ(after, 42u);
    CHECK_EQ(pair.recv_cq.expect(9).byte_len, 200u);
    check_filled(pair.buffer.data, 100, 4, 100);
  }
  // It has no rkey.
  const Remote none = side.exchange(Remote{0, 4096, null->lkey, 0});
  pair.provoke([&] { pair.qp.write(1, {pair.buffer.sge(0, 8)}, none); }, {IBV_WC_REM_ACCESS_ERR},
               kAccessEvent);
  CHECK_EQ(ibv_dereg_mr(null), 0);
}

CONFORMANCE_TEST(protection, on_demand) {
  Breakable pair(side);
  ibv_mr* all = ibv_reg_mr(side.pd, nullptr, SIZE_MAX, kAllAccess | IBV_ACCESS_ON_DEMAND);
  CHECK(all != nullptr);
  // Memory that is mapped after its registration, and unmapped and mapped again.
  constexpr size_t kSize = 3 * 4096;
  void* place = ::mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* later = ibv_reg_mr(side.pd, place, kSize, kAllAccess | IBV_ACCESS_ON_DEMAND);
  CHECK(later != nullptr);
  auto* memory = static_cast<uint8_t*>(place);
  const auto advise = [&](ibv_advise_mr_advice advice, uint32_t flags, ibv_sge sge) {
    return ibv_advise_mr(side.pd, advice, flags, &sge, 1);
  };
  const ibv_sge sge{reinterpret_cast<uintptr_t>(place), kSize, later->lkey};
  for (int round = 0; round < 2; ++round) {
    CHECK(::mmap(place, kSize, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1,
                 0) == place);
    for (ibv_mr* mr : {all, later}) {
      const Remote at = side.exchange(Remote{sge.addr, kSize, mr->rkey, 0});
      CHECK_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, sge), 0);
      if (side.is_a()) {
        fill(memory, kSize, 50);
        pair.qp.write(1, {{sge.addr, kSize, mr->lkey}}, at);
        pair.cq.expect(1);
        side.meet(1);
      } else {
        side.meet(1);
        check_filled(memory, kSize, 50);
      }
      side.meet(2);
    }
  }
  // ibv_advise_mr(3): each of its errors.
  CHECK_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, sge), 0);
  CHECK_EQ(advise(static_cast<ibv_advise_mr_advice>(3), 0, sge), EOPNOTSUPP);
  CHECK_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 2, sge), EINVAL);
  CHECK_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, {sge.addr, 8, 0}), ENOENT);
  CHECK_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, pair.buffer.sge(0, 8)), ENOENT);
  CHECK_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, {sge.addr + 1, kSize, later->lkey}), EFAULT);
  CHECK_EQ(ibv_advise_mr(side.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 0), EINVAL);
  ibv_pd* other = ibv_alloc_pd(side.context);
  ibv_sge foreign = sge;
  CHECK_EQ(ibv_advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &foreign, 1), EPERM);
  CHECK_EQ(ibv_dealloc_pd(other), 0);
  CHECK_EQ(::munmap(place, kSize), 0);
  CHECK_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, sge), EFAULT);
  CHECK_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, sge), 0);
  // A page that is missing when it is used.
  const Remote gone = side.exchange(Remote{sge.addr, kSize, later->rkey, 0});
  pair.provoke([&] { pair.qp.write(1, {pair.buffer.sge(0, 8)}, gone); }, {IBV_WC_REM_ACCESS_ERR},
               kAccessEvent);
  CHECK_EQ(ibv_dereg_mr(later), 0);
  CHECK_EQ(ibv_dereg_mr(all), 0);
}

CONFORMANCE_TEST(protection, zero_based_region) {
  Breakable pair(side);
  Buffer memory(side, 4096);
  ibv_mr* mr = ibv_reg_mr(side.pd, memory.data, 4096, kAllAccess | IBV_ACCESS_ZERO_BASED);
  CHECK(mr != nullptr);
  const Remote at = side.exchange(Remote{0, 4096, mr->rkey, 0});
  if (side.is_a()) {
    fill(memory.data + 100, 64, 6);
    pair.qp.write(1, {{100, 64, mr->lkey}}, at, 200);
    pair.cq.expect(1);
  }
  side.meet(1);
  if (!side.is_a()) check_filled(memory.data + 200, 64, 6);
  side.meet(2);
  CHECK_EQ(ibv_dereg_mr(mr), 0);
}

CONFORMANCE_TEST(protection, parent_and_thread_domains) {
  ibv_td_init_attr td_attr{};
  td_attr.comp_mask = 1;
  errno = 0;
  CHECK(ibv_alloc_td(side.context, &td_attr) == nullptr);
  CHECK_EQ(errno, EINVAL);
  td_attr.comp_mask = 0;
  ibv_td* td = ibv_alloc_td(side.context, &td_attr);
  CHECK(td != nullptr);
  ibv_pd* pd = ibv_alloc_pd(side.context);
  CHECK(pd != nullptr);
  ibv_parent_domain_init_attr attr{};
  const auto refused = [&] {
    errno = 0;
    CHECK(ibv_alloc_parent_domain(side.context, &attr) == nullptr);
    CHECK_EQ(errno, EINVAL);
  };
  refused();  // of another protection domain
  attr.pd = pd;
  attr.comp_mask = 1u << 31;
  refused();
  attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  refused();
  attr.comp_mask = 0;
  attr.td = td;
  ibv_pd* parent = ibv_alloc_parent_domain(side.context, &attr);
  CHECK(parent != nullptr);
  CHECK_EQ(ibv_dealloc_td(td), EBUSY);
  CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
  {
    // Objects of the one domain are destroyed with those of the other.
    Buffer memory(side, 4096, kAllAccess, pd);
    Cq cq(side);
    QpOptions options;
    options.pd = parent;
    Qp qp(side, cq, options);
    qp.connect();
    CHECK_EQ(ibv_dealloc_pd(parent), EBUSY);
    const Remote at = side.exchange(remote_of(memory));
    if (side.is_a()) {
      qp.write(1, {memory.sge(0, 64)}, at);
      cq.expect(1);
    }
    side.meet(1);
  }
  CHECK_EQ(ibv_dealloc_pd(parent), 0);
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
  CHECK_EQ(ibv_dealloc_td(td), 0);
}

}  // namespace conformance
