// Queue pairs that a worker serves, although both programs are of one tenant and on this host: why,
// and what makes them direct.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <string>
#include <vector>

#include "cli/doctor/finding.h"

namespace vrdma::cli::doctor {

// A finding for each reason. `queue_pairs`: those of the vdevice.
[[nodiscard]] std::vector<Finding> judge_links(const std::string& vdevice,
                                               const std::vector<v1::QueuePair>& queue_pairs);

}  // namespace vrdma::cli::doctor
