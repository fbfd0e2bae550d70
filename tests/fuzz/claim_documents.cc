// What the API server says about claims and slices, which tenants wrote a part of, and what the
// kubelet asks for: whatever becomes of a claim can be a path, a quota and a CDI file, and a list
// of slices is put right by one plan.
#include <kubelet/dra.pb.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/cdi.h"
#include "cli/kubernetes/dra/claim.h"
#include "cli/kubernetes/dra/pool.h"
#include "cli/kubernetes/dra/quantity.h"
#include "cli/kubernetes/dra/slices.h"

namespace {

using namespace vrdma::cli::kubernetes;  // NOLINT(google-build-using-namespace): a fuzz target

void require(bool holds) {
  if (!holds) std::abort();
}

bool is_id(const std::string& text) {
  return !text.empty() && text.size() <= 63 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

void try_claim(const std::string& text) {
  const ClaimName name{"shop", "pay", "0b51bbf2"};
  const auto devices = allocated_devices(text, name, "vrdma.io", "node-1");
  if (!devices) return;
  std::vector<std::string> shares;
  for (const auto& device : *devices) {
    require(is_id(device.share));
    shares.push_back(device.share);
    (void)quota_of(device.consumed);
  }
  const auto specification = nlohmann::json::parse(
      vrdma::cli::claim_specification({"/hook", "/run/vrdma"}, name.uid, shares));
  require(specification["devices"].size() == shares.size());
}

void try_slices(const std::string& text) {
  const SliceOwner owner{"vrdma.io", "node-1", "uid"};
  PoolDevice device;
  device.name = "small";
  device.capacities["qp"] = {8, 1, 1, 1};
  const auto list = parse_slices(text);
  if (!list) return;
  std::vector<Slice> all = list->slices;
  for (const auto& write : plan_slices(owner, {device}, list->slices, 0)) {
    std::erase_if(all, [&](const Slice& one) { return one.name == write.name; });
    if (write.what == SliceWrite::What::kRemove) continue;
    const auto written = parse_slice(write.body);
    require(written.has_value());
    all.push_back(*written);
  }
  require(plan_slices(owner, {device}, all, 0).empty());
}

// The kubelet's message.
void try_request(const std::string& text) {
  vrdma::kubelet::NodePrepareResourcesRequest request;
  if (!request.ParseFromString(text)) return;
  for (const auto& claim : request.claims()) {
    const ClaimName name{claim.namespace_(), claim.name(), claim.uid()};
    if (!check_name(name)) continue;
    const std::string path = claim_path(name);
    require(std::count(path.begin(), path.end(), '/') == 7 && is_id(name.uid));
    require(path.find("/.") == std::string::npos && path.find('?') == std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  (void)parse_quantity(text);
  try_request(text);
  try_claim(text);
  try_slices(text);
  return 0;
}
