#include "vrdmad/control/same_spec.h"

#include <algorithm>
#include <map>

#include "core/base/label.h"
#include "core/base/printable.h"
#include "gid/layout.h"
#include "gid/prefix.h"
#include "provisioning/permission.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::printable;
using base::Result;

namespace {

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

std::string number_text(uint64_t limit) {
  return limit == UINT64_MAX ? "max" : std::to_string(limit);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ",") + word;
  return or_none(text);
}

std::string text_of(const Owner& owner) {
  if (owner.pid == 0) return "none";
  return std::to_string(owner.pid) + " (start time " + std::to_string(owner.start_time) + ")";
}

std::map<std::string, std::string> by_kind(const std::vector<QuotaSetting>& quota) {
  std::map<std::string, std::string> all;
  for (const auto& one : quota) all[one.kind] = number_text(one.limit);
  return all;
}

// The first key, in sorted order, that differs: "quota qp=64, not qp=128".
std::optional<std::string> difference_of(const std::string& what,
                                         const std::map<std::string, std::string>& made,
                                         const std::map<std::string, std::string>& wanted) {
  const auto text = [](const auto& from, const std::string& key) {
    const auto it = from.find(key);
    return it != from.end() ? key + "=" + it->second : "no " + key;
  };
  for (const auto* side : {&made, &wanted})
    for (const auto& [key, value] : *side)
      if (text(made, key) != text(wanted, key))
        return what + " " + text(made, key) + ", not " + text(wanted, key);
  return {};
}

}  // namespace

Result<VdevSpec> canonical(const VdevSpec& spec) {
  if (auto ok = base::check_labels(spec.labels); !ok) return pass(std::move(ok.error()));
  if (spec.end_with_owner && spec.owner.pid == 0)
    return fail(EINVAL, "a vdevice without an owner cannot end with its owner: name one");
  VdevSpec result = spec;
  for (auto& text : result.addresses) {
    auto prefix = gid::Prefix::parse(text);
    if (!prefix) return pass(std::move(prefix.error()));
    text = prefix->text();
  }
  const auto layout = gid::parse_layout(spec.gid_layout);
  if (!layout) return pass(layout.error());
  result.gid_layout = gid::text_of(*layout);
  auto permissions = provisioning::Permissions::of(spec.allow);
  if (!permissions) return pass(std::move(permissions.error()));
  result.allow = permissions->names();
  std::sort(result.quota.begin(), result.quota.end(),
            [](const auto& a, const auto& b) { return a.kind < b.kind; });
  return result;
}

std::optional<std::string> difference(const VdevSpec& made, const VdevSpec& wanted) {
  const auto differ = [](const std::string& what, const std::string& is, const std::string& asked) {
    return what + " " + printable(is) + ", not " + printable(asked);
  };
  if (made.netdev != wanted.netdev) return differ("netdev", made.netdev, wanted.netdev);
  if (made.parent != wanted.parent) return differ("parent", made.parent, wanted.parent);
  if (made.tenant != wanted.tenant)
    return differ("tenant", or_none(made.tenant), or_none(wanted.tenant));
  if (made.fabric != wanted.fabric)
    return differ("fabric", or_none(made.fabric), or_none(wanted.fabric));
  if (auto quota = difference_of("quota", by_kind(made.quota), by_kind(wanted.quota))) return quota;
  if (made.allow != wanted.allow)
    return differ("permissions", joined(made.allow), joined(wanted.allow));
  if (made.no_direct != wanted.no_direct)
    return std::string(made.no_direct ? "no direct links, not with" : "direct links, not without");
  if (made.gid_layout != wanted.gid_layout)
    return differ("GID layout", made.gid_layout, wanted.gid_layout);
  auto prefixes = made.addresses, wanted_prefixes = wanted.addresses;
  std::sort(prefixes.begin(), prefixes.end());
  std::sort(wanted_prefixes.begin(), wanted_prefixes.end());
  if (prefixes != wanted_prefixes)
    return differ("addresses", joined(prefixes), joined(wanted_prefixes));
  if (made.owner != wanted.owner)
    return differ("owner", text_of(made.owner), text_of(wanted.owner));
  if (made.end_with_owner != wanted.end_with_owner)
    return std::string(made.end_with_owner ? "an end with its owner, not without one"
                                           : "no end with its owner, not with one");
  if (made.containers.empty() != wanted.containers.empty())
    return made.containers.empty() ? "no containers" : "containers, which a hook set up";
  return difference_of("label", made.labels, wanted.labels);
}

}  // namespace vrdma::vrdmad
