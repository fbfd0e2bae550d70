#include "provisioning/permission.h"

#include <algorithm>
#include <array>

namespace vrdma::provisioning {

namespace {

// In the order of Permission.
constexpr std::array<const char*, 3> kNames{"raw-packet", "qp1", "userfaultfd"};

std::string all_names() {
  std::string names;
  for (const char* name : kNames) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

}  // namespace

base::Result<Permissions> Permissions::of(const std::vector<std::string>& names) {
  Permissions permissions;
  for (const auto& name : names) {
    const auto found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end())
      return base::fail(EINVAL, "there is no permission '" + name + "': there are " + all_names());
    const uint32_t bit = 1u << (found - kNames.begin());
    if ((permissions.bits_ & bit) != 0)
      return base::fail(EINVAL, "permission " + name + " is named twice");
    permissions.bits_ |= bit;
  }
  return permissions;
}

std::optional<Permissions> Permissions::of_bits(uint32_t bits) {
  if (bits >> kNames.size() != 0) return std::nullopt;
  Permissions permissions;
  permissions.bits_ = bits;
  return permissions;
}

std::vector<std::string> Permissions::names() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < kNames.size(); ++i)
    if (has(static_cast<Permission>(i))) names.emplace_back(kNames[i]);
  return names;
}

}  // namespace vrdma::provisioning
