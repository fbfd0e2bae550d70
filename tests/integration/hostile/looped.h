// A session with a queue pair connected to itself, and a region.
#pragma once

#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"

namespace vrdma::hostile {

struct Looped {
  explicit Looped(const Target& target, bool shared = false, uint32_t version = ipc::kVersion)
      : client(target.socket) {
    client.version = version;
    client.open();
    pd = client.alloc_pd();
    cq = client.create_cq();
    if (shared) srq = client.create_srq(pd);
    qp = client.create_qp(pd, cq, shared ? srq.handle : ipc::kNoObject);
    client.loop(qp);
    mr = client.reg_mr(pd, kAddr, kLength, ipc::Way::kInPlace);
  }
  static constexpr uint64_t kAddr = 1u << 20, kLength = 1u << 20;

  [[nodiscard]] ipc::SendWqe wqe(verbs::Opcode opcode) const {
    ipc::SendWqe made{};
    made.opcode = static_cast<uint8_t>(opcode);
    made.flags = ipc::kSignaled;
    made.num_sge = 1;
    made.rdma.remote_addr = kAddr;
    made.rdma.rkey = mr.key;
    return made;
  }
  // Posts a WRITE from the region and hands it to the worker, if the queue has room.
  void write(uint32_t length, uint64_t to = kAddr, uint32_t rkey = 0) {
    ipc::QpBlock* const block = client.block(qp);
    if (block->sq_head - block->sq_tail >= qp.sq_depth) return;
    ipc::SendWqe made = wqe(verbs::Opcode::kRdmaWrite);
    made.rdma.remote_addr = to;
    if (rkey != 0) made.rdma.rkey = rkey;
    client.post(qp, made, {data(length)});
  }
  void again() { client.loop_again(qp); }
  // The session still works, so no thread of the daemon that serves it is stuck.
  void still_works() {
    again();
    write(64);
    expect(client.executed(qp) && client.last_result(qp).status == 0,
           "a session does not work after what its owner did");
  }
  [[nodiscard]] verbs::Sge data(uint32_t length = 64) const { return {kAddr, length, mr.key}; }

  Client client;
  uint32_t pd = 0, cq = 0;
  ipc::CreateSrqReply srq{};
  ipc::CreateQpReply qp{};
  ipc::RegMrReply mr{};
};

}  // namespace vrdma::hostile
