// A GID as people write the address that it is.
#pragma once

#include <string>

namespace vrdma::cli {

// Of the canonical text of a GID: 10.0.0.1, fd00::1.
inline std::string address_text(const std::string& gid) {
  static const std::string kMapped = "::ffff:";
  const bool mapped = gid.starts_with(kMapped) && gid.find('.') != std::string::npos;
  return mapped ? gid.substr(kMapped.size()) : gid;
}

}  // namespace vrdma::cli
