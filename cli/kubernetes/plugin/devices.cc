#include "cli/kubernetes/plugin/devices.h"

#include <algorithm>

#include "cli/kubernetes/plugin/names.h"
#include "core/base/option_check.h"

namespace vrdma::cli::kubernetes {

Offer offer_of(const v1::Class& which, bool healthy) {
  const uint64_t room = uint64_t{which.given()} + which.free();
  const uint64_t fitting = std::min<uint64_t>(which.devices(), room);
  const uint64_t wanted = std::max<uint64_t>(fitting, which.given());
  Offer offer;
  offer.class_name = which.name();
  offer.devices = static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 1, kMostDevices));
  offer.healthy = healthy && wanted > 0;
  if (which.has_numa_node()) offer.numa_node = which.numa_node();
  return offer;
}

v1beta1::ListAndWatchResponse devices_of(const Offer& offer) {
  v1beta1::ListAndWatchResponse list;
  for (uint32_t i = 0; i < offer.devices; ++i) {
    auto& device = *list.add_devices();
    device.set_id(device_id(offer.class_name, i));
    device.set_health(offer.healthy ? "Healthy" : "Unhealthy");
    if (offer.numa_node) device.mutable_topology()->add_nodes()->set_id(*offer.numa_node);
  }
  return list;
}

Allocation allocate(const std::string& class_name, const std::string& resource,
                    const v1beta1::AllocateRequest& request) {
  const std::string quoted = "class '" + class_name + "'";
  Allocation result;
  for (const auto& container : request.container_requests()) {
    if (container.devices_ids_size() != 1)
      return {{},
              "many",
              "a container gets one vdevice of " + quoted + ": ask for " + resource +
                  ": 1, and set its quota in the class"};
    if (const std::string& id = container.devices_ids(0); !is_device_of(class_name, id))
      return {{},
              "unknown",
              "device " + base::in_quotes(id) + " is not one of " + quoted +
                  ": delete the pod, so that the kubelet chooses another device"};
    auto& answer = *result.answer.add_container_responses();
    answer.add_cdi_devices()->set_name(cdi_name(class_name));
    (*answer.mutable_annotations())[cdi_annotation(class_name)] = cdi_name(class_name);
  }
  return result;
}

}  // namespace vrdma::cli::kubernetes
