// What the hooks' socket needs of the registry of vdevices. Errors are as in AdminBackend.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "core/base/error.h"
#include "netns/netns.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

class HookBackend {
 public:
  struct Given {
    uint64_t vdevice = 0;
    std::string name;
    std::string tree;     // path of its sysfs tree
    std::string sockets;  // path of the directory of its namespace
    bool added = false;   // false: the container had it before
  };
  virtual ~HookBackend() = default;

  // Gives a vdevice to the one container in `spec`, and has that on disk. If `shared`, one of the
  // same namespace and of the same class, and share of a claim, if there is one; otherwise one that
  // the container has already, or a new one. The name in `spec` is changed if it is taken in the
  // namespace. Without a netdev in `spec`, the vdevice is on that of the default route, or on the
  // only one that has an address; it is pending until there is such a netdev. Any thread but the
  // control thread; blocks. EDQUOT: the owner's containers have `most` already.
  struct Terms {
    bool shared = false;
    uid_t owner = 0;    // of the namespace; may read the tree, as root may
    uint64_t most = 0;  // containers of one owner with vdevices of the class; not of root
    // The fabric is set to reach the network; kHost: EPERM while it does. Absent: as it is.
    std::optional<Reach> reach;
    // Those that the fabric gets on the network, with `reach`. Absent: as they are.
    std::optional<std::vector<gid::Prefix>> peers;
    // By which the container gets it: joined to that of the same share in its namespace. EAGAIN:
    // the claim is not the same any more.
    std::optional<ClaimSpec> claim;
    // Kinds that the container chose and the class does not limit: not above what the budgets give
    // to a new vdevice. EPERM otherwise.
    std::set<std::string> lowered;
  };
  [[nodiscard]] virtual base::Result<Given> give(const VdevSpec& spec, const netns::Netns& netns,
                                                 const Terms& terms) = 0;
  // ENOENT: there is no such claim; EAGAIN: it is being changed. As give().
  [[nodiscard]] virtual base::Result<ClaimSpec> find_claim(const std::string& uid) = 0;
  // A container, and the user that its hook runs as, got none. Any thread; does not wait.
  virtual void refused(const std::string& container, uid_t user, const std::string& reason) = 0;
  // The container has it no more. Any thread; does not wait.
  virtual void take_back(uint64_t vdevice, const Container& container) = 0;

  // Labels that a vdevice of a container has, if there is a value.
  static constexpr const char* kContainerLabel = "container";
  static constexpr const char* kPodLabel = "pod";  // as the runtime calls it
  static constexpr const char* kClassLabel = "class";
  static constexpr const char* kUserLabel = "user";  // the owner, if it is not root
  // "yes": programs of a container of its may exchange its netdev and the addresses.
  static constexpr const char* kNetworkAdminLabel = "network_admin";
  // Of a pod of Kubernetes, if a hook of root said so.
  static constexpr const char* kNamespaceLabel = "pod_namespace";
  static constexpr const char* kPodNameLabel = "pod_name";
  static constexpr const char* kPodUidLabel = "pod_uid";
  static constexpr const char* kContainerNameLabel = "container_name";
  static constexpr const char* kClaimLabel = "claim";  // its uid
  static constexpr const char* kShareLabel = "share";
  static constexpr std::array kOwnLabels{kContainerLabel, kPodLabel,          kClassLabel,
                                         kUserLabel,      kNetworkAdminLabel, kNamespaceLabel,
                                         kPodNameLabel,   kPodUidLabel,       kContainerNameLabel,
                                         kClaimLabel,     kShareLabel};
};

}  // namespace vrdma::vrdmad
