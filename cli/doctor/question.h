// Asks a peer for an answer on the wire, as a program of rdma_cm does.
#pragma once

#include <string>

#include "core/verbs/gid.h"

namespace vrdma::cli::doctor {

enum class PeerAnswer {
  kNotAsked,    // no vdevice could ask
  kGiven,       // the peer refused or accepted it
  kTranslated,  // the peer says that the request came with other addresses than it names
  kNone
};

// The handle of librdmacm.so.1 beside `libibverbs`, the path of a library that is loaded. Null: it
// cannot be loaded.
[[nodiscard]] void* load_connection_manager(const std::string& libibverbs);

// Asks for the queue pair of UDP port 9 (discard) of the peer (RDMA_PS_UDP, SIDR_REQ). The CM of
// every host with RoCE answers, as a rule that nobody listens there. Waits 6 seconds at most.
[[nodiscard]] PeerAnswer ask(void* connection_manager, const verbs::Gid& peer);

}  // namespace vrdma::cli::doctor
