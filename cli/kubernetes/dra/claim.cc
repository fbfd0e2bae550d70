#include "cli/kubernetes/dra/claim.h"

#include <algorithm>
#include <set>

#include "cli/kubernetes/dra/quantity.h"
#include "cli/kubernetes/node/json.h"
#include "core/base/option_check.h"

namespace vrdma::cli::kubernetes {

namespace {

using Json = nlohmann::json;

constexpr size_t kLongestUid = 63, kLongestSpace = 63, kLongestName = 253;

bool is_of(const std::string& text, size_t most, bool (*fits)(char)) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), fits) &&
         text.front() != '-' && text.front() != '.' && text.back() != '-' && text.back() != '.';
}
bool fits_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
}
bool fits_uid(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

base::Result<AllocatedDevice> device_of(const Json& result, size_t index) {
  AllocatedDevice device;
  device.request = text_of(result, "request");
  device.request = device.request.substr(0, device.request.find('/'));
  device.device = text_of(result, "device");
  device.share = text_of(result, "shareID");
  device.has_share_id = !device.share.empty();
  if (!device.has_share_id) device.share = std::to_string(index);
  if (!is_of(device.share, kLongestUid, fits_uid))
    return base::fail(EINVAL, "it has the share " + base::in_quotes(device.share));
  const auto& admin = member(result, "adminAccess");
  if (!admin.is_null() && admin != Json(false))
    return base::fail(EINVAL, "it asks for administrative access, which vdevices do not have");
  const auto& consumed = member(result, "consumedCapacity");
  if (!consumed.is_null() && !consumed.is_object())
    return base::fail(EINVAL, "it consumes something that is no capacity");
  for (const auto& [qualified, value] : consumed.items()) {
    const auto number = parse_quantity(value.is_string() ? value.get<std::string>() : "");
    const std::string name = qualified.substr(qualified.find('/') + 1);
    if (!number) return base::pass(number.error(), "it consumes " + base::in_quotes(name));
    if (!device.consumed.emplace(name, *number).second)
      return base::fail(EINVAL, "it consumes " + base::in_quotes(name) + " twice");
  }
  return device;
}

}  // namespace

base::Result<void> check_name(const ClaimName& name) {
  if (is_of(name.space, kLongestSpace, fits_name) && is_of(name.name, kLongestName, fits_name) &&
      is_of(name.uid, kLongestUid, fits_uid))
    return {};
  return base::fail(EINVAL, "the kubelet names a claim " + base::in_quotes(name.space) + "/" +
                                base::in_quotes(name.name) + " with the uid " +
                                base::in_quotes(name.uid) + ", which none can have");
}

std::string claim_path(const ClaimName& name) {
  return "/apis/resource.k8s.io/v1/namespaces/" + name.space + "/resourceclaims/" + name.name;
}

base::Result<std::vector<AllocatedDevice>> allocated_devices(const std::string& text,
                                                             const ClaimName& name,
                                                             const std::string& driver,
                                                             const std::string& pool) {
  const Json all = Json::parse(text, nullptr, false);
  const auto& metadata = member(all, "metadata");
  if (text_of(all, "kind") != "ResourceClaim" || text_of(metadata, "uid").empty())
    return base::fail(EPROTO, "the API server answers with no ResourceClaim");
  std::vector<AllocatedDevice> devices;
  if (text_of(metadata, "uid") != name.uid) return devices;
  const auto& allocation = member(member(member(all, "status"), "allocation"), "devices");
  std::set<std::string> shares;
  size_t index = 0;
  for (const auto& result : elements_of(allocation, "results")) {
    ++index;
    if (text_of(result, "driver") != driver) continue;
    if (text_of(result, "pool") != pool) continue;
    auto device = device_of(result, index - 1);
    if (!device) return base::pass(std::move(device).error());
    if (!shares.insert(device->share).second)
      return base::fail(EINVAL, "it has the share " + base::in_quotes(device->share) + " twice");
    devices.push_back(std::move(*device));
  }
  if (devices.empty()) return devices;
  for (const auto& config : elements_of(allocation, "config"))
    if (text_of(member(config, "opaque"), "driver") == driver)
      return base::fail(EINVAL, "it has a configuration for " + driver +
                                    ", which takes none: remove it from the claim or its class");
  return devices;
}

}  // namespace vrdma::cli::kubernetes
