// Connections to a vdevice that say nothing: how many there may be, and for how long. Each costs
// the daemon descriptors that nobody pays for. The libraries speak at once.
#pragma once

#include <chrono>
#include <cstddef>

#include "vrdmad/worker/session.h"

namespace vrdma::vrdmad {

constexpr size_t kMaxSilent = 64;
constexpr std::chrono::seconds kMaxSilence(10);

// The right to one more connection. If there are too many, the one that has been silent for longest
// ends; if none is, there is no such right.
[[nodiscard]] base::Result<provisioning::Charge> make_room(Vdevice& vdevice, Sessions& sessions);

// Ends those that have been silent for too long. Whether others may have to end later.
bool end_silent(Sessions& sessions);

}  // namespace vrdma::vrdmad
