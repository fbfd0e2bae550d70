// The resource that a vdevice is carved from.
//
// `soft` is built in: its vdevices need only this host. The other kind is a kernel ibdev (mlx5_0,
// rxe0): it requires a certain netdev, and gives its vdevices limits and, by the `hca` transport, a
// way to other hosts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/capabilities.h"
#include "gid/prefix.h"
#include "netns/link.h"
#include "provisioning/kind.h"
#include "transport/selector.h"

namespace vrdma::vrdmad {

// Which addresses of its netdev a parent lets a vdevice use, among those that the operator does,
// besides the default GID of the MAC.
struct GidRules {
  size_t room = verbs::kMaxGids;      // different GIDs at most
  std::vector<gid::Prefix> prefixes;  // empty: all addresses
};

// What a vdevice has of its parent.
struct ParentShare {
  verbs::Capabilities capabilities = verbs::kSoftCapabilities;
  // Of each kind at most; the vdevice's own limits may be lower.
  provisioning::Limits limits = provisioning::ceilings();
  GidRules gids;
  // Destroyed when the vdevice is deleted and its worker uses the share no more.
  std::shared_ptr<void> open;
};

// The control thread only.
class Parent {
 public:
  virtual ~Parent() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::string kind() const = 0;    // "built in", "ibdev"
  [[nodiscard]] virtual std::string detail() const = 0;  // for people
  [[nodiscard]] virtual std::string state() const = 0;   // "ACTIVE", "DOWN"
  // None: it belongs to none, or to all.
  [[nodiscard]] virtual std::optional<uint32_t> numa_node() const { return {}; }
  // The kernel's device, or empty.
  [[nodiscard]] virtual std::string ibdev() const { return {}; }
  // A share for a vdevice on `link` that wants `limits`, unless the share's are lower. The
  // error says why the netdev or the limits are impossible.
  [[nodiscard]] virtual base::Result<ParentShare> open(const netns::Link& link,
                                                       const provisioning::Limits& limits) = 0;
};

// The parents of this host, `soft` first.
[[nodiscard]] std::vector<std::unique_ptr<Parent>> find_parents();

}  // namespace vrdma::vrdmad
