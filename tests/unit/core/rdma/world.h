// Devices, contexts and queue pairs in one process, as the daemon makes them, without a daemon.
//
// The "programs" are the test itself: it writes work requests into the arenas, and calls on_…()
// or runs the loop to have them executed. Memory in place is a stretch of a memory arena that the
// test maps too (Party::memory); reached memory is the test's own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/rdma/device.h"
#include "tests/unit/core/base/run_until.h"

namespace vrdma::test {

// Runs `loop` for `time` and as many passes as any queue needs to come to rest.
void run_for(base::EventLoop& loop, std::chrono::milliseconds time);

verbs::Gid gid_of(const std::string& text);

// One process's use of a device.
class Party {
 public:
  // Bytes that are in place stand from kBase on in the memory arena, kBytes of them, so that they
  // cross from one window to the next.
  static constexpr uint64_t kBytes = 8u << 20;
  static constexpr uint64_t kBase = 5 * ipc::kWindowSize - kBytes / 2;

  Party(rdma::Device& device, base::EventLoop& loop);

  rdma::Context context;
  std::shared_ptr<rdma::ReachThreads> threads = std::make_shared<rdma::ReachThreads>();
  rdma::Pd* pd = nullptr;
  rdma::Channel* channel = nullptr;
  int corrupt = 0;  // calls of on_corrupt

  uint8_t* memory(uint64_t addr = kBase) { return memory_.bytes() + (addr - kBase); }
  // A key for [addr, addr + length).
  uint32_t register_memory(uint64_t addr, uint64_t length, uint32_t access,
                           ipc::Way way = ipc::Way::kInPlace, rdma::Pd* domain = nullptr);
  uint32_t register_all(uint32_t access) { return register_memory(kBase, kBytes, access); }
  void deregister(uint32_t key) { context.set_key(key, nullptr); }

  rdma::Pd* add_pd() { return context.pds.add(std::make_unique<rdma::Pd>()); }
  rdma::Cq* add_cq();
  rdma::Srq* add_srq(uint32_t depth, uint32_t max_sge = 4);
  struct QpOptions {
    verbs::QpType type = verbs::QpType::kRc;
    uint32_t depth = 16;
    uint32_t max_sge = ipc::kMaxSge;
    rdma::Srq* srq = nullptr;
    rdma::Cq* recv_cq = nullptr;
  };
  rdma::Qp* add_qp(const QpOptions& options);
  rdma::Qp* add_qp() { return add_qp(QpOptions{}); }

  // What the program does. `post` returns false if the ring is full.
  bool post_receive(rdma::Qp& qp, uint64_t wr_id, const std::vector<verbs::Sge>& sges);
  bool post_receive(rdma::Srq& srq, uint32_t slot, const std::vector<verbs::Sge>& sges);
  bool post_send(rdma::Qp& qp, ipc::SendWqe wqe, const std::vector<verbs::Sge>& sges);
  // The entries of a queue pair's inbox so far, and the results of its send queue.
  std::vector<ipc::RecvEntry> received(const rdma::Qp& qp) const;
  std::vector<ipc::SendResult> results(const rdma::Qp& qp) const;
  // The messages in the pipes.
  std::vector<ipc::EventMessage> events();
  std::vector<ipc::ChannelMessage> wakes();

 private:
  base::Mapping memory_;
  base::Fd event_read_, channel_read_;
  uint32_t next_slot_ = 1;
};

// A fabric with devices a (fe80::a, 10.0.0.1) and b (fe80::b, 10.0.0.2), of one tenant.
struct World {
  std::unique_ptr<base::EventLoop> loop;
  rdma::Fabric fabric{"shared"};
  rdma::Device a_device, b_device;
  std::unique_ptr<Party> a, b;
  // Makes a queue pair's sender; none if it is not set.
  std::function<std::unique_ptr<rdma::Sender>(rdma::Qp&)> make_sender;

  explicit World(const std::string& b_tenant = "red");
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  struct Pair {
    rdma::Qp* a = nullptr;
    rdma::Qp* b = nullptr;
  };
  // Two queue pairs that name each other, in RTS and joined.
  Pair connected(const Party::QpOptions& a_options, const Party::QpOptions& b_options);
  Pair connected() { return connected({}, {}); }
  // To RTR and RTS, naming `peer` of the other party.
  void name(rdma::Qp& qp, const rdma::Qp& peer);
  void to_rtr(rdma::Qp& qp);
  void to_rts(rdma::Qp& qp);
  rdma::Qp* add_qp(Party& party, const Party::QpOptions& options);
};

ipc::SendWqe wqe_of(verbs::Opcode opcode, uint8_t flags = ipc::kSignaled);
ipc::SendWqe rdma_wqe(verbs::Opcode opcode, uint64_t remote_addr, uint32_t rkey);

}  // namespace vrdma::test
