#include "cli/kubernetes/dra/pool.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "cli/kubernetes/plugin/devices.h"
#include "cli/kubernetes/plugin/names.h"
#include "core/base/printable.h"
#include "provisioning/kind.h"

namespace vrdma::cli::kubernetes {

namespace {

constexpr size_t kLongestLabel = 63;
constexpr size_t kLongestAttribute = 64;  // of the API, in bytes
constexpr uint64_t kMostOfQuantity = std::numeric_limits<int64_t>::max();
constexpr char kVdevices[] = "vdevices";

// Which capacities are quotas, and how many of each are one of the quota's unit.
struct Metered {
  provisioning::Kind kind;
  uint64_t scale;
};
constexpr Metered kMetered[] = {{provisioning::Kind::kQp, 1},
                                {provisioning::Kind::kMrBytes, 1},
                                {provisioning::Kind::kBandwidth, 8}};  // bits

uint64_t times(uint64_t a, uint64_t b) {
  return b != 0 && a > kMostOfQuantity / b ? kMostOfQuantity : a * b;
}

std::optional<uint64_t> limit_in(
    const google::protobuf::RepeatedPtrField<v1::QuotaSetting>& settings, std::string_view kind) {
  for (const auto& setting : settings)
    if (setting.kind() == kind) return setting.limit();
  return {};
}

// None: the class does not limit it.
std::optional<Capacity> capacity_of(const v1::Class& which, const Metered& metered,
                                    uint32_t devices) {
  const auto& traits = provisioning::traits(metered.kind);
  const uint64_t initial = limit_in(which.quota(), traits.name).value_or(traits.initial);
  const uint64_t most =
      std::max(limit_in(which.max_quota(), traits.name).value_or(initial), initial);
  if (initial >= traits.ceiling || initial == 0) return {};
  Capacity capacity;
  capacity.least = times(std::max<uint64_t>(traits.least, 1), metered.scale);
  capacity.initial = std::max(times(initial, metered.scale), capacity.least);
  capacity.most = std::max(times(std::min(most, traits.ceiling), metered.scale), capacity.initial);
  capacity.total = std::max(times(capacity.initial, devices), capacity.most);
  return capacity;
}

bool is_label(const std::string& text) {
  const auto is_inner = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  return !text.empty() && text.size() <= kLongestLabel &&
         std::all_of(text.begin(), text.end(), is_inner) && text.front() != '-' &&
         text.back() != '-';
}

}  // namespace

std::string pool_device_name(const std::string& class_name) {
  if (is_label(class_name)) return class_name;
  std::string label;
  for (const char c : class_name) {
    const char low = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool fits = (low >= 'a' && low <= 'z') || (low >= '0' && low <= '9');
    label += fits ? low : '-';
  }
  // shorten() of a longer text to 17 characters leaves a mark and a hash.
  return "c-" + label.substr(0, 40) +
         shorten(class_name + std::string(kLongestLabel, ' '), 17, '-');
}

PoolDevice pool_device_of(const v1::Class& which, const std::optional<Unhealthy>& unhealthy,
                          const std::string& domain, const std::string& pcie_root) {
  const Offer offer = offer_of(which, !unhealthy);
  PoolDevice device;
  device.name = pool_device_name(which.name());
  device.attributes = {{domain + "/class", which.name()}, {domain + "/parent", which.parent()}};
  if (!which.reach().empty()) device.attributes[domain + "/reach"] = which.reach();
  if (!pcie_root.empty()) device.attributes["resource.kubernetes.io/pcieRoot"] = pcie_root;
  for (auto& [name, text] : device.attributes)
    text = base::printable(text.substr(0, kLongestAttribute), kLongestAttribute)
               .substr(0, kLongestAttribute);
  device.capacities[kVdevices] = {offer.devices, 1, 1, 1};
  for (const auto& metered : kMetered)
    if (auto capacity = capacity_of(which, metered, offer.devices))
      device.capacities[std::string(provisioning::traits(metered.kind).name)] = *capacity;
  if (!offer.healthy) device.taint = unhealthy ? unhealthy->reason : "full";
  return device;
}

base::Result<std::vector<v1::QuotaSetting>> quota_of(
    const std::map<std::string, uint64_t>& consumed) {
  std::vector<v1::QuotaSetting> quota;
  for (const auto& [name, number] : consumed) {
    if (name == kVdevices) continue;
    const auto* const metered = std::find_if(
        std::begin(kMetered), std::end(kMetered),
        [&](const Metered& one) { return provisioning::traits(one.kind).name == name; });
    if (metered == std::end(kMetered))
      return base::fail(EINVAL, "it consumes a capacity that no class has: '" +
                                    base::printable(name, kLongestAttribute) + "'");
    auto& setting = quota.emplace_back();
    setting.set_kind(name);
    setting.set_limit(std::max<uint64_t>(number / metered->scale, 1));
  }
  return quota;
}

std::string pcie_root(const std::string& parent, const std::string& sysfs) {
  std::error_code error;
  const auto device =
      std::filesystem::canonical(sysfs + "/class/infiniband/" + parent + "/device", error);
  if (error) return {};
  for (const auto& part : device)
    if (part.string().starts_with("pci")) return part;
  return {};
}

}  // namespace vrdma::cli::kubernetes
