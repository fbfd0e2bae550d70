// A socket in the run directory for root and the daemon's own user alone.
#pragma once

#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "vrdmad/log/audit.h"

namespace vrdma::vrdmad {

// A listening, non-blocking stream socket at `path`, which must not exist; mode 0600.
[[nodiscard]] base::Result<base::Fd> listen_for_root(const std::string& path);
// The process at the other end of an accepted connection, if it may use the socket.
[[nodiscard]] std::optional<AdminPeer> allowed_peer(const base::Fd& client);

}  // namespace vrdma::vrdmad
