#include "cli/filter.h"

#include <algorithm>

#include "cli/exec.h"

namespace vrdma::cli {

namespace {

bool has_label(const v1::Vdev& vdev, const std::string& wanted) {
  const size_t equals = wanted.find('=');
  const auto it = vdev.labels().find(wanted.substr(0, equals));
  if (it == vdev.labels().end()) return false;
  return equals == std::string::npos || it->second == wanted.substr(equals + 1);
}

}  // namespace

bool Filter::is_set(bool with_state) const {
  return !tenant.empty() || !netns.empty() || !fabric.empty() || !labels.empty() ||
         (with_state && !state.empty());
}

bool Filter::fits(const v1::Vdev& vdev, bool with_state) const {
  return (tenant.empty() || vdev.tenant() == tenant) &&
         (fabric.empty() || vdev.fabric() == fabric) &&
         (netns.empty() || netns_path(vdev.netns()) == netns_path(netns)) &&
         (!with_state || state.empty() || vdev.port_state() == state) &&
         std::all_of(labels.begin(), labels.end(),
                     [&](const std::string& label) { return has_label(vdev, label); });
}

}  // namespace vrdma::cli
