// Objects that exist when their context is closed, and are destroyed afterwards.
#include <fcntl.h>
#include <malloc.h>

#include <cerrno>

#include "tests/conformance/queue.h"

namespace conformance {

namespace {

constexpr size_t kSize = 16384;

void open_again(Side& side) {
  ibv_device** devices = ibv_get_device_list(nullptr);
  CHECK(devices != nullptr && devices[0] != nullptr);
  side.context = ibv_open_device(devices[0]);
  CHECK(side.context != nullptr);
  ibv_free_device_list(devices);
  side.pd = ibv_alloc_pd(side.context);
  CHECK(side.pd != nullptr);
}

}  // namespace

CONFORMANCE_TEST(protection, objects_outlive_context) {
  // Freed memory is garbage, with or without a sanitizer.
  ::mallopt(M_PERTURB, 0xa5);
  ibv_context* const closed = side.context;
  ibv_pd* const pd = side.pd;
  {
    Buffer buffer(side, kSize);
    Cq cq(side, true);
    ibv_srq_init_attr limits{};
    limits.attr = {16, 1, 0};
    ibv_srq* const srq = ibv_create_srq(pd, &limits);
    CHECK(srq != nullptr);
    QpOptions shares;
    shares.srq = srq;
    ibv_ah_attr to{};
    to.is_global = 1;
    to.port_num = 1;
    to.grh.dgid = side.gid;
    to.grh.sgid_index = side.gid_index;
    ibv_ah* const ah = ibv_create_ah(pd, &to);
    ibv_mw* const mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    ibv_td_init_attr nothing{};
    ibv_td* const td = ibv_alloc_td(closed, &nothing);
    ibv_parent_domain_init_attr parts{};
    parts.pd = pd;
    parts.td = td;
    ibv_pd* const parent = ibv_alloc_parent_domain(closed, &parts);
    ibv_alloc_dm_attr size{};
    size.length = 4096;
    ibv_dm* const dm = ibv_alloc_dm(closed, &size);
    ibv_xrcd_init_attr unnamed{};
    unnamed.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    unnamed.fd = -1;
    unnamed.oflags = O_CREAT;
    ibv_xrcd* const xrcd = ibv_open_xrcd(closed, &unnamed);
    CHECK(ah != nullptr && mw != nullptr && td != nullptr && parent != nullptr && dm != nullptr &&
          xrcd != nullptr);
    {
      Qp idle(side, cq, shares);
      Qp qp(side, cq);
      qp.connect();
      qp.receive(1, {{buffer.address(), kSize, buffer.mr->lkey}});
      side.meet(1);
      CHECK_EQ(ibv_close_device(closed), 0);
      side.meet(2);

      // The objects fail like those of a removed device.
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_ERR;
      CHECK_EQ(ibv_modify_qp(qp.qp, &attr, IBV_QP_STATE), EIO);
      CHECK(ibv_alloc_mw(pd, IBV_MW_TYPE_2) == nullptr);
      CHECK_EQ(errno, EIO);
      ibv_wc wc{};
      CHECK(ibv_poll_cq(cq.cq, 1, &wc) >= 0);
      // An object in use is not freed before its users.
      CHECK_EQ(ibv_destroy_cq(cq.cq), EBUSY);
      CHECK_EQ(ibv_destroy_srq(srq), EBUSY);
      CHECK_EQ(ibv_destroy_comp_channel(cq.channel), EBUSY);
      CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
      CHECK_EQ(ibv_close_device(closed), EINVAL);
    }
    CHECK_EQ(ibv_close_xrcd(xrcd), 0);
    CHECK_EQ(ibv_free_dm(dm), 0);
    CHECK_EQ(ibv_dealloc_pd(parent), 0);
    CHECK_EQ(ibv_dealloc_td(td), 0);
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
  }  // the queue, its channel, the region
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
  open_again(side);
  Buffer buffer(side, kSize);
  Cq cq(side);
  Qp qp(side, cq);
  qp.connect();
  if (side.is_a()) {
    qp.receive(1, {{buffer.address(), kSize, buffer.mr->lkey}});
    side.meet(3);
  } else {
    side.meet(3);
    qp.send(1, {{buffer.address(), kSize, buffer.mr->lkey}});
  }
  cq.expect(1);
  side.meet(4);
}

// Each object alone keeps the context.
CONFORMANCE_TEST(protection, object_keeps_closed_context) {
  ::mallopt(M_PERTURB, 0xa5);
  CHECK_EQ(ibv_close_device(side.context), 0);
  CHECK_EQ(ibv_dealloc_pd(side.pd), 0);

  open_again(side);
  ibv_comp_channel* const channel = ibv_create_comp_channel(side.context);
  CHECK(channel != nullptr);
  CHECK_EQ(ibv_dealloc_pd(side.pd), 0);
  CHECK_EQ(ibv_close_device(side.context), 0);
  CHECK_EQ(ibv_destroy_comp_channel(channel), 0);

  open_again(side);
  ibv_cq* const cq = ibv_create_cq(side.context, 16, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  CHECK_EQ(ibv_dealloc_pd(side.pd), 0);
  CHECK_EQ(ibv_close_device(side.context), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);

  open_again(side);
  ibv_alloc_dm_attr size{};
  size.length = 4096;
  ibv_dm* const dm = ibv_alloc_dm(side.context, &size);
  CHECK(dm != nullptr);
  CHECK_EQ(ibv_dealloc_pd(side.pd), 0);
  CHECK_EQ(ibv_close_device(side.context), 0);
  CHECK_EQ(ibv_free_dm(dm), 0);

  open_again(side);
}

}  // namespace conformance
