// The peer in memory_calls.cc: a queue pair that is connected to one of the same process, and
// memory of its own.
#pragma once

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/integration/rc.h"

namespace memory_calls {

constexpr size_t kPage = 4096, kPages = 48, kWindow = kPages * kPage;
using rc::kAccess;

[[noreturn]] inline void die(const char* what) {
  std::fprintf(stderr, "FAILED: %s: %s\n", what, std::strerror(errno));
  std::_Exit(2);
}

inline uint8_t* map(uint8_t* at, size_t size) {
  void* const made = ::mmap(at, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
  if (made == MAP_FAILED) die("mmap");
  return static_cast<uint8_t*>(made);
}

class Peer {
 public:
  Peer(ibv_context* context, ibv_pd* pd, int gid_index) : buffer_(map(nullptr, kWindow)) {
    cq_ = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    mr_ = ibv_reg_mr(pd, buffer_, kWindow, kAccess);
    if (cq_ == nullptr || mr_ == nullptr) die("make the peer");
    for (ibv_qp*& qp : qps_) {
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = cq_;
      init.qp_type = IBV_QPT_RC;
      init.cap = {16, 16, 1, 1, 0};
      qp = ibv_create_qp(pd, &init);
      if (qp == nullptr) die("ibv_create_qp");
    }
    ibv_gid gid{};
    if (ibv_query_gid(context, 1, gid_index, &gid) != 0) die("ibv_query_gid");
    for (int i = 0; i < 2; ++i)
      if (const char* state = rc::connect(qps_[i], qps_[1 - i]->qp_num, gid, gid_index)) die(state);
  }
  [[nodiscard]] uint8_t* buffer() const { return buffer_; }
  // One request; `to`: in the window.
  void request(ibv_wr_opcode opcode, const uint8_t* to, size_t size, uint32_t rkey) {
    ibv_sge sge{reinterpret_cast<uint64_t>(buffer_), static_cast<uint32_t>(size), mr_->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {reinterpret_cast<uint64_t>(to), 1, 0, rkey};
    else
      wr.wr.rdma = {reinterpret_cast<uint64_t>(to), rkey};
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qps_[0], &wr, &bad) != 0) die("ibv_post_send");
    ibv_wc wc{};
    int got = 0;
    while ((got = ibv_poll_cq(cq_, 1, &wc)) == 0) {
    }
    if (got < 0 || wc.status != IBV_WC_SUCCESS) {
      std::fprintf(stderr, "FAILED: the peer's request: %s\n", ibv_wc_status_str(wc.status));
      std::_Exit(2);
    }
  }

 private:
  uint8_t* buffer_;
  ibv_cq* cq_;
  ibv_mr* mr_;
  ibv_qp* qps_[2];
};

}  // namespace memory_calls
