// One entry of the kernel's table of neighbours (ip-neighbour(8)) in this network namespace.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::base {

class NeighbourTable {
 public:
  struct Entry {
    uint16_t state = 0;  // NUD_... of linux/neighbour.h
    std::optional<std::array<uint8_t, 6>> mac;
  };

  [[nodiscard]] static Result<NeighbourTable> open();
  // `address`: 4 or 16 bytes, in network order. ENOENT: there is no entry. Asks for this entry
  // alone, so the size of the table does not matter (since Linux 5.0).
  [[nodiscard]] Result<Entry> find(std::span<const uint8_t> address, unsigned ifindex) const;

 private:
  explicit NeighbourTable(Fd socket) : socket_(std::move(socket)) {}
  Fd socket_;
};

}  // namespace vrdma::base
