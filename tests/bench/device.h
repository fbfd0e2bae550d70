// A vdevice as the micro-benchmarks use it: the first one there is, with a protection domain, and
// queue pairs that are connected to others of the same process, by a direct link. Every failure
// ends the program with a sentence.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vrdma::bench {

[[noreturn]] void fail(const char* what);

// All is owned by the process and ends with it, but for queue pairs and their completion queue,
// which belong to a Queues.
struct Device {
  ibv_context* context;
  ibv_pd* pd;
  ibv_gid gid;  // index 0
};
Device& device();

// Anonymous private memory, touched; whole pages. Unmapped by its destructor.
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();
  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* data_;
  size_t size_;
};

ibv_mr* register_memory(const Buffer& buffer);

// `count` RC queue pairs on one completion queue, ready to send, each connected to one of as many
// on another: the far ones.
class Queues {
 public:
  explicit Queues(size_t count, uint32_t depth = 16);
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;
  ~Queues();
  ibv_cq* cq() const { return near_.cq; }
  ibv_cq* far_cq() const { return far_.cq; }
  ibv_qp* at(size_t i) const { return near_.qps[i]; }
  ibv_qp* far_at(size_t i) const { return far_.qps[i]; }

 private:
  struct Side {
    ibv_cq* cq;
    std::vector<ibv_qp*> qps;
  };
  Side near_, far_;
};

// From this vdevice's GID of that index to another vdevice.
struct Way {
  ibv_gid to;
  uint8_t index;
  uint8_t hops;
  ibv_mtu mtu;
  uint8_t timeout;  // of the local ACK timer
};
// An RC queue pair joined to the one that has the number `peer`, ready to send; without a way, to
// one of the same vdevice.
void join(ibv_qp* qp, uint32_t peer, const Way& way);
void join(ibv_qp* qp, uint32_t peer);
// The same with itself.
void join_itself(ibv_qp* qp);

ibv_cq* make_cq(int entries, ibv_comp_channel* channel = nullptr);
ibv_qp* make_qp(ibv_cq* cq, uint32_t depth);

// An 8-byte inline write or send from the begin of the memory; a write goes to its end.
void post(ibv_qp* qp, const ibv_mr* mr, ibv_wr_opcode opcode, bool signaled);
void post_receive(ibv_qp* qp, const ibv_mr* mr);
// Polls until `count` completions came; each must be a success.
void drain(ibv_cq* cq, size_t count);

}  // namespace vrdma::bench
