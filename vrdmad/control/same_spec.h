// Whether a vdevice is what somebody asks for: `vrdmactl vdev create --if-absent`.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

// Labels are the operator's words about a vdevice; they mean nothing to the daemon. At most
// kMaxLabels; a key is 1 to kMaxLabelKey letters, digits, '_', '-', '.' or '/', and begins with a
// letter or a digit; a value is at most kMaxLabelValue printable characters of ASCII.
inline constexpr size_t kMaxLabels = 16, kMaxLabelKey = 63, kMaxLabelValue = 255;
[[nodiscard]] base::Result<void> check_labels(const std::map<std::string, std::string>& labels);

// `spec` in the form in which it is kept and compared: prefixes as they are printed, permissions
// and quota in order. EINVAL for what is none of these.
[[nodiscard]] base::Result<VdevSpec> canonical(const VdevSpec& spec);

// How `wanted` differs from what a vdevice was made with, as the end of a sentence ("fabric f, not
// g"); none: it does not. Both canonical. The names of the vdevice and of its namespace are not
// compared: they are what it was found by.
[[nodiscard]] std::optional<std::string> difference(const VdevSpec& made, const VdevSpec& wanted);

}  // namespace vrdma::vrdmad
