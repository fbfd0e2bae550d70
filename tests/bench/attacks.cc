// What a tenant may ask for at most, without an end, by verbs and with default quotas:
//
//   bench_attacks NAME
//
// Writes "begun" when it goes on; ends when it is killed. All queue pairs are joined to themselves.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "tests/bench/device.h"

namespace vrdma::bench {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr uint32_t kQkey = 0x11111111;

void begun() {
  std::printf("begun\n");
  std::fflush(stdout);
}

struct Request {
  ibv_sge piece{};
  ibv_send_wr wr{};
};

// From the first half of the memory to the second.
Request within(const ibv_mr* mr, uint32_t bytes, ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) {
  Request request;
  request.piece = {reinterpret_cast<uintptr_t>(mr->addr), bytes, mr->lkey};
  request.wr.opcode = opcode;
  request.wr.wr.rdma.remote_addr = request.piece.addr + mr->length / 2;
  request.wr.wr.rdma.rkey = mr->rkey;
  return request;
}

// Queues that are never empty: each request that completes is followed by another one of its queue.
struct Flood {
  std::vector<ibv_qp*> queues;
  uint32_t depth = 0;
  ibv_cq* cq = nullptr;
  size_t senders = queues.size();             // the first of the queues
  std::function<void(size_t)> received = {};  // by the queue of that index

  [[noreturn]] void run(const std::function<Request()>& next) const {
    for (uint32_t i = 0; i < depth; ++i)
      for (size_t queue = 0; queue < senders; ++queue) send(queue, next());
    begun();
    for (;;) {
      ibv_wc done[64];
      const int count = ibv_poll_cq(cq, 64, done);
      if (count < 0) fail("ibv_poll_cq");
      for (const ibv_wc* one = done; one < done + count; ++one) {
        if (one->status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(one->status));
        if (one->opcode == IBV_WC_RECV)
          received(one->wr_id);
        else
          send(one->wr_id, next());
      }
      if (count == 0) ::usleep(50);
    }
  }
  void send(size_t queue, Request request) const {
    request.wr.sg_list = &request.piece;
    request.wr.num_sge = 1;
    request.wr.wr_id = queue;
    request.wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    if ((errno = ibv_post_send(queues[queue], &request.wr, &bad)) != 0) fail("ibv_post_send");
  }
};

Flood connected(size_t queues, uint32_t depth) {
  ibv_cq* cq = make_cq(static_cast<int>(queues * depth));
  std::vector<ibv_qp*> all;
  for (size_t i = 0; i < queues; ++i) {
    all.push_back(make_qp(cq, depth));
    join_itself(all.back());
  }
  return {std::move(all), depth, cq};
}

[[noreturn]] void write_within(size_t bytes, size_t queues, uint32_t depth) {
  const Buffer memory(2 * bytes);
  const ibv_mr* mr = register_memory(memory);
  connected(queues, depth).run([&] { return within(mr, static_cast<uint32_t>(bytes)); });
}

void turns() { write_within(kMiB, 64, 64); }
void large_writes() { write_within(kMiB, 1024, 4); }
void small_writes() { write_within(8, 64, 64); }

void reads() {
  const Buffer memory(4096 * 4096);
  std::vector<ibv_mr*> all;
  for (size_t i = 0; i < 4096; ++i) {
    all.push_back(ibv_reg_mr(device().pd, memory.data() + i * 4096, 4096,
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
    if (all.back() == nullptr) fail("ibv_reg_mr");
  }
  size_t at = 0;
  connected(64, 16).run([&] { return within(all[++at % all.size()], 2048, IBV_WR_RDMA_READ); });
}

// Each WRITE into a page that is not there, of one stretch of memory after the other.
void holes() {
  constexpr size_t kSize = 64 * kMiB, kPage = 4096;
  ibv_mr* before = nullptr;  // whose last WRITEs may be on their way
  ibv_mr* mr = nullptr;
  size_t page = 0;
  connected(16, 16).run([&] {
    if (page++ % (kSize / kPage) == 0) {
      if (before != nullptr) {
        void* memory = before->addr;
        if (ibv_dereg_mr(before) != 0 || ::munmap(memory, kSize) != 0) fail("give memory back");
      }
      before = mr;
      void* memory =
          ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) fail("mmap");
      mr = ibv_reg_mr(device().pd, memory, kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
      if (mr == nullptr) fail("ibv_reg_mr");
    }
    Request request = within(mr, 8);
    request.wr.wr.rdma.remote_addr = request.piece.addr + page % (kSize / kPage) * kPage;
    return request;
  });
}

// Memory that workers do not map, of as many processes as a vdevice may have threads for.
void reach() {
  for (int i = 0; i < 16; ++i) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    void* memory =
        ::mmap(nullptr, 4 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    std::memset(memory, 1, 4 * kMiB);
    const ibv_mr* mr =
        ibv_reg_mr(device().pd, memory, 4 * kMiB, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (mr == nullptr) fail("ibv_reg_mr");
    connected(4, 8).run([&] { return within(mr, 2 * kMiB); });
  }
  for (;;) ::pause();
}

void registrations() {
  std::vector<Buffer*> buffers;
  for (int i = 0; i < 64; ++i) buffers.push_back(new Buffer(65536));
  begun();
  for (size_t i = 0;; ++i)
    if (ibv_dereg_mr(register_memory(*buffers[i % buffers.size()])) != 0) fail("ibv_dereg_mr");
}

void queue_pairs() {
  ibv_cq* cq = make_cq(64);
  begun();
  for (;;) {
    ibv_qp* qp = make_qp(cq, 16);
    join_itself(qp);
    if (ibv_destroy_qp(qp) != 0) fail("ibv_destroy_qp");
  }
}

// ---- datagrams
// -----------------------------------------------------------------------------------

ibv_qp* datagram_queue(ibv_cq* cq, uint32_t depth) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.qp_type = IBV_QPT_UD;
  wanted.cap = {depth, depth, 1, 1, 0};
  ibv_qp* qp = ibv_create_qp(device().pd, &wanted);
  if (qp == nullptr) fail("ibv_create_qp");
  ibv_qp_attr to{};
  to.port_num = 1;
  to.qkey = kQkey;
  to.qp_state = IBV_QPS_INIT;
  bool moved =
      ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0;
  to.qp_state = IBV_QPS_RTR;
  moved = moved && ibv_modify_qp(qp, &to, IBV_QP_STATE) == 0;
  to.qp_state = IBV_QPS_RTS;
  if (!moved || ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN) != 0) fail("ibv_modify_qp");
  return qp;
}

void post_room(ibv_qp* qp, const ibv_mr* mr, uint64_t id) {
  ibv_sge piece{reinterpret_cast<uintptr_t>(mr->addr) + mr->length / 2, 4096, mr->lkey};
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if ((errno = ibv_post_recv(qp, &request, &bad)) != 0) fail("ibv_post_recv");
}

// The first `senders` of `count` queues send to `gid` and `qpn`. All have room for what comes.
[[noreturn]] void send_datagrams(size_t count, size_t senders, bool to_a_group) {
  constexpr uint32_t kDepth = 16;
  const Buffer memory(16384);
  const ibv_mr* mr = register_memory(memory);
  Flood flood{{}, kDepth, make_cq(static_cast<int>(2 * count * kDepth))};
  for (size_t i = 0; i < count; ++i) flood.queues.push_back(datagram_queue(flood.cq, kDepth));
  flood.senders = senders;
  flood.received = [&](size_t queue) { post_room(flood.queues[queue], mr, queue); };
  ibv_ah_attr where{};
  where.is_global = 1;
  where.grh.dgid = device().gid;
  where.grh.hop_limit = 1;
  where.port_num = 1;
  if (to_a_group) {
    where.grh.dgid = {{0xff, 0x0e, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}};
    for (ibv_qp* qp : flood.queues)
      if (ibv_attach_mcast(qp, &where.grh.dgid, 0) != 0) fail("ibv_attach_mcast");
  }
  ibv_ah* ah = ibv_create_ah(device().pd, &where);
  if (ah == nullptr) fail("ibv_create_ah");
  for (size_t i = 0; i < count; ++i)
    for (uint32_t k = 0; k < kDepth; ++k) flood.received(i);
  size_t at = 0;
  flood.run([&] {
    Request request = within(mr, 1024, IBV_WR_SEND);
    request.wr.wr.ud.ah = ah;
    request.wr.wr.ud.remote_qpn = to_a_group ? 0xffffff : flood.queues[at++ % count]->qp_num;
    request.wr.wr.ud.remote_qkey = kQkey;
    return request;
  });
}

void datagrams() { send_datagrams(64, 64, false); }
void groups() { send_datagrams(512, 1, true); }

struct Attack {
  std::string_view name;
  void (*run)();
};
constexpr Attack kAttacks[] = {{"turns", turns},
                               {"large_writes", large_writes},
                               {"small_writes", small_writes},
                               {"reads", reads},
                               {"holes", holes},
                               {"reach", reach},
                               {"registrations", registrations},
                               {"queue_pairs", queue_pairs},
                               {"datagrams", datagrams},
                               {"groups", groups}};

}  // namespace
}  // namespace vrdma::bench

int main(int argc, char** argv) {
  using namespace vrdma::bench;
  const std::string_view name = argc == 2 ? argv[1] : "";
  for (const Attack& attack : kAttacks)
    if (attack.name == name) attack.run();
  errno = EINVAL;
  fail("bench_attacks NAME");
}
