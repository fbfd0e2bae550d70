// What the kubelet is told about the devices of a class. Pure functions.
#pragma once

#include <kubelet/deviceplugin.pb.h>
#include <vrdma/v1/admin.pb.h>

#include <cstdint>
#include <optional>
#include <string>

namespace vrdma::cli::kubernetes {

// More would not fit in a message that the kubelet accepts (4 MiB).
inline constexpr uint32_t kMostDevices = 10000;

// What the list of a class is made from.
struct Offer {
  std::string class_name;
  uint32_t devices = 0;  // never 0, because an empty list removes the resource
  bool healthy = false;  // all of them
  std::optional<uint32_t> numa_node;
  bool operator==(const Offer&) const = default;
};
// As many devices as the operator offers and ceilings leave room for, but never fewer than
// containers have. Without room there is one device, which is unhealthy.
[[nodiscard]] Offer offer_of(const v1::Class& which, bool healthy);
[[nodiscard]] v1beta1::ListAndWatchResponse devices_of(const Offer& offer);

// The answer for all containers of a request, or why it is refused.
struct Allocation {
  v1beta1::AllocateResponse answer;
  std::string reason;    // of a refusal, a word for metrics: "many" or "unknown"; empty: answered
  std::string sentence;  // of a refusal; arrives in `kubectl describe pod`
};
[[nodiscard]] Allocation allocate(const std::string& class_name, const std::string& resource,
                                  const v1beta1::AllocateRequest& request);

}  // namespace vrdma::cli::kubernetes
