// The verbs of rdma-core 59 to 65 on a virtual device.
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "client/verbs/newer_abi.h"
#include "tests/unit/client/verbs/fake.h"

namespace {

class Newer : public Fake {
 protected:
  void SetUp() override {
    Fake::SetUp();
    pd_ = ibv_alloc_pd(context_);
    ASSERT_NE(pd_, nullptr);
  }
  void TearDown() override {
    if (pd_ != nullptr) ibv_dealloc_pd(pd_);
    Fake::TearDown();
  }

  // The errno of a registration that must fail.
  int refused(ibv_mr_init_attr attr) {
    errno = 0;
    EXPECT_EQ(ibv_reg_mr_ex(pd_, &attr), nullptr);
    return errno;
  }

  ibv_pd* pd_ = nullptr;
  char memory_[64] = {};
};

TEST_F(Newer, PortSpeedIsOfAllLanes) {
  uint64_t speed = 0;
  ASSERT_EQ(ibv_query_port_speed(context_, 1, &speed), 0);
  EXPECT_EQ(speed, 800U);
  EXPECT_EQ(ibv_query_port_speed(context_, 2, &speed), EINVAL);
}

TEST_F(Newer, RegistersWhatTheMaskNames) {
  ibv_mr_init_attr attr{};
  attr.length = sizeof memory_;
  attr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
  attr.addr = memory_;
  attr.iova = 0x1234;
  attr.comp_mask = IBV_REG_MR_MASK_ADDR;
  ibv_mr* mr = ibv_reg_mr_ex(pd_, &attr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, memory_);
  EXPECT_EQ(mr->length, sizeof memory_);
  EXPECT_EQ(mr->handle, static_cast<uint32_t>(IBV_ACCESS_LOCAL_WRITE))
      << "optional flags are removed";
  EXPECT_EQ(mr->lkey, static_cast<uint32_t>(reinterpret_cast<uintptr_t>(memory_)));
  ibv_dereg_mr(mr);

  attr.comp_mask |= IBV_REG_MR_MASK_IOVA;
  mr = ibv_reg_mr_ex(pd_, &attr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->lkey, 0x1234U);
  ibv_dereg_mr(mr);

  attr.comp_mask = IBV_REG_MR_MASK_IOVA;
  EXPECT_EQ(refused(attr), EINVAL);
  attr.comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_DMAH;
  EXPECT_EQ(refused(attr), EOPNOTSUPP);
  attr.comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA;
  EXPECT_EQ(refused(attr), EOPNOTSUPP) << "as ibv_reg_dmabuf_mr";
  attr.comp_mask = IBV_REG_MR_MASK_FD;
  EXPECT_EQ(refused(attr), EINVAL);
}

TEST_F(Newer, BuffersAreRegisteredWithinTheirBounds) {
  ibv_buf* buffer = nullptr;
  auto* memory = static_cast<char*>(ibv_alloc_buf(pd_, 10'000, &buffer));
  ASSERT_NE(memory, nullptr);
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0U);
  std::memset(memory, 1, 10'000);

  ibv_mr* mr = ibv_reg_buf_mr(pd_, buffer, memory + 4, 9'996, 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, memory + 4);
  ibv_dereg_mr(mr);
  const auto fails = [&](ibv_pd* pd, char* from, size_t length) {
    errno = 0;
    return ibv_reg_buf_mr(pd, buffer, from, length, 0) == nullptr && errno == EINVAL;
  };
  EXPECT_TRUE(fails(pd_, memory + 4, 9'997));
  EXPECT_TRUE(fails(pd_, memory - 1, 2));
  EXPECT_TRUE(fails(pd_, memory + 10'001, 0));
  EXPECT_TRUE(fails(pd_, memory, SIZE_MAX));
  ibv_pd* other = ibv_alloc_pd(context_);
  EXPECT_TRUE(fails(other, memory, 10));
  ibv_dealloc_pd(other);

  errno = 0;
  EXPECT_EQ(ibv_export_buf_dmabuf_fd(buffer), -1);
  EXPECT_EQ(errno, ENODATA);
  ibv_free_buf(buffer);
}

TEST_F(Newer, WhatOnlyAnAdapterHasIsNotSupported) {
  errno = 0;
  EXPECT_EQ(ibv_alloc_dmah(context_, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_dmah handle{context_};
  EXPECT_EQ(ibv_dealloc_dmah(&handle), EOPNOTSUPP);
  ibv_dm memory{};
  memory.context = context_;
  errno = 0;
  EXPECT_EQ(ibv_dm_export_dmabuf_fd(&memory), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);

  EXPECT_EQ(_ibv_query_comp_cntr_caps(context_, nullptr, 0), EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(ibv_create_comp_cntr(context_, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_comp_cntr counter{context_, 0};
  uint64_t value = 0;
  EXPECT_EQ(ibv_read_comp_cntr(&counter, &value), EOPNOTSUPP);
  EXPECT_EQ(ibv_set_err_comp_cntr(&counter, 1), EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_comp_cntr(&counter), EOPNOTSUPP);
  ibv_qp qp{};
  qp.context = context_;
  EXPECT_EQ(ibv_qp_attach_comp_cntr(&qp, &counter, nullptr), EOPNOTSUPP);
}

}  // namespace
