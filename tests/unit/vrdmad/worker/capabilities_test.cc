// What a session is told of its device, and what the worker makes of it.
#include <gtest/gtest.h>

#include <array>

#include "core/ipc/socket.h"
#include "tests/unit/vrdmad/worker/furnished_worker.h"
#include "tests/unit/vrdmad/worker/parts.h"
#include "tests/unit/vrdmad/worker/program.h"

namespace vrdma::vrdmad {
namespace {

constexpr uint64_t kVdevice = 1;

class CapabilitiesTest : public testing::Test {
 protected:
  void add(const verbs::Capabilities& capabilities) {
    AddVdevice vdevice;
    vdevice.vdevice = kVdevice;
    vdevice.name = "red0";
    vdevice.tenant = vdevice.fabric = "red";
    vdevice.capabilities = capabilities;
    worker_->send(parcel(std::move(vdevice), new_parts()).value());
    verbs::Gid gid;
    gid.bytes[0] = 0xfe;
    worker_->send(SetGids{kVdevice, {gid}});
    worker_->send(SetPort{kVdevice, {true, 4200, 1, std::array<uint8_t, 6>{2}}});
  }
  Program program() {
    auto [own, workers] = ipc::make_socket_pair().value();
    worker_.accept(kVdevice, std::move(workers));
    return Program(std::move(own));
  }
  static ipc::CreateQpRequest rc(uint32_t sge, uint32_t inline_bytes) {
    ipc::CreateQpRequest qp{};
    qp.type = static_cast<uint32_t>(verbs::QpType::kRc);
    qp.max_send_wr = qp.max_recv_wr = 1;
    qp.max_send_sge = qp.max_recv_sge = sge;
    qp.max_inline = inline_bytes;
    return qp;
  }

  FurnishedWorker worker_;
};

TEST_F(CapabilitiesTest, AreThoseOfTheParent) {
  verbs::Capabilities small = verbs::kSoftCapabilities;
  small.vendor_id = 0x15b3;
  small.vendor_part_id = 4129;
  small.max_sge = 4;
  small.max_inline = 128;
  small.max_rd_atomic = 16;
  small.max_mcast_groups = 7;
  small.max_mtu = 3;
  add(small);
  Program one = program();
  EXPECT_EQ(one.hello.device().vendor_id, 0x15b3u);
  EXPECT_EQ(one.hello.vendor_part_id, 4129u) << "for clients that do not know the capabilities";
  EXPECT_EQ(one.hello.device().max_inline, 128u);
  const auto device = one.call(ipc::Call::kQueryDevice).device;
  EXPECT_EQ(device.max_sge, 4u);
  EXPECT_EQ(device.max_rd_atomic, 16u);
  EXPECT_EQ(device.max_mcast_grp, 7u);
  const auto port = one.call(ipc::Call::kQueryPort).port;
  EXPECT_EQ(port.max_mtu, 3u);
  EXPECT_EQ(port.active_mtu, 3u);
}

TEST_F(CapabilitiesTest, BoundWhatIsCreated) {
  verbs::Capabilities small = verbs::kSoftCapabilities;
  small.max_sge = 4;
  small.max_inline = 128;
  small.max_rd_atomic = 16;
  add(small);
  Program one = program();
  EXPECT_EQ(one.create_qp(rc(5, 0)).error, EINVAL);
  EXPECT_EQ(one.create_qp(rc(4, 129)).error, EINVAL);
  const ipc::Reply made = one.create_qp(rc(4, 128));
  EXPECT_EQ(made.error, 0);
  EXPECT_EQ(made.create_qp.max_inline, 128u);

  ipc::Request srq;
  srq.call = ipc::Call::kCreateSrq;
  srq.create_srq.pd = one.call(ipc::Call::kAllocPd).handle.handle;
  srq.create_srq.max_wr = 1;
  srq.create_srq.max_sge = 5;
  EXPECT_EQ(one.call(srq).error, EINVAL);
  srq.create_srq.max_sge = 4;
  EXPECT_EQ(one.call(srq).error, 0);

  one.to_init(made.create_qp.handle);
  ipc::Request rtr;
  rtr.call = ipc::Call::kModifyQp;
  rtr.modify_qp.handle = made.create_qp.handle;
  rtr.modify_qp.attributes.state = static_cast<uint32_t>(verbs::QpState::kRtr);
  rtr.modify_qp.attributes.path_mtu = 3;
  rtr.modify_qp.attributes.av.is_global = 1;
  rtr.modify_qp.attributes.av.port_num = 1;
  rtr.modify_qp.mask = verbs::kQpState | verbs::kQpAv | verbs::kQpPathMtu | verbs::kQpDestQpn |
                       verbs::kQpRqPsn | verbs::kQpMaxDestRdAtomic | verbs::kQpMinRnrTimer;
  rtr.modify_qp.attributes.max_dest_rd_atomic = 17;
  EXPECT_EQ(one.call(rtr).error, EINVAL);
  rtr.modify_qp.attributes.max_dest_rd_atomic = 16;
  EXPECT_EQ(one.call(rtr).error, 0);
}

// An adapter may do more than the rings of a session hold.
TEST_F(CapabilitiesTest, AreThoseOfTheRingsAtMost) {
  verbs::Capabilities large = verbs::kSoftCapabilities;
  large.max_sge = 30;
  large.max_inline = 1024;
  large.max_rd_atomic = 255;
  add(large);
  Program one = program();
  EXPECT_EQ(one.hello.device().max_inline, ipc::kMaxInline);
  EXPECT_EQ(one.call(ipc::Call::kQueryDevice).device.max_sge, ipc::kMaxSge);
  EXPECT_EQ(one.call(ipc::Call::kQueryDevice).device.max_rd_atomic, ipc::kMaxRdAtomic);
  EXPECT_EQ(one.create_qp(rc(17, 0)).error, EINVAL);
}

}  // namespace
}  // namespace vrdma::vrdmad
