// A request that changes keys and needs no peer: a window is bound, or a key made invalid.
//
// It is complete when nobody uses what the old key named any more: neither a program on a direct
// link nor a reach thread. It is not undone when a link goes.
#pragma once

#include <functional>
#include <memory>

#include "core/rdma/window.h"
#include "transport/serial_sender.h"

namespace vrdma::transport {

class KeyChange {
 public:
  // Carries it out, or goes on waiting. `resume` is called when there is something to look at, if
  // this object is still there and has not forgotten the request.
  [[nodiscard]] Progress execute(const rdma::WorkRequest& request, rdma::Qp& qp, SendRing& ring,
                                 std::function<void()> resume);
  // A dead worker had begun with `request`. If it was carried out, what is left is to wait.
  void after_crash(const rdma::WorkRequest& request, const rdma::Qp& qp);
  // It was carried out, and is not complete.
  [[nodiscard]] bool begun() const { return begun_ != nullptr; }
  void forget() {
    begun_.reset();
    carried_out_ = false;
  }

 private:
  struct Begun {
    rdma::KeyUsers users;
    bool reached_gone = false;
  };
  [[nodiscard]] static verbs::WcStatus change(const rdma::WorkRequest& request, rdma::Qp& qp,
                                              SendRing& ring);

  std::shared_ptr<Begun> begun_;
  bool carried_out_ = false;  // by a dead worker
};

}  // namespace vrdma::transport
