#include "vrdmad/control/claims.h"

#include <algorithm>
#include <set>

#include "core/base/label.h"
#include "core/base/printable.h"
#include "provisioning/kind.h"
#include "vrdmad/hooks/backend.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::printable;
using base::Result;

namespace {

constexpr size_t kMaxId = 63, kMaxClaimName = 253;

// Letters, digits, '-' and those of `others`, with a letter or a digit at both ends.
bool fits(const std::string& text, size_t most, const char* others = "") {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const std::string rest = std::string("-") + others;
  return !text.empty() && text.size() <= most && is_plain(text.front()) && is_plain(text.back()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_plain(c) || rest.find(c) != std::string::npos; });
}

Result<void> check_id(const std::string& what, const std::string& id) {
  if (fits(id, kMaxId)) return {};
  return fail(EINVAL,
              what + " '" + printable(id.substr(0, kMaxId + 1)) +
                  "' is invalid: it needs 1 to 63 letters, digits and '-', with a letter or "
                  "a digit at both ends");
}

Result<void> check_claim_labels(const std::map<std::string, std::string>& labels) {
  // All that a vdevice with a claim may have beside them: not that of a user, since a claim counts
  // from root's hooks alone, whose namespaces are root's.
  constexpr size_t kMost = base::kMaxLabels - (HookBackend::kOwnLabels.size() - 1);
  if (labels.size() > kMost)
    return fail(EINVAL, std::to_string(labels.size()) + " labels are too many: it has at most " +
                            std::to_string(kMost));
  for (const char* const own : HookBackend::kOwnLabels)
    if (labels.contains(own))
      return fail(EINVAL,
                  "label '" + std::string(own) + "' is that of vrdmad itself: choose another key");
  return base::check_labels(labels);
}

Result<void> check_share(const ClaimShare& share) {
  if (auto ok = check_id("the id of share", share.id); !ok) return ok;
  if (share.device_class.empty())
    return fail(EINVAL, "share '" + share.id + "' has no class: name one of classes.conf");
  std::vector<provisioning::Setting> settings;
  for (const auto& [kind, limit] : share.quota) settings.push_back({kind, limit});
  auto known = provisioning::understand(settings);
  return known ? Result<void>() : pass(std::move(known.error()), "share '" + share.id + "'");
}

Result<void> check(const ClaimSpec& claim) {
  if (auto ok = check_id("the namespace", claim.pod_namespace); !ok) return ok;
  if (!fits(claim.name, kMaxClaimName, "."))
    return fail(EINVAL, "the name '" + printable(claim.name.substr(0, kMaxClaimName + 1)) +
                            "' is invalid: it needs 1 to 253 letters, digits, '-' and '.', with a "
                            "letter or a digit at both ends");
  if (claim.shares.empty() || claim.shares.size() > Claims::kMostShares)
    return fail(EINVAL, "it has " + std::to_string(claim.shares.size()) +
                            " shares: it needs 1 to " + std::to_string(Claims::kMostShares));
  std::set<std::string> ids;
  for (const auto& share : claim.shares) {
    if (auto ok = check_share(share); !ok) return ok;
    if (!ids.insert(share.id).second)
      return fail(EINVAL, "two shares have the id '" + share.id + "': give each its own");
  }
  return check_claim_labels(claim.labels);
}

}  // namespace

Result<ClaimSpec> Claims::canonical(const ClaimSpec& claim) {
  if (auto ok = check_id("the uid of the claim", claim.uid); !ok)
    return pass(std::move(ok.error()));
  if (auto ok = check(claim); !ok) return pass(std::move(ok.error()), "claim '" + claim.uid + "'");
  ClaimSpec result = claim;
  std::sort(result.shares.begin(), result.shares.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  for (auto& share : result.shares)
    std::sort(share.quota.begin(), share.quota.end(),
              [](const auto& a, const auto& b) { return a.kind < b.kind; });
  return result;
}

bool Claims::contains(const ClaimSpec& claim) const {
  const auto its = all_.find(claim.uid);
  return its != all_.end() && its->second == claim;
}

Result<ClaimSpec> Claims::find(const std::string& uid) const {
  const std::string name = "claim '" + printable(uid) + "'";
  if (uid == changing_) return fail(EAGAIN, name + " is being changed: start the container again");
  const auto its = all_.find(uid);
  if (its != all_.end()) return its->second;
  return fail(ENOENT, "vrdmad has no " + name +
                          ": delete the pod, so that its node prepares the claim again");
}

void Claims::end_put(const ClaimSpec& claim) {
  all_.insert_or_assign(claim.uid, claim);
  changing_.clear();
}

void Claims::end_delete() {
  all_.erase(changing_);
  changing_.clear();
}

}  // namespace vrdma::vrdmad
