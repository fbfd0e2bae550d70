// A parked process (checkpoint.proto) as JSON: what `vrdmactl -o json checkpoint` prints and reads,
// and what vrdmad says to the plugin of CRIU (vrdmad/admin/checkpoint_server.h). Images are
// hexadecimal.
#pragma once

#include <vrdma/v1/checkpoint.pb.h>

#include <string>

#include "core/base/error.h"

namespace vrdma::api {

[[nodiscard]] std::string text_of(const v1::ParkedProcess& process);
// What a tool needs to place or attach a process: without `peers`, and what only vrdmad says of a
// session or of connections. EINVAL: it is not that.
[[nodiscard]] base::Result<v1::ParkedProcess> parked_process_of(const std::string& text);

}  // namespace vrdma::api
