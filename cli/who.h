// Whom a vdevice belongs to, for people; and the references that vrdmactl prints.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vrdma::cli {

// NAMESPACE/NAME of the pod of Kubernetes that has it; empty: none.
[[nodiscard]] std::string pod_of(const v1::Vdev& vdev);
// The first 12 digits of the id of its (first) container, as podman(1) prints it; empty: none.
[[nodiscard]] std::string container_of(const v1::Vdev& vdev);
// The pod, else the container, else pid:N of its owner or of its namespace; empty: none.
[[nodiscard]] std::string who_of(const v1::Vdev& vdev);
// By the vdevice's id.
[[nodiscard]] std::map<uint64_t, std::string> whose(const std::vector<v1::Vdev>& vdevs);

[[nodiscard]] std::map<std::string, std::string> sorted_labels(
    const google::protobuf::Map<std::string, std::string>& labels);

// References to vdevices that the daemon resolves (vrdma/v1/admin.proto), as short as possible.
class References {
 public:
  // All vdevices of the daemon.
  explicit References(const std::vector<v1::Vdev>& all);
  // NAME; NETNS/NAME if another vdevice has that name; id:N if that is ambiguous too.
  [[nodiscard]] std::string of(const v1::Vdev& vdev) const;

 private:
  std::map<std::string, int> names_, long_names_;  // vdevices of each
};

}  // namespace vrdma::cli
