#include "cli/kubernetes/dra/slices.h"

#include <algorithm>
#include <optional>

#include "cli/kubernetes/dra/quantity.h"
#include "cli/kubernetes/node/json.h"
#include "cli/kubernetes/plugin/names.h"

namespace vrdma::cli::kubernetes {

namespace {

using Json = nlohmann::json;

constexpr char kTaint[] = "/unhealthy";  // behind the driver's name
constexpr size_t kLongestSliceName = 253;

// ---- from JSON ----------------------------------------------------------------------------------

std::optional<uint64_t> number_of(const Json& of, const char* name) {
  const auto& its = member(of, name);
  if (!its.is_number_unsigned()) return {};
  return its.get<uint64_t>();
}

std::optional<uint64_t> quantity_of(const Json& of, const char* name) {
  const auto number = parse_quantity(text_of(of, name));
  if (!number) return {};
  return *number;
}

std::optional<Capacity> capacity_in(const Json& from) {
  const auto& policy = member(from, "requestPolicy");
  const auto& range = member(policy, "validRange");
  const auto total = quantity_of(from, "value"), initial = quantity_of(policy, "default"),
             least = quantity_of(range, "min"), most = quantity_of(range, "max");
  if (!total || !initial || !least || !most) return {};
  return Capacity{*total, *least, *initial, *most};
}

std::optional<PoolDevice> device_in(const Json& from) {
  PoolDevice device;
  device.name = text_of(from, "name");
  const auto& shared = member(from, "allowMultipleAllocations");
  device.shared = shared.is_boolean() && shared.get<bool>();
  if (const auto& attributes = member(from, "attributes"); attributes.is_object())
    for (const auto& [name, value] : attributes.items())
      device.attributes[name] = text_of(value, "string");
  if (const auto& capacities = member(from, "capacity"); capacities.is_object())
    for (const auto& [name, value] : capacities.items()) {
      const auto capacity = capacity_in(value);
      if (!capacity) return {};
      device.capacities[name] = *capacity;
    }
  const auto& taints = elements_of(from, "taints");
  if (taints.size() > 1) return {};
  if (taints.size() == 1) device.taint = text_of(taints[0], "value");
  return device;
}

bool can_be_name(const std::string& text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
}

Slice slice_in(const Json& from) {
  const auto& metadata = member(from, "metadata");
  const auto& spec = member(from, "spec");
  const auto& pool = member(spec, "pool");
  Slice slice;
  slice.name = text_of(metadata, "name");
  slice.version = text_of(metadata, "resourceVersion");
  slice.pool = text_of(pool, "name");
  const auto generation = number_of(pool, "generation"),
             count = number_of(pool, "resourceSliceCount");
  slice.understood = generation && count;
  slice.generation = generation.value_or(0);
  slice.count = count.value_or(0);
  for (const auto& each : elements_of(spec, "devices")) {
    auto device = device_in(each);
    slice.understood = slice.understood && device;
    if (device) slice.devices.push_back(std::move(*device));
  }
  return slice;
}

// ---- to JSON ------------------------------------------------------------------------------------

Json json_of(const Capacity& capacity) {
  const auto text = [](uint64_t number) { return std::to_string(number); };
  return {{"value", text(capacity.total)},
          {"requestPolicy",
           {{"default", text(capacity.initial)},
            {"validRange", {{"min", text(capacity.least)}, {"max", text(capacity.most)}}}}}};
}

Json json_of(const PoolDevice& device, const std::string& driver) {
  Json made = {{"name", device.name}, {"allowMultipleAllocations", true}};
  for (const auto& [name, text] : device.attributes) made["attributes"][name] = {{"string", text}};
  for (const auto& [name, capacity] : device.capacities) made["capacity"][name] = json_of(capacity);
  if (!device.taint.empty())
    made["taints"] = Json::array(
        {{{"key", driver + kTaint}, {"value", device.taint}, {"effect", "NoSchedule"}}});
  return made;
}

std::string slice_name(const SliceOwner& owner, size_t index) {
  const std::string tail = "-" + owner.driver + "-" + std::to_string(index);
  return shorten(owner.node, kLongestSliceName - std::min(kLongestSliceName / 2, tail.size()),
                 '-') +
         tail;
}

Json slice_body(const SliceOwner& owner, const Slice& slice) {
  Json devices = Json::array();
  for (const auto& device : slice.devices) devices.push_back(json_of(device, owner.driver));
  Json metadata = {
      {"name", slice.name},
      {"ownerReferences",
       {{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", owner.node}, {"uid", owner.node_uid}}}}};
  if (!slice.version.empty()) metadata["resourceVersion"] = slice.version;
  return {{"apiVersion", "resource.k8s.io/v1"},
          {"kind", "ResourceSlice"},
          {"metadata", metadata},
          {"spec",
           {{"driver", owner.driver},
            {"nodeName", owner.node},
            {"pool",
             {{"name", slice.pool},
              {"generation", slice.generation},
              {"resourceSliceCount", slice.count}}},
            {"devices", devices}}}};
}

// The slices of the pool, without versions and generations.
std::vector<Slice> slices_of(const SliceOwner& owner, const std::vector<PoolDevice>& wanted) {
  std::vector<Slice> slices;
  for (size_t begin = 0; begin < wanted.size(); begin += kMostInSlice) {
    auto& slice = slices.emplace_back();
    slice.name = slice_name(owner, slices.size() - 1);
    slice.pool = owner.node;
    const size_t end = std::min(wanted.size(), begin + kMostInSlice);
    slice.devices.assign(wanted.begin() + static_cast<std::ptrdiff_t>(begin),
                         wanted.begin() + static_cast<std::ptrdiff_t>(end));
  }
  for (auto& slice : slices) slice.count = slices.size();
  return slices;
}

bool is_in_place(const std::vector<Slice>& wanted, const std::vector<Slice>& existing) {
  return std::is_permutation(wanted.begin(), wanted.end(), existing.begin(), existing.end(),
                             [&](const Slice& a, const Slice& b) {
                               return a.name == b.name && a.understood && b.understood &&
                                      a.pool == b.pool && a.count == b.count &&
                                      a.devices == b.devices;
                             }) &&
         std::all_of(existing.begin(), existing.end(), [&](const Slice& one) {
           return one.generation == existing.front().generation;
         });
}

}  // namespace

base::Result<SliceList> parse_slices(const std::string& text) {
  const Json all = Json::parse(text, nullptr, false);
  if (!member(all, "items").is_array() && !member(all, "items").is_null())
    return base::fail(EPROTO, "the API server's list of ResourceSlices is none");
  SliceList list;
  list.version = text_of(member(all, "metadata"), "resourceVersion");
  if (text_of(all, "kind") != "ResourceSliceList" || list.version.empty())
    return base::fail(EPROTO, "the API server's list of ResourceSlices is none");
  for (const auto& each : elements_of(all, "items")) {
    list.slices.push_back(slice_in(each));
    // Without a name the path of a slice is that of all.
    if (!can_be_name(list.slices.back().name))
      return base::fail(EPROTO, "the API server lists a ResourceSlice without a name");
  }
  return list;
}

base::Result<Slice> parse_slice(const std::string& text) {
  const Json all = Json::parse(text, nullptr, false);
  if (text_of(all, "kind") != "ResourceSlice")
    return base::fail(EPROTO, "the API server answers with no ResourceSlice");
  return slice_in(all);
}

std::vector<SliceWrite> plan_slices(const SliceOwner& owner, const std::vector<PoolDevice>& wanted,
                                    const std::vector<Slice>& existing, uint64_t after) {
  auto slices = slices_of(owner, wanted);
  if (slices.size() == existing.size() && is_in_place(slices, existing)) return {};
  for (const auto& each : existing) after = std::max(after, each.generation);
  std::vector<SliceWrite> plan;
  for (auto& slice : slices) {
    const auto its = std::find_if(existing.begin(), existing.end(),
                                  [&](const Slice& one) { return one.name == slice.name; });
    const bool exists = its != existing.end();
    if (exists) slice.version = its->version;
    slice.generation = after + 1;
    plan.push_back({exists ? SliceWrite::What::kReplace : SliceWrite::What::kCreate, slice.name,
                    slice_body(owner, slice).dump(-1, ' ', false, Json::error_handler_t::replace)});
  }
  for (const auto& each : existing)
    if (std::none_of(slices.begin(), slices.end(),
                     [&](const Slice& one) { return one.name == each.name; }))
      plan.push_back({SliceWrite::What::kRemove, each.name, ""});
  return plan;
}

}  // namespace vrdma::cli::kubernetes
