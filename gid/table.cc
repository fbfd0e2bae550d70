#include "gid/table.h"

#include <algorithm>

namespace vrdma::gid {

namespace {

bool among(const std::vector<verbs::Gid>& gids, const verbs::Gid& gid) {
  return std::find(gids.begin(), gids.end(), gid) != gids.end();
}

}  // namespace

Table::Change Table::update(const std::vector<verbs::Gid>& wanted) {
  Change change;
  std::vector<verbs::Gid> next;
  if (!wanted.empty()) next.push_back(wanted.front());
  for (const auto& gid : gids_) {
    if (!among(wanted, gid))
      change.removed.push_back(gid);
    else if (!among(next, gid))
      next.push_back(gid);
  }
  for (const auto& gid : wanted) {
    if (!among(gids_, gid)) change.added.push_back(gid);
    if (!among(next, gid)) next.push_back(gid);
  }
  // If the first GID is itself an IPv4 GID, there is no default GID.
  const auto ipv4 = std::find_if(next.begin(), next.end(),
                                 [](const verbs::Gid& gid) { return gid.is_ipv4_mapped(); });
  if (ipv4 != next.begin() && ipv4 != next.end()) std::rotate(next.begin() + 1, ipv4, ipv4 + 1);
  for (size_t i = 0; i < gids_.size(); ++i)
    if (among(next, gids_[i]) && (i >= next.size() || next[i] != gids_[i])) change.moved = true;
  gids_ = std::move(next);
  return change;
}

bool Table::contains(const verbs::Gid& gid) const { return among(gids_, gid); }

}  // namespace vrdma::gid
