// Claims: what an orchestrator has promised to the containers of pods, and which vdevices
// containers have by it.
#include <spdlog/spdlog.h>

#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

Result<void> Daemon::restore_claims() {
  auto all = store_.claims();
  if (!all) return pass(std::move(all.error()));
  for (auto& claim : *all) claims_.restore(std::move(claim));
  return {};
}

std::vector<uint64_t> Daemon::given_by(const std::string& claim) const {
  std::vector<uint64_t> ids;
  const auto is_given = [&](const VdevSpec& spec) {
    return !spec.containers.empty() && label_value(spec, kClaimLabel) == claim;
  };
  for (const auto& [id, record] : records_)
    if (!record->leaving && is_given(record->spec)) ids.push_back(id);
  for (const auto& [id, lost] : lost_)
    if (is_given(lost.vdev.spec)) ids.push_back(id);
  return ids;
}

Result<void> Daemon::check_unused(const std::string& claim, const std::vector<uint64_t>& vdevices,
                                  const std::string& what) {
  if (vdevices.empty()) return {};
  const VdevSpec& spec = *spec_of(vdevices.front());
  return fail(EBUSY, "container " + spec.containers.front().id + " has vdevice " +
                         label_of(spec.netns, spec.name) + " by claim '" + claim + "': " + what);
}

std::vector<ClaimInfo> Daemon::describe(const std::vector<ClaimSpec>& claims) const {
  std::map<std::pair<std::string, std::string>, uint32_t> given;
  const auto count = [&given](const VdevSpec& spec) {
    if (!spec.containers.empty())
      ++given[{label_value(spec, kClaimLabel), label_value(spec, kShareLabel)}];
  };
  for (const auto& [id, record] : records_) count(record->spec);
  for (const auto& [id, lost] : lost_) count(lost.vdev.spec);
  std::vector<ClaimInfo> list;
  for (const auto& claim : claims) {
    auto& vdevices = list.emplace_back(ClaimInfo{claim, {}}).vdevices;
    for (const auto& share : claim.shares) {
      const auto its = given.find({claim.uid, share.id});
      vdevices.push_back(its != given.end() ? its->second : 0);
    }
  }
  return list;
}

Result<ClaimInfo> Daemon::put_claim(const ClaimSpec& given) {
  const auto claim = Claims::canonical(given);
  if (!claim) return pass(claim.error());
  const std::string name = "claim '" + claim->uid + "'";
  const std::lock_guard one_at_a_time(changes_);
  const auto same = call([&]() -> std::optional<ClaimInfo> {
    if (!claims_.contains(*claim)) return {};
    return describe({*claim}).front();
  });
  if (same) return *same;
  const auto classes = classes_->read();
  if (!classes) return pass(classes.error());
  for (const auto& share : claim->shares)
    if (const auto its = classes->find(share.device_class); !its) return pass(its.error(), name);
  auto begun = call([&]() -> Result<std::future<Result<void>>> {
    if (auto free =
            check_unused(claim->uid, given_by(claim->uid), "end it before the claim changes");
        !free)
      return pass(std::move(free.error()));
    if (!claims_.contains(claim->uid) && claims_.all().size() >= Claims::kMost)
      return fail(ENOSPC, "vrdmad has " + std::to_string(Claims::kMost) +
                              " claims, the most that it keeps: delete some with `vrdmactl claim "
                              "delete`");
    claims_.begin(claim->uid);
    return outside_.writer->write(*claim);
  });
  if (!begun) return pass(std::move(begun.error()));
  const Result<void> stored = wait_for(std::move(*begun));
  return call([&]() -> Result<ClaimInfo> {
    if (!stored) {
      claims_.cancel();
      return pass(stored.error(), name + " is not written");
    }
    claims_.end_put(*claim);
    spdlog::info("claim {}: of {}/{}", claim->uid, claim->pod_namespace, claim->name);
    return describe({*claim}).front();
  });
}

Result<void> Daemon::delete_claim(const std::string& uid, bool force) {
  const std::lock_guard one_at_a_time(changes_);
  auto given = call([&]() -> Result<std::optional<std::vector<uint64_t>>> {
    if (!claims_.contains(uid)) return std::nullopt;
    auto vdevices = given_by(uid);
    if (auto free = check_unused(uid, vdevices, "end it, or delete the claim with --force");
        !free && !force)
      return pass(std::move(free.error()));
    claims_.begin(uid);
    return vdevices;
  });
  if (!given) return pass(std::move(given.error()));
  if (!*given) return {};
  Result<void> deleted;
  for (const uint64_t id : **given) {
    auto gone = delete_in_turn("id:" + std::to_string(id));
    // Its containers may end meanwhile.
    if (!gone && gone.error().code() != ENOENT) deleted = pass(std::move(gone.error()));
  }
  if (deleted) deleted = wait_for(outside_.writer->write(Store::ForgottenClaim{uid}));
  return call([&]() -> Result<void> {
    if (!deleted) {
      claims_.cancel();
      return pass(std::move(deleted.error()), "claim '" + uid + "' is not deleted");
    }
    claims_.end_delete();
    spdlog::info("claim {}: deleted", uid);
    return {};
  });
}

std::vector<ClaimInfo> Daemon::list_claims() {
  return call([&] {
    std::vector<ClaimSpec> claims;
    for (const auto& [uid, claim] : claims_.all()) claims.push_back(claim);
    return describe(claims);
  });
}

Result<ClaimSpec> Daemon::find_claim(const std::string& uid) {
  return call([&] { return claims_.find(uid); });
}

}  // namespace vrdma::vrdmad
