// Names that operators choose: they become file names and words of a command line.
#pragma once

#include <algorithm>
#include <string_view>

namespace vrdma::base {

constexpr size_t kMaxName = 63;  // IBV_SYSFS_NAME_MAX without the terminating zero

// The rest of a sentence about a name that is_name() rejects.
constexpr std::string_view kNameRule =
    "is not a valid name: it needs 1 to 63 letters, digits, '_', '-' or '.', and begins with a "
    "letter, a digit or '_'";

[[nodiscard]] inline bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !text.empty() && text.size() <= kMaxName && text[0] != '-' && text[0] != '.' &&
         std::all_of(text.begin(), text.end(), fits);
}

// Names of tenants and fabrics. That of a Kubernetes namespace is "k8s/" and its name, so that no
// class and no vdevice of another kind has the same by accident.
constexpr std::string_view kOfKubernetes = "k8s/";

[[nodiscard]] inline bool is_group_name(std::string_view text) {
  if (text.starts_with(kOfKubernetes)) text.remove_prefix(kOfKubernetes.size());
  return is_name(text);
}

}  // namespace vrdma::base
