// Queue pair numbers of the vdevices of a worker, and what control sees of them.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "core/ipc/socket.h"
#include "tests/unit/vrdmad/worker/furnished_worker.h"
#include "tests/unit/vrdmad/worker/parts.h"
#include "tests/unit/vrdmad/worker/program.h"

namespace vrdma::vrdmad {
namespace {

using Table = base::SharedPage<rdma::QpNumberTable>;

class WorkersQpNumbers : public testing::Test {
 protected:
  // In a fabric of its own, in the same namespace as all.
  Program add(uint64_t id, uint32_t qps) {
    AddVdevice vdevice;
    vdevice.vdevice = id;
    vdevice.name = "red" + std::to_string(id);
    vdevice.tenant = vdevice.fabric = vdevice.name;
    vdevice.netns = 5;
    vdevice.limits = {{provisioning::Kind::kQp, qps}};
    VdeviceParts parts = new_parts();
    parts.qp_numbers = tables_.at(id);
    worker_->send(parcel(std::move(vdevice), std::move(parts)).value());
    auto [own, workers] = ipc::make_socket_pair().value();
    worker_.accept(id, std::move(workers));
    return Program(std::move(own));
  }
  [[nodiscard]] bool control_sees(size_t vdevice, uint32_t qpn) const {
    return rdma::QpNumberReader(tables_.at(vdevice).get()).contains(qpn);
  }

  std::array<Table, 2> tables_{Table::make("test").value(), Table::make("test").value()};
  FurnishedWorker worker_;
};

// So many that separate draws would meet.
TEST_F(WorkersQpNumbers, AreDifferentInANamespaceWhateverTheFabric) {
  constexpr uint32_t kMany = 10'000;
  std::set<uint32_t> numbers;
  for (uint64_t id = 0; id < 2; ++id) {
    Program program = add(id, kMany);
    ipc::Request cq;
    cq.call = ipc::Call::kCreateCq;
    cq.create_cq = {ipc::kNoObject, 16};
    ipc::Request request;
    request.call = ipc::Call::kCreateQp;
    request.create_qp.pd = program.call(ipc::Call::kAllocPd).handle.handle;
    request.create_qp.send_cq = request.create_qp.recv_cq = program.call(cq).create_cq.handle;
    request.create_qp.type = static_cast<uint32_t>(verbs::QpType::kRc);
    request.create_qp.max_send_wr = request.create_qp.max_recv_wr = 1;
    for (uint32_t made_so_far = 0; made_so_far < kMany; ++made_so_far) {
      const ipc::Reply reply = program.call(request);
      ASSERT_EQ(reply.error, 0);
      ASSERT_TRUE(numbers.insert(reply.create_qp.qpn).second) << reply.create_qp.qpn;
    }
  }
}

TEST_F(WorkersQpNumbers, AreSeenByControlWhileTheyExist) {
  Program red = add(0, 8);
  const Program blue = add(1, 8);
  ipc::CreateQpRequest wanted{};
  wanted.type = static_cast<uint32_t>(verbs::QpType::kRc);
  wanted.max_send_wr = wanted.max_recv_wr = 1;
  const auto made = red.create_qp(wanted).create_qp;
  EXPECT_TRUE(control_sees(0, made.qpn));
  EXPECT_FALSE(control_sees(1, made.qpn));
  ipc::Request request;
  request.call = ipc::Call::kDestroyQp;
  request.handle.handle = made.handle;
  EXPECT_EQ(red.call(request).error, 0);
  EXPECT_FALSE(control_sees(0, made.qpn));
}

TEST_F(WorkersQpNumbers, HaveRoomForTheHighestQuota) {
  EXPECT_EQ(rdma::QpNumberTable::kCapacity, provisioning::traits(provisioning::Kind::kQp).ceiling);
}

}  // namespace
}  // namespace vrdma::vrdmad
