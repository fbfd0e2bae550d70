// What a tenant can write into its queue arena, in front of a worker that executes it: work
// requests, receives, keys, indices. Whatever stands there, the worker neither crashes nor touches
// memory that is not the tenants' own, and its queues go on or end the session.
#include <cstring>

#include "tests/fuzz/input.h"
#include "tests/unit/transport/rig.h"

namespace {

using vrdma::fuzz::Input;
using vrdma::ipc::Token;
using vrdma::transport::kBase;
using vrdma::transport::Rig;

struct Target : Rig {
  vrdma::test::World::Pair pair = world.connected();
  void TestBody() override {}

  void feed(Input input) {
    vrdma::rdma::Qp& qp = *pair.a;
    vrdma::rdma::Qp& peer = *pair.b;
    // The peer's receives, then our requests; keys are ours more often than chance would have it.
    const uint8_t receives = input.take<uint8_t>() % 4;
    auto* rq = const_cast<uint8_t*>(peer.receives.wqes);
    for (size_t i = 0; i < receives * 64u; ++i) rq[i] = input.take<uint8_t>();
    peer.block->rq_head =
        input.take<uint8_t>() % 3 == 0 ? input.take<uint32_t>() : peer.inbox_head + receives;
    const uint32_t tail = qp.block->sq_tail;
    const uint8_t requests = input.take<uint8_t>() % 4 + 1;
    for (uint8_t i = 0; i < requests; ++i) {
      vrdma::ipc::SendWqe wqe = input.take<vrdma::ipc::SendWqe>();
      const uint8_t choice = input.take<uint8_t>();
      if ((choice & 1) != 0) wqe.opcode %= vrdma::verbs::kOpcodeCount;
      if ((choice & 2) != 0) wqe.num_sge %= 4;
      if ((choice & 4) != 0) wqe.inline_length %= 64;
      if ((choice & 8) != 0) wqe.rdma.rkey = b_key;
      if ((choice & 16) != 0) wqe.rdma.remote_addr = kBase + wqe.rdma.remote_addr % 8192;
      auto* at =
          const_cast<uint8_t*>(qp.sq) + uint64_t{(tail + i) & (qp.sq_depth - 1)} * qp.send_stride;
      std::memcpy(at, &wqe, sizeof wqe);
      for (int k = 0; k < 4; ++k) {
        auto sge = input.take<vrdma::verbs::Sge>();
        if ((choice & 32) != 0) sge = {kBase + sge.addr % 8192, sge.length % 8192, a_key};
        std::memcpy(at + sizeof wqe + static_cast<size_t>(k) * sizeof sge, &sge, sizeof sge);
      }
    }
    qp.block->sq_head = input.take<uint8_t>() % 8 == 0 ? input.take<uint32_t>() : tail + requests;
    if (!input.empty()) {  // a forged key
      auto* keys = const_cast<vrdma::ipc::KeyEntry*>(b.context.keys());
      const auto forged = input.take<uint64_t>();
      if (forged % 4 == 0) keys[b_key >> 8].addr = input.take<uint64_t>();
    }
    qp.block->token = static_cast<uint32_t>(Token::kWorker);
    qp.sender->kick();
    settle(0);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Target target;
  target.feed(Input(data, size));
  return 0;
}
