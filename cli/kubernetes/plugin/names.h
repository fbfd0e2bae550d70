// The names that the kubelet and container engines know a class by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vrdma::cli::kubernetes {

inline constexpr char kDefaultDomain[] = "vrdma.io";

// `text` if it has at most `most` characters. Otherwise its beginning, `mark` and 16 hexadecimal
// digits of a hash of it, together `most` characters.
[[nodiscard]] std::string shorten(std::string_view text, size_t most, char mark);

// What a container asks for: "vrdma.io/small".
[[nodiscard]] std::string resource_name(const std::string& domain, const std::string& class_name);

// "small-7"; at most 63 characters.
[[nodiscard]] std::string device_id(const std::string& class_name, uint32_t index);
// Whether it is a device_id() of the class, of any index: the kubelet may allocate a device that
// has just left the list.
[[nodiscard]] bool is_device_of(const std::string& class_name, std::string_view id);

// "vrdma.io/device=small", in every domain of resources.
[[nodiscard]] std::string cdi_name(const std::string& class_name);
// "cdi.k8s.io/vrdma_small"; at most 63 characters behind the slash.
[[nodiscard]] std::string cdi_annotation(const std::string& class_name);

}  // namespace vrdma::cli::kubernetes
