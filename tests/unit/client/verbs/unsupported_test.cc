// The answers of verbs that the device does not provide. (The fake device provides few.)
#include <cerrno>

#include "tests/unit/client/verbs/fake.h"

namespace {

using Unsupported = Fake;

TEST_F(Unsupported, PointersAreNullWithErrno) {
  errno = 0;
  EXPECT_EQ(ibv_alloc_td(context_, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_import_pd(context_, 1), nullptr);
  EXPECT_EQ(ibv_import_dm(context_, 1), nullptr);
  ibv_wq_init_attr attr{};
  EXPECT_EQ(ibv_create_wq(context_, &attr), nullptr);
  ibv_alloc_dm_attr dm{};
  EXPECT_EQ(ibv_alloc_dm(context_, &dm), nullptr);
  ibv_pd pd{context_, 0};
  EXPECT_EQ(ibv_alloc_mw(&pd, IBV_MW_TYPE_1), nullptr);
  EXPECT_EQ(ibv_alloc_null_mr(&pd), nullptr);
  EXPECT_EQ(ibv_reg_dmabuf_mr(&pd, 0, 1, 0, -1, 0), nullptr);
}

TEST_F(Unsupported, NumbersAreTheErrorOrMinusOne) {
  ibv_values_ex values{};
  EXPECT_EQ(ibv_query_rt_values_ex(context_, &values), EOPNOTSUPP);
  ibv_qp qp{};
  qp.context = context_;
  ibv_qp_attr attr{};
  EXPECT_EQ(ibv_modify_qp(&qp, &attr, 0), EOPNOTSUPP);
  EXPECT_EQ(ibv_query_qp_data_in_order(&qp, IBV_WR_SEND, 0), 0);
  ibv_ece ece{};
  EXPECT_EQ(ibv_query_ece(&qp, &ece), EOPNOTSUPP);
  ibv_async_event event{};
  errno = 0;
  EXPECT_EQ(ibv_get_async_event(context_, &event), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_cq cq{};
  cq.context = context_;
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(&cq, 1, &wc), -1);
}

TEST_F(Unsupported, PostingNamesTheWorkRequest) {
  ibv_qp qp{};
  qp.context = context_;
  ibv_recv_wr wr{}, *bad = nullptr;
  EXPECT_EQ(ibv_post_recv(&qp, &wr, &bad), EOPNOTSUPP);
  EXPECT_EQ(bad, &wr);
}

}  // namespace
