// The ICRC of packets between two addresses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/verbs/gid.h"
#include "core/wire/icrc.h"

namespace vrdma::transport::roce {

// Begins the ICRC of a packet of `size` bytes, from its BTH to the ICRC. What follows the BTH must
// be added. `id`: of the IPv4 header, which forbids fragments, as RoCE v2 senders do.
[[nodiscard]] wire::Icrc begin_icrc(const verbs::Gid& source, const verbs::Gid& destination,
                                    uint16_t source_port, size_t size, uint16_t id,
                                    const uint8_t* bth);

}  // namespace vrdma::transport::roce
