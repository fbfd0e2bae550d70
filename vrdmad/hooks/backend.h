// What the hooks' socket needs of the registry of vdevices. Errors are as in AdminBackend.
#pragma once

#include <sys/types.h>

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
  // same namespace and of the same label kClassLabel, if there is one; otherwise one that the
  // container has already, or a new one. The name in `spec` is changed if it is taken in the
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
    // Kinds that the container chose and the class does not limit: not above what the budgets give
    // to a new vdevice. EPERM otherwise.
    std::set<std::string> lowered;
  };
  [[nodiscard]] virtual base::Result<Given> give(const VdevSpec& spec, const netns::Netns& netns,
                                                 const Terms& terms) = 0;
  // The container has it no more. Any thread; does not wait.
  virtual void take_back(uint64_t vdevice, const Container& container) = 0;

  static constexpr const char* kClassLabel = "class";
  static constexpr const char* kUserLabel = "user";  // the owner, if it is not root
  // Of a pod of Kubernetes, if a hook of root said so.
  static constexpr const char* kNamespaceLabel = "pod_namespace";
  static constexpr const char* kPodNameLabel = "pod_name";
};

}  // namespace vrdma::vrdmad
