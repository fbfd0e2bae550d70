// ResourceClaims as the API server has them: what the scheduler has allocated. Pure functions.
//
// The text is hostile: a tenant writes the spec, and other components write the status.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli::kubernetes {

// How the kubelet names a claim.
struct ClaimName {
  std::string space, name, uid;  // space: its namespace
};
// EINVAL: it can be the name of no claim; so it may be part of a path.
[[nodiscard]] base::Result<void> check_name(const ClaimName& name);
[[nodiscard]] std::string claim_path(const ClaimName& name);

// A device of our pool that the claim has.
struct AllocatedDevice {
  std::string request;  // without the name of a subrequest
  std::string device;
  std::string share;  // unique in the claim; the API server's shareID, or the index of the result
  bool has_share_id = false;
  std::map<std::string, uint64_t> consumed;  // by capacity
};

// Those of `driver`. An empty list: it has none, or the object is another of the same name. EPROTO:
// the text is no claim. EINVAL: something that must be granted or refused is not understood; the
// sentence begins with "it".
[[nodiscard]] base::Result<std::vector<AllocatedDevice>> allocated_devices(
    const std::string& text, const ClaimName& name, const std::string& driver,
    const std::string& pool);

}  // namespace vrdma::cli::kubernetes
