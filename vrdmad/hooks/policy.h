// What a container gets: its class, and what its annotations may change.
//
// Images carry annotations, so they are never trusted: a container may choose only what its class
// names in `annotations`, and no limit above `max_quota`. Tenant, fabric, parent and permissions
// are the class's alone.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

#include "api/classes.h"
#include "core/base/error.h"
#include "vrdmad/admin/backend.h"
#include "vrdmad/hooks/request.h"

namespace vrdma::vrdmad {

// Who asks, of what the kernel says.
struct HookCaller {
  uid_t uid = 0;              // of the hook
  uid_t owner = 0;            // of the network namespace
  bool host_network = false;  // the namespace is the daemon's own
  // Root's runtimes alone say of which pod a container is; nobody else is believed.
  [[nodiscard]] bool is_trusted() const { return uid == 0; }
};

// EPERM, EINVAL: a sentence that says what to do.
[[nodiscard]] base::Result<VdevSpec> grant(const api::Class& its, const HookRequest& asked,
                                           const HookCaller& caller);
// The kinds in the quota of what grant() returned for which the class has no limit.
[[nodiscard]] std::set<std::string> only_lowered(const api::Class& its, const VdevSpec& granted);

}  // namespace vrdma::vrdmad
