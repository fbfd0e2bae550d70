// UDP port 4791 in a network namespace, which vrdmad needs at each address of a vdevice whose
// fabric reaches the network. A socket that has the port at every address keeps vrdmad from it: the
// kernel's rxe has two of these.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <string>
#include <string_view>
#include <vector>

#include "cli/doctor/finding.h"

namespace vrdma::cli::doctor {

// `sockets`: /proc/net/udp or /proc/net/udp6 (proc(5)).
[[nodiscard]] bool has_port_everywhere(std::string_view sockets);

// `reaching`: the vdevices of the namespace that reach the network, at least one; `taken`:
// has_port_everywhere() there; `rxe`: the kernel has the module rdma_rxe loaded.
[[nodiscard]] Finding judge_port(const std::vector<const v1::Vdev*>& reaching, bool taken,
                                 bool rxe);

}  // namespace vrdma::cli::doctor
