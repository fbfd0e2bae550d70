// The seam between a send queue and the ways to its peer.
//
// A SendQueue takes work requests from a queue pair in order; a Path carries one out. Paths: shm
// (both ends on this host), later tcp, roce and hca. A Path and its SendQueue live on one thread.
#pragma once

#include "core/rdma/device.h"

namespace vrdma::transport {

struct Progress {
  enum class Kind : uint8_t {
    kDone,       // completed with `status`
    kAgain,      // part of it is done: call execute() again soon, others may run in between
    kPending,    // the path calls SendQueue::resume() when there is something to do
    kNoReceive,  // responder not ready; nothing was done
    kNoLink,     // nobody there (yet); nothing was done
  };
  Kind kind = Kind::kDone;
  verbs::WcStatus status = verbs::WcStatus::kSuccess;
  uint32_t byte_len = 0;
  uint64_t moved = 0;  // bytes copied, by this call: what the vdevice pays for
};
inline Progress done(verbs::WcStatus status, uint64_t byte_len = 0, uint64_t moved = 0) {
  return {Progress::Kind::kDone, status, static_cast<uint32_t>(byte_len), moved};
}

class Path {
 public:
  virtual ~Path() = default;
  // Begins or continues `request`, which stays the same object until it is done or abandoned.
  [[nodiscard]] virtual Progress execute(rdma::WorkRequest& request) = 0;
  // Forgets a request that was begun; what it claimed goes back.
  virtual void abandon() = 0;
  // A dead worker had begun to complete a receive with `request`, as entry `index` of its inbox:
  // whether it had done so.
  [[nodiscard]] virtual bool delivered(const rdma::WorkRequest& request, uint32_t index) const = 0;
  // It had begun to change memory by `request`, and no receive: whether that is certainly done.
  [[nodiscard]] virtual bool written(rdma::WorkRequest& request) = 0;
};

}  // namespace vrdma::transport
