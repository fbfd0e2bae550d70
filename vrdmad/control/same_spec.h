// Compares a vdevice with a request for one: `vrdmactl vdev create --if-absent`.
#pragma once

#include <optional>
#include <string>

#include "core/base/error.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

// `spec` in the form that is stored and compared: prefixes as printed, permissions and quota
// sorted. EINVAL if any of these is invalid.
[[nodiscard]] base::Result<VdevSpec> canonical(const VdevSpec& spec);

// The first difference between the spec of a vdevice and `wanted`, as the end of a sentence
// ("fabric f, not g"); none: they are equal. Both must be canonical. The names of the vdevice and
// its namespace are not compared, because they were used to find it.
[[nodiscard]] std::optional<std::string> difference(const VdevSpec& made, const VdevSpec& wanted);

}  // namespace vrdma::vrdmad
