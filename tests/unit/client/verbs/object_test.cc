// The part of exported verbs that does not depend on the device.
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/unit/client/verbs/fake.h"

extern "C" int ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index,
                                  int* type);

namespace {

using Object = Fake;

TEST_F(Object, QueryDeviceAnswersAlikeInBothForms) {
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(context_, &attr), 0);
  EXPECT_EQ(attr.max_qp, 17);
  ibv_device_attr_ex all{};
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &all), 0);
  EXPECT_EQ(all.orig_attr.max_qp, 17);
  EXPECT_EQ(all.phys_port_cnt_ex, 1U);
  ibv_query_device_ex_input input{1};
  EXPECT_EQ(ibv_query_device_ex(context_, &input, &all), EINVAL);
}

TEST_F(Object, QueryPortKeepsToTheCallersStructure) {
  ibv_port_attr attr{};
  ASSERT_EQ(ibv_query_port(context_, 1, &attr), 0);
  EXPECT_EQ(attr.port_cap_flags2, 0xbeef);
  EXPECT_EQ(ibv_query_port(context_, 2, &attr), EINVAL);

  // Programs that do not know port_cap_flags2 call the exported symbol.
  attr.port_cap_flags2 = 1;
  ASSERT_EQ((ibv_query_port)(context_, 1, reinterpret_cast<_compat_ibv_port_attr*>(&attr)), 0);
  EXPECT_EQ(attr.flags, 7);
  EXPECT_EQ(attr.port_cap_flags2, 1);
}

TEST_F(Object, QueryGid) {
  ibv_gid gid{};
  ASSERT_EQ(ibv_query_gid(context_, 1, 0, &gid), 0);
  EXPECT_EQ(gid.raw[0], 0xfe);
  ASSERT_EQ(ibv_query_gid(context_, 1, 1, &gid), 0) << "an empty entry reads as the zero GID";
  EXPECT_EQ(gid.raw[0], 0);
  errno = 0;
  EXPECT_EQ(ibv_query_gid(context_, 1, 4, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_query_gid(context_, 1, -1, &gid), -1);
}

TEST_F(Object, QueryGidEx) {
  ibv_gid_entry entry{};
  ASSERT_EQ(ibv_query_gid_ex(context_, 1, 3, &entry, 0), 0);
  EXPECT_EQ(entry.gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_EQ(entry.ndev_ifindex, 9U);
  EXPECT_EQ(ibv_query_gid_ex(context_, 1, 1, &entry, 0), ENODATA);
  EXPECT_EQ(ibv_query_gid_ex(context_, 1, 3, &entry, 1), EINVAL);
  // A program with a shorter structure.
  entry.ndev_ifindex = 1;
  ASSERT_EQ(_ibv_query_gid_ex(context_, 1, 3, &entry, 0, offsetof(ibv_gid_entry, ndev_ifindex)), 0);
  EXPECT_EQ(entry.ndev_ifindex, 1U);
}

TEST_F(Object, QueryGidTable) {
  ibv_gid_entry entries[8] = {};
  ASSERT_EQ(ibv_query_gid_table(context_, entries, 8, 0), 3);
  EXPECT_EQ(entries[1].gid_index, 2U);
  EXPECT_EQ(ibv_query_gid_table(context_, entries, 8, 1), -EINVAL);
  // A program with a longer structure.
  constexpr size_t kLonger = sizeof(ibv_gid_entry) + 8;
  std::vector<uint8_t> bytes(3 * kLonger, 0xff);
  ASSERT_EQ(
      _ibv_query_gid_table(context_, reinterpret_cast<ibv_gid_entry*>(bytes.data()), 3, 0, kLonger),
      3);
  ibv_gid_entry third{};
  std::memcpy(static_cast<void*>(&third), &bytes[2 * kLonger], sizeof third);
  EXPECT_EQ(third.gid_index, 3U);
  EXPECT_EQ(bytes.back(), 0);
}

TEST_F(Object, QueryGidType) {
  int type = -1;
  ASSERT_EQ(ibv_query_gid_type(context_, 1, 2, &type), 0);
  EXPECT_EQ(type, 0);
  ASSERT_EQ(ibv_query_gid_type(context_, 1, 3, &type), 0);
  EXPECT_EQ(type, 1);
  EXPECT_EQ(ibv_query_gid_type(context_, 1, 4, &type), -1);
}

TEST_F(Object, Pkeys) {
  __be16 pkey = 0;
  ASSERT_EQ(ibv_query_pkey(context_, 1, 1, &pkey), 0);
  EXPECT_EQ(pkey, 0x0180);
  EXPECT_EQ(ibv_query_pkey(context_, 1, 2, &pkey), -1);
  EXPECT_EQ(ibv_get_pkey_index(context_, 1, 0x0180), 1);
  EXPECT_EQ(ibv_get_pkey_index(context_, 1, 0x1234), -1);
}

class Memory : public Fake {
 protected:
  void SetUp() override {
    Fake::SetUp();
    pd_ = ibv_alloc_pd(context_);
    ASSERT_NE(pd_, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    Fake::TearDown();
  }
  ibv_pd* pd_ = nullptr;
  char buffer_[64] = {};
};

TEST_F(Memory, AllRegistrationsEndInOne) {
  const auto own = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(buffer_));
  ibv_mr* mr = ibv_reg_mr(pd_, buffer_, 64, IBV_ACCESS_LOCAL_WRITE);
  EXPECT_EQ(mr->lkey, own);
  EXPECT_EQ(mr->handle, static_cast<uint32_t>(IBV_ACCESS_LOCAL_WRITE));
  EXPECT_EQ(ibv_dereg_mr(mr), 0);

  unsigned int access = IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_REMOTE_READ;
  mr = ibv_reg_mr(pd_, buffer_, 64, access);
  EXPECT_EQ(mr->lkey, own);
  EXPECT_EQ(mr->handle, static_cast<uint32_t>(IBV_ACCESS_REMOTE_READ)) << "hints are not passed on";
  EXPECT_EQ(ibv_dereg_mr(mr), 0);

  mr = ibv_reg_mr_iova(pd_, buffer_, 64, 0x1000, 0);
  EXPECT_EQ(mr->lkey, 0x1000U);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, ReregistrationRefusesWhatMakesNoSense) {
  ibv_mr* mr = ibv_reg_mr(pd_, buffer_, 64, 0);
  EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, 8, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 64, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer_, 64, 1),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(mr->rkey, 0U);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 1), 0);
  EXPECT_EQ(mr->handle, 1U);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, QueuesAreMadeByTheExtendedVerbs) {
  ibv_comp_channel* channel = ibv_create_comp_channel(context_);
  EXPECT_EQ(ibv_create_cq(context_, 0, nullptr, nullptr, 0), nullptr);
  ibv_cq* cq = ibv_create_cq(context_, 10, this, channel, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(cq->cq_context, this);
  EXPECT_EQ(cq->handle, static_cast<uint32_t>(IBV_WC_STANDARD_FLAGS));
  EXPECT_EQ(channel->refcnt, 1);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);

  ibv_srq_init_attr srq_attr{};
  srq_attr.srq_context = this;
  ibv_srq* srq = ibv_create_srq(pd_, &srq_attr);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(srq_attr.attr.max_wr, 64U) << "the granted value";
  EXPECT_EQ(srq->srq_context, this);

  ibv_qp_init_attr qp_attr{};
  qp_attr.send_cq = qp_attr.recv_cq = cq;
  qp_attr.srq = srq;
  qp_attr.qp_type = IBV_QPT_UD;
  ibv_qp* qp = ibv_create_qp(pd_, &qp_attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp_attr.cap.max_send_wr, 128U);
  EXPECT_EQ(qp->qp_type, IBV_QPT_UD);
  EXPECT_EQ(qp->srq, srq);
  EXPECT_EQ(qp->pd, pd_);

  ibv_send_wr wr{}, *bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  EXPECT_EQ(wr.wr_id, 77U);

  // Each destroy waits for the acknowledgement of the events that fake_device.cc reports as
  // delivered.
  ibv_async_event event{};
  event.event_type = IBV_EVENT_COMM_EST;
  event.element.qp = qp;
  ibv_ack_async_event(&event);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  event.element.srq = srq;
  ibv_ack_async_event(&event);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = cq;
  ibv_ack_async_event(&event);
  std::thread later([cq] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ibv_ack_cq_events(cq, 2);
  });
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  later.join();
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);

  event.event_type = IBV_EVENT_PORT_ACTIVE;
  event.element.port_num = 1;
  ibv_ack_async_event(&event);  // the event has no object
}

// 192.168.0.7 -> 10.0.0.1, with a valid checksum, after twenty undefined bytes.
ibv_grh ipv4_grh() {
  uint8_t bytes[40];
  std::memset(bytes, 0x60, 20);
  const uint8_t header[20] = {0x45, 0x04, 0,   0x54, 0, 0, 0x40, 0, 0x40, 0x11,
                              0,    0,    192, 168,  0, 7, 10,   0, 0,    1};
  std::memcpy(bytes + 20, header, 20);
  uint32_t sum = 0;
  for (int i = 20; i < 40; i += 2) sum += static_cast<uint32_t>(bytes[i] << 8 | bytes[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  bytes[30] = static_cast<uint8_t>(~sum >> 8);
  bytes[31] = static_cast<uint8_t>(~sum);
  ibv_grh grh;
  std::memcpy(static_cast<void*>(&grh), bytes, sizeof grh);
  return grh;
}

TEST_F(Memory, AnswersTheSenderOfADatagram) {
  ibv_wc wc{};
  wc.sl = 3;
  ibv_ah_attr attr{};
  ASSERT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, nullptr, &attr), 0);
  EXPECT_EQ(attr.is_global, 0);
  EXPECT_EQ(attr.sl, 3);

  wc.wc_flags = IBV_WC_GRH;
  ibv_grh grh = ipv4_grh();
  ASSERT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &grh, &attr), 0);
  EXPECT_EQ(attr.is_global, 1);
  EXPECT_EQ(attr.sl, 0) << "for RoCE, sl of a completion is the type of the header";
  EXPECT_EQ(attr.grh.sgid_index, 3) << "RoCE v2 is preferred to v1";
  EXPECT_EQ(attr.grh.traffic_class, 4);
  EXPECT_EQ(attr.grh.dgid.raw[11], 0xff);
  EXPECT_EQ(attr.grh.dgid.raw[12], 192);
  ibv_ah* ah = ibv_create_ah_from_wc(pd_, &wc, &grh, 1);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ah->handle, 3U);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);

  ibv_grh ipv6{};
  const uint8_t first[4] = {0x61, 0x20, 0x12, 0x34};
  std::memcpy(&ipv6.version_tclass_flow, first, 4);
  ASSERT_EQ(ibv_query_gid(context_, 1, 0, &ipv6.dgid), 0);
  ipv6.sgid.raw[0] = 0xfd;
  ASSERT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &ipv6, &attr), 0);
  EXPECT_EQ(attr.grh.sgid_index, 0);
  EXPECT_EQ(attr.grh.traffic_class, 0x12);
  EXPECT_EQ(attr.grh.flow_label, 0x1234U);
  EXPECT_EQ(attr.grh.dgid.raw[0], 0xfd);

  ipv6.dgid.raw[15] ^= 1;
  EXPECT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &ipv6, &attr), -1)
      << "the destination is not a GID of the port";
}

}  // namespace
