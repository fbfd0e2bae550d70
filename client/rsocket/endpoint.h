// The UD queue pair of a datagram socket for one local address, and its send and receive buffers.
// Any thread, one at a time; errors are negative errno values.
//
// A received message keeps its slot until give_back(). If the program does not read, further
// messages are lost, as with UDP.
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
// Must not outlive the endpoint that made it.
using RsHandle = std::unique_ptr<ibv_ah, RsHandleGone>;

class RsEndpoint {
 public:
  // From the socket's options.
  struct Sizes {
    uint32_t send_bytes, receive_bytes;
    uint32_t send_depth, receive_depth;
    uint32_t inline_bytes;
  };
  // -ENODEV or -EADDRNOTAVAIL: `local` is not an address of a vdevice.
  static int make(rdma_event_channel* channel, const RsAddress& local, const Sizes& sizes,
                  std::unique_ptr<RsEndpoint>* made);
  ~RsEndpoint();
  RsEndpoint(const RsEndpoint&) = delete;
  RsEndpoint& operator=(const RsEndpoint&) = delete;

  [[nodiscard]] const RsAddress& address() const { return address_; }
  [[nodiscard]] uint32_t qpn() const { return id_->qp->qp_num; }
  // The longest message with its header: the MTU.
  [[nodiscard]] uint32_t longest() const { return mtu_; }
  [[nodiscard]] int completion_fd() const { return completions_.fd(); }
  // The queue pair is in ERR; the socket must make a new endpoint.
  [[nodiscard]] bool is_broken() const { return broken_; }
  [[nodiscard]] bool can_send() const { return !broken_ && !free_.empty(); }
  [[nodiscard]] bool all_sent() const { return broken_ || free_.size() == send_depth_; }

  // nullptr and errno on failure.
  [[nodiscard]] RsHandle handle_for(const RsAddress& peer);
  // Requires can_send(), and that header and message fit.
  int send(std::span<const uint8_t> header, const iovec* from, size_t count, ibv_ah* to,
           uint32_t qpn);

  struct Arrival {
    uint32_t slot;
    std::span<const uint8_t> bytes;  // the message with its header
    std::array<uint8_t, 16> gid;     // the sender's address in the network header
    uint32_t qpn;
  };
  // Calls `take` for each received message until is_broken(). True if any request completed.
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
  uint32_t mtu_ = 0, stride_ = 0;  // bytes per slot
  uint32_t send_depth_ = 0, receive_depth_ = 0;
  uint32_t inline_ = 0;
  uint8_t source_index_ = 0;  // last known GID index of the address
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
