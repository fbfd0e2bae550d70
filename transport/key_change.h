// A request that changes keys and needs no peer: a window is bound, or a key made invalid.
//
// It is complete when nobody uses what the old key named any more: neither a program on a direct
// link nor a reach thread. It is not undone when a link goes.
#pragma once

#include <memory>

#include "core/rdma/window.h"
#include "transport/serial_sender.h"

namespace vrdma::transport {

class KeyChange {
 public:
  // Carries it out, or goes on waiting. `sender` is resumed when there is something to look at.
  [[nodiscard]] Progress execute(const rdma::WorkRequest& request, rdma::Qp& qp,
                                 SerialSender& sender);
  // It was carried out, and is not complete.
  [[nodiscard]] bool begun() const { return begun_ != nullptr; }
  void forget() { begun_.reset(); }

 private:
  struct Begun {
    rdma::KeyUsers users;
    bool reached_gone = false;
  };
  std::shared_ptr<Begun> begun_;
};

}  // namespace vrdma::transport
