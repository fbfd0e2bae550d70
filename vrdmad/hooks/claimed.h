// What a share of a claim grants (vrdma.v1.Claim). A claim is for the pods of one namespace, which
// only root's hooks are believed; its record is the admin API's, so nothing of it is the
// container's choice.
#pragma once

#include <string>

#include "api/classes.h"
#include "core/base/error.h"
#include "vrdmad/admin/backend.h"
#include "vrdmad/hooks/policy.h"
#include "vrdmad/hooks/request.h"

namespace vrdma::vrdmad {

// Whether this caller may name a claim, before vrdmad looks for it. EPERM; EINVAL: the request
// names a class too, or only one of claim and share.
[[nodiscard]] base::Result<void> may_claim(const HookRequest& asked, const HookCaller& caller);

// The share that the request names. EPERM: the claim is for another namespace; ENOENT: it has no
// such share.
[[nodiscard]] base::Result<ClaimShare> share_of(const ClaimSpec& claim, const HookRequest& asked);

// The class of the share with its quota; a pod's containers share the vdevice.
[[nodiscard]] api::Class claimed(api::Class its, const ClaimShare& share);

// Names the claim in what grant() returned.
void add_claim(const ClaimSpec& claim, const ClaimShare& share, VdevSpec* granted);

}  // namespace vrdma::vrdmad
