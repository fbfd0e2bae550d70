// Requests of container runtimes' hooks, of any user: whatever a container asks for, it gets
// nothing that its class or its claim does not name.
#include <algorithm>
#include <cstdlib>

#include "vrdmad/hooks/claimed.h"
#include "vrdmad/hooks/policy.h"

namespace {

using namespace vrdma;          // NOLINT(google-build-using-namespace): a fuzz target
using namespace vrdma::vrdmad;  // NOLINT(google-build-using-namespace)

const api::Classes& classes() {
  static const api::Classes all = *api::Classes::parse(
      "users = *\n"
      "[named]\ntenant = red\nfabric = f\nusers = *\nannotations = quota netdev name\n"
      "max_quota = qp=100\n"
      "[by-user]\ntenant = user\nfabric = user\nusers = 1001\nallow = qp1\nannotations = name\n"
      "[pods]\ntenant = namespace\nfabric = namespace\nreach = network\nusers = *\n"
      "[root]\nfabric = tenant\nparent = rxe0\n",
      "classes.conf");
  return all;
}

void check(const api::Class& its, const VdevSpec& spec, const HookRequest& request,
           const HookCaller& caller) {
  const api::ClassUser user{caller.owner, caller.uid == 0 ? request.pod_namespace : ""};
  if (its.is_for_pods() && (caller.uid != 0 || request.pod_namespace.empty())) std::abort();
  if (caller.uid != 0 && spec.labels.contains("pod_namespace")) std::abort();
  const bool as_named = spec.tenant == its.tenant_of(user) && spec.fabric == its.fabric_of(user) &&
                        spec.parent == its.parent && spec.allow == its.allow &&
                        spec.labels.at("class") == its.name;
  if (!as_named || !its.is_for(caller.uid)) std::abort();
  if (caller.uid != 0 && caller.uid != caller.owner) std::abort();
  for (const auto& setting : spec.quota)
    if (setting.kind == "qp" && its.name == "named" && setting.limit > 100) std::abort();
}

const ClaimSpec& ledger() {
  static const ClaimSpec claim{"u-1",
                               "bank",
                               "ledger",
                               {{"data", "named", {{"qp", 7}}}, {"control", "pods", {}}},
                               {{"team", "red"}}};
  return claim;
}

void check_claim(const HookRequest& request, const HookCaller& caller) {
  if (!may_claim(request, caller)) return;
  if (caller.uid != 0 || request.claim.empty() || !request.quota.empty()) std::abort();
  const auto share = share_of(ledger(), request);
  if (!share) return;
  if (request.pod_namespace != "bank") std::abort();
  const auto its = claimed(*classes().find(share->device_class), *share);
  auto spec = grant(its, request, caller);
  if (!spec) return;
  add_claim(ledger(), *share, &*spec);
  check(its, *spec, request, caller);
  const bool as_claimed = spec->labels.at("claim") == "u-1" &&
                          spec->labels.at("share") == request.share &&
                          spec->quota.size() == share->quota.size();
  if (!as_claimed || (!spec->quota.empty() && spec->quota[0].limit != 7)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto request = read_request(data, size, size);
  if (!request || request->op != hook::Request::Op::kSetUp) return 0;
  const auto its = classes().find(request->device_class);
  for (const uid_t uid : {0u, 1001u, 1002u})
    for (const uid_t owner : {0u, 1001u}) {
      const HookCaller caller{uid, owner, (size & 1) != 0};
      check_claim(*request, caller);
      if (!its) continue;
      if (const auto spec = grant(*its, *request, caller)) check(*its, *spec, *request, caller);
    }
  return 0;
}
