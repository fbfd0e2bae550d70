// Queue pair numbers of vdevices that have an address in common.
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/vrdmad/control/own_netns.h"

namespace vrdma::vrdmad {
namespace {

// In two fabrics, and so perhaps on two workers: so many that separate draws would meet.
TEST_F(OwnNetns, GivesEachQueuePairANumberOfItsOwn) {
  constexpr uint32_t kMany = 10'000;
  std::set<uint32_t> numbers;
  std::set<std::string> addresses;
  for (unsigned i = 0; i < 2; ++i) {
    VdevSpec vdevice = spec(i == 0 ? "red0" : "blue0");
    vdevice.tenant = i == 0 ? "red" : "blue";
    vdevice.quota = {{"qp", kMany}};
    const auto made = daemon_->create_vdev(vdevice, false);
    ASSERT_TRUE(made) << made.error().message();
    for (const auto& row : made->gids) addresses.insert(row.gid);
    EXPECT_EQ(addresses.size(), made->gids.size()) << "they have the same";
    Program program = this->program(i);
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

}  // namespace
}  // namespace vrdma::vrdmad
