// `vrdmactl doctor --to ADDRESS`: what keeps the vdevices of a namespace from a peer.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/question.h"
#include "core/base/error.h"
#include "core/verbs/gid.h"

namespace vrdma::cli::doctor {

// "10.0.0.2", "fd00::2". EINVAL: it is no address, or one of many hosts.
[[nodiscard]] base::Result<verbs::Gid> parse_peer(const std::string& text);

// The way to a peer, as the kernel of a network namespace knows it.
struct Way {
  int error = 0;       // an errno of connect(2): there is no route
  std::string source;  // the address that packets leave from, as the text of a GID
  int answer = 0;      // the errno that a datagram to UDP port 4791 came to; 0: nothing refused it
  PeerAnswer given = PeerAnswer::kNotAsked;  // then: what the peer says there
};
// Tries it from this process's network namespace. Waits as long as the kernel looks for a
// neighbour, some 3 seconds.
[[nodiscard]] Way find_way(const verbs::Gid& peer);

// `own`: the vdevices of the namespace, `all`: those of this host, `way`: absent if unknown.
[[nodiscard]] Finding judge_peer(const verbs::Gid& peer, const std::vector<const v1::Vdev*>& own,
                                 const std::vector<v1::Vdev>& all, const std::optional<Way>& way);

}  // namespace vrdma::cli::doctor
