// Sentences about commands that are refused.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>

#include "core/base/error.h"

namespace vrdma::pvrdma {

[[nodiscard]] inline tl::unexpected<base::Error> unknown(const char* what, uint32_t handle) {
  return base::fail(EINVAL, std::string("there is no ") + what + " " + std::to_string(handle));
}
[[nodiscard]] inline tl::unexpected<base::Error> too_many(const char* what) {
  return base::fail(ENOMEM, std::string("the guest has as many ") + what + " as there can be");
}

}  // namespace vrdma::pvrdma
