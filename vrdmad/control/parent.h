// The resource that a vdevice is carved from.
//
// `soft` is built in: its vdevices need only this host. The other kind is a kernel ibdev (mlx5_0,
// rxe0): it requires a certain netdev, and gives its vdevices limits and, by the `hca` transport, a
// way to other hosts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/capabilities.h"

namespace vrdma::vrdmad {

class Parent {
 public:
  virtual ~Parent() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::string kind() const = 0;    // "built in", "ibdev"
  [[nodiscard]] virtual std::string detail() const = 0;  // for people
  // The kernel's device, or empty.
  [[nodiscard]] virtual std::string ibdev() const { return {}; }
  // Of its vdevices.
  [[nodiscard]] virtual verbs::Capabilities capabilities() const = 0;
  // Whether a vdevice may use `netdev` (as named in its netns); the error says why not.
  [[nodiscard]] virtual base::Result<void> admit(const std::string& netdev) const = 0;
};

// The parents of this host, `soft` first.
[[nodiscard]] std::vector<std::unique_ptr<Parent>> find_parents();

}  // namespace vrdma::vrdmad
