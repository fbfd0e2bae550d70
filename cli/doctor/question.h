// Asks a peer for an answer on the wire, as a program of rdma_cm does.
#pragma once

#include <string>

#include "core/verbs/gid.h"

namespace vrdma::cli::doctor {

enum class Answer {
  kNotAsked,    // no vdevice could ask
  kGiven,       // the peer refused or accepted the connection
  kTranslated,  // the peer says that the request came with other addresses than it names
  kNone
};

// The handle of librdmacm.so.1 beside `libibverbs`, the path of a library that is loaded. Null: it
// cannot be loaded.
[[nodiscard]] void* load_connection_manager(const std::string& libibverbs);

// Requests a connection to port 9 (discard) of the peer: the CM of every host with RoCE answers. As
// nobody should listen there, it refuses. Waits 6 seconds at most.
[[nodiscard]] Answer ask(void* connection_manager, const verbs::Gid& peer);

}  // namespace vrdma::cli::doctor
