// Which transport carries the mediated requests of a connected queue pair: chosen at RTR, and anew
// when its link changes kind.
//
//   memory leads to the peer: Fabric::near()            shm
//   the operator has pinned one                         that one
//   the parent is an adapter                            the parent's
//   else                                                the network's
//
// A transport that there is not, or that does not lead to the peer, is passed over. In the end it
// is shm, which waits for a peer on this host. The parent's maker comes with the vdevice's share of
// it.
#pragma once

#include <functional>
#include <memory>

#include "core/rdma/device.h"

namespace vrdma::transport {

struct Selector {
  // Null: it does not lead to the peer.
  using Maker = std::function<std::unique_ptr<rdma::Sender>(rdma::Qp&)>;
  Maker shm;  // never empty
  Maker pinned, parent, network;

  [[nodiscard]] std::unique_ptr<rdma::Sender> choose(rdma::Qp& qp) const {
    const bool here = qp.link.kind() == rdma::Link::Kind::kLocal ||
                      (!qp.link.remote &&
                       qp.context->device->fabric->near(*qp.context->device, qp.dgid()) != nullptr);
    if (!here)
      for (const Maker* maker : {&pinned, &parent, &network})
        if (*maker)
          if (auto sender = (*maker)(qp)) return sender;
    return shm(qp);
  }
};

}  // namespace vrdma::transport
