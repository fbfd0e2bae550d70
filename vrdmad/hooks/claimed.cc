#include "vrdmad/hooks/claimed.h"

#include <algorithm>

#include "vrdmad/hooks/backend.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Result;

Result<void> may_claim(const HookRequest& asked, const HookCaller& caller) {
  if (!caller.is_trusted())
    return fail(EPERM,
                "user " + std::to_string(caller.uid) +
                    " may use no claim, because only root's runtimes may tell the pod: use a "
                    "class");
  if (asked.claim.empty() || asked.share.empty() || !asked.device_class.empty())
    return fail(EINVAL,
                "the hook must name a class, or a claim and a share: write the CDI files again");
  if (!asked.quota.empty())
    return fail(EPERM,
                "annotation vrdma.io/quota: the quota of a claim is set in the claim alone; "
                "remove the annotation");
  return {};
}

Result<ClaimShare> share_of(const ClaimSpec& claim, const HookRequest& asked) {
  const std::string name = "claim '" + claim.uid + "'";
  if (asked.pod_namespace.empty())
    return fail(EPERM, "the container is in no pod of Kubernetes, and " + name +
                           " is for pods of namespace '" + claim.pod_namespace + "'");
  if (asked.pod_namespace != claim.pod_namespace)
    return fail(EPERM, "the pod is in namespace '" + asked.pod_namespace + "', and " + name +
                           " is for pods of namespace '" + claim.pod_namespace + "'");
  const auto share = std::find_if(claim.shares.begin(), claim.shares.end(),
                                  [&](const ClaimShare& one) { return one.id == asked.share; });
  if (share != claim.shares.end()) return *share;
  return fail(ENOENT, name + " has no share '" + asked.share +
                          "': delete the pod, so that its node prepares the claim again");
}

api::Class claimed(api::Class its, const ClaimShare& share) {
  its.per_container = false;
  for (const auto& [kind, limit] : share.quota) {
    std::erase_if(its.quota, [&kind = kind](const auto& one) { return one.kind == kind; });
    its.quota.push_back({kind, limit});
  }
  return its;
}

void add_claim(const ClaimSpec& claim, const ClaimShare& share, VdevSpec* granted) {
  granted->labels.insert(claim.labels.begin(), claim.labels.end());
  granted->labels[HookBackend::kClaimLabel] = claim.uid;
  granted->labels[HookBackend::kShareLabel] = share.id;
}

}  // namespace vrdma::vrdmad
