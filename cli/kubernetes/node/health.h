// Whether containers can get vdevices of a class, and if not, why.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <optional>
#include <string>

namespace vrdma::cli::kubernetes {

struct Unhealthy {
  std::string reason;    // a word, for metrics: "vrdmad", "class", "gone", "parent" or "cdi"
  std::string sentence;  // for the operator
  bool operator==(const Unhealthy&) const = default;
};

// What vrdmad says of a class.
struct ClassNews {
  std::string unreachable;  // why vrdmad cannot be reached; empty: it can
  std::string file_error;   // why vrdmad cannot read the file of classes; empty: it can
  bool in_file = true;      // false: the class was in the file before
  // As vrdmad described the class last. While it has a mistake, what it offers is what it offered
  // before.
  v1::Class last;
};

// `cdi`: why a container engine cannot use the class's CDI device; empty: it can. Of several
// reasons the first of Unhealthy.reason.
[[nodiscard]] std::optional<Unhealthy> judge(const ClassNews& news, const std::string& cdi);

}  // namespace vrdma::cli::kubernetes
