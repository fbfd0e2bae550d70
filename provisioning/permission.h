// What a vdevice may do only because its operator said so: what a tenant could harm others with.
// No vdevice has any of it unless it was made with it; none is given or taken later.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::provisioning {

enum class Permission : uint8_t {
  kRawPacket,    // "raw-packet": whole Ethernet frames from and to its netdev
  kQp1,          // "qp1": a queue pair 1 of its own hands, for management datagrams
  kUserfaultfd,  // "userfaultfd": /dev/userfaultfd, by which a program can hold the kernel's copies
};

class Permissions {
 public:
  // In any order. EINVAL for a name that does not exist (the sentence lists those that do) or is
  // given twice.
  [[nodiscard]] static base::Result<Permissions> of(const std::vector<std::string>& names);

  [[nodiscard]] bool has(Permission permission) const {
    return (bits_ >> static_cast<unsigned>(permission) & 1) != 0;
  }
  // In the order of Permission.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  uint32_t bits_ = 0;
};

}  // namespace vrdma::provisioning
