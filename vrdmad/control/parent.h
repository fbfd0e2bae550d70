// What a vdevice is carved from.
//
// `soft` is built in: vdevices of it need nothing but this host. A kernel ibdev (mlx5_0, rxe0) is
// the other kind: it looks at the netdev that it must sit on, and gives its vdevices limits and,
// by the `hca` transport, a way to hosts beyond this one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::vrdmad {

class Parent {
 public:
  virtual ~Parent() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::string kind() const = 0;    // "built in", "ibdev"
  [[nodiscard]] virtual std::string detail() const = 0;  // for people
  // The kernel's device that it is, or nothing.
  [[nodiscard]] virtual std::string ibdev() const { return {}; }
  // May a vdevice on `netdev` (as named in its netns) be made of it? The error says why not.
  [[nodiscard]] virtual base::Result<void> admit(const std::string& netdev) const = 0;
};

// The parents of this host, `soft` first.
[[nodiscard]] std::vector<std::unique_ptr<Parent>> find_parents();

}  // namespace vrdma::vrdmad
