// The queue pair that a datagram socket has for one of its addresses, with the memory of what it
// sends and receives. Any thread, one at a time; errors are negative errno values.
//
// What comes stays in its slot until give_back(): a program that does not read loses what does not
// fit, as with UDP.
#pragma once

#include <rdma/rdma_cma.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/rsocket/completions.h"
#include "client/rsocket/datagram_protocol.h"

namespace vrdma::client {

struct RsHandleGone {
  void operator()(ibv_ah* handle) const { (void)ibv_destroy_ah(handle); }
};
// Not to outlive the endpoint that made it.
using RsHandle = std::unique_ptr<ibv_ah, RsHandleGone>;

class RsEndpoint {
 public:
  // What the options of the socket want.
  struct Sizes {
    uint32_t send_bytes, receive_bytes;
    uint32_t send_depth, receive_depth;
    uint32_t inline_bytes;
  };
  // `local` is an address of a vdevice: -ENODEV or -EADDRNOTAVAIL if not.
  static int make(rdma_event_channel* channel, const RsAddress& local, const Sizes& sizes,
                  std::unique_ptr<RsEndpoint>* made);
  ~RsEndpoint();
  RsEndpoint(const RsEndpoint&) = delete;
  RsEndpoint& operator=(const RsEndpoint&) = delete;

  [[nodiscard]] const RsAddress& address() const { return address_; }
  [[nodiscard]] uint32_t qpn() const { return id_->qp->qp_num; }
  // Of a message with its header: the MTU.
  [[nodiscard]] uint32_t longest() const { return mtu_; }
  [[nodiscard]] int completion_fd() const { return completions_.fd(); }
  // Its queue pair is in an error: another one is to be made.
  [[nodiscard]] bool is_broken() const { return broken_; }
  [[nodiscard]] bool can_send() const { return !broken_ && !free_.empty(); }
  [[nodiscard]] bool all_sent() const { return broken_ || free_.size() == send_depth_; }

  // nullptr and errno.
  [[nodiscard]] RsHandle handle_for(const RsAddress& peer);
  // can_send() holds, and header and message fit.
  int send(std::span<const uint8_t> header, const iovec* from, size_t count, ibv_ah* to,
           uint32_t qpn);

  struct Arrival {
    uint32_t slot;
    std::span<const uint8_t> bytes;  // the message with its header
    std::array<uint8_t, 16> gid;     // whose it is, as the network has it
    uint32_t qpn;
  };
  // Calls `take` with what has come, as long as is_broken() does not hold. True if anything has
  // completed.
  template <class Take>
  bool poll(Take take);
  void give_back(uint32_t slot);

  void arm() { completions_.arm(); }
  void disarm() { completions_.disarm(); }

 private:
  static constexpr uint64_t kReceive = uint64_t{1} << 63;

  RsEndpoint() = default;
  int create(rdma_event_channel* channel, const Sizes& sizes);
  int create_queue_pair(const Sizes& sizes);
  [[nodiscard]] Arrival arrival(const ibv_wc& done) const;
  [[nodiscard]] int source_index();

  RsAddress address_;
  rdma_cm_id* id_ = nullptr;
  RsCompletions completions_;
  bool broken_ = false;
  uint32_t mtu_ = 0, stride_ = 0;  // of a slot
  uint32_t send_depth_ = 0, receive_depth_ = 0;
  uint32_t inline_ = 0;
  uint8_t source_index_ = 0;  // of the address in the GID table, when it was last used
  std::vector<uint8_t> received_, sent_;
  ibv_mr *received_region_ = nullptr, *sent_region_ = nullptr;
  std::vector<uint32_t> free_;  // slots of sent_
};

template <class Take>
bool RsEndpoint::poll(Take take) {
  bool any = false;
  for (;;) {
    ibv_wc batch[16];
    const int got = ibv_poll_cq(completions_.queue(), static_cast<int>(std::size(batch)), batch);
    if (got <= 0) return any;
    any = true;
    for (int i = 0; i < got; ++i) {
      const ibv_wc& done = batch[i];
      if (done.status != IBV_WC_SUCCESS) broken_ = true;
      if ((done.wr_id & kReceive) == 0)
        free_.push_back(static_cast<uint32_t>(done.wr_id));
      else if (!broken_)
        take(arrival(done));
    }
  }
}

}  // namespace vrdma::client
