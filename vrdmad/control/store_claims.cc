// The claims in the database.
#include "vrdmad/control/store_statement.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

Result<std::vector<ClaimSpec>> Store::claims() {
  std::vector<ClaimSpec> all;
  Statement claims(*this, "SELECT uid, namespace, name FROM claim ORDER BY uid");
  for (;;) {
    auto row = claims.step();
    if (!row) return pass(std::move(row).error());
    if (!*row) return all;
    ClaimSpec& claim = all.emplace_back();
    claim.uid = claims.text_at(0);
    claim.pod_namespace = claims.text_at(1);
    claim.name = claims.text_at(2);
    Statement shares(*this,
                     "SELECT s.id, s.class, coalesce(q.kind, ''), q.value FROM claim_share s LEFT "
                     "JOIN claim_quota q"
                     " ON q.claim = s.claim AND q.share = s.id WHERE s.claim = ?"
                     " ORDER BY s.id, q.kind");
    shares.text(claim.uid);
    for (auto more = shares.step();; more = shares.step()) {
      if (!more) return pass(std::move(more).error());
      if (!*more) break;
      if (claim.shares.empty() || claim.shares.back().id != shares.text_at(0))
        claim.shares.push_back({shares.text_at(0), shares.text_at(1), {}});
      if (const std::string kind = shares.text_at(2); !kind.empty())
        claim.shares.back().quota.push_back({kind, shares.number_at(3)});
    }
    Statement labels(*this, "SELECT key, value FROM claim_label WHERE claim = ?");
    labels.text(claim.uid);
    for (auto more = labels.step();; more = labels.step()) {
      if (!more) return pass(std::move(more).error());
      if (!*more) break;
      claim.labels.emplace(labels.text_at(0), labels.text_at(1));
    }
  }
}

Result<void> Store::make(const ClaimSpec& claim) {
  if (auto done = make(ForgottenClaim{claim.uid}); !done) return done;
  Statement add(*this, "INSERT INTO claim VALUES (?, ?, ?)");
  if (auto done = add.text(claim.uid).text(claim.pod_namespace).text(claim.name).run(); !done)
    return done;
  for (const auto& share : claim.shares) {
    Statement row(*this, "INSERT INTO claim_share VALUES (?, ?, ?)");
    if (auto done = row.text(claim.uid).text(share.id).text(share.device_class).run(); !done)
      return done;
    for (const auto& [kind, limit] : share.quota) {
      Statement quota(*this, "INSERT INTO claim_quota VALUES (?, ?, ?, ?)");
      quota.text(claim.uid).text(share.id).text(kind).number(limit);
      if (auto done = quota.run(); !done) return done;
    }
  }
  for (const auto& [key, value] : claim.labels) {
    Statement row(*this, "INSERT INTO claim_label VALUES (?, ?, ?)");
    if (auto done = row.text(claim.uid).text(key).text(value).run(); !done) return done;
  }
  return {};
}

Result<void> Store::make(const ForgottenClaim& forgotten) {
  Statement statement(*this, "DELETE FROM claim WHERE uid = ?");
  return statement.text(forgotten.uid).run();
}

}  // namespace vrdma::vrdmad
