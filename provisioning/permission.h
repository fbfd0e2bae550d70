// Permissions that an operator must grant explicitly, because a tenant could harm others with them.
// They are set when a vdevice is created and never change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::provisioning {

enum class Permission : uint8_t {
  kRawPacket,    // "raw-packet": whole Ethernet frames to and from its netdev
  kQp1,          // "qp1": its own queue pair 1, for management datagrams
  kUserfaultfd,  // "userfaultfd": /dev/userfaultfd, which lets a program stall the kernel's copies
};

class Permissions {
 public:
  // In any order. EINVAL for an unknown name (the sentence lists all names) or a duplicate.
  [[nodiscard]] static base::Result<Permissions> of(const std::vector<std::string>& names);

  [[nodiscard]] bool has(Permission permission) const {
    return (bits_ >> static_cast<unsigned>(permission) & 1) != 0;
  }
  // As a message has them; nothing: one is unknown.
  [[nodiscard]] static std::optional<Permissions> of_bits(uint32_t bits);
  [[nodiscard]] uint32_t bits() const { return bits_; }
  // In the order of Permission.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  uint32_t bits_ = 0;
};

}  // namespace vrdma::provisioning
