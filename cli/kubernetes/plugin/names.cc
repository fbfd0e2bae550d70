#include "cli/kubernetes/plugin/names.h"

#include <algorithm>
#include <cstdio>

namespace vrdma::cli::kubernetes {

namespace {

constexpr size_t kMostOfId = 63;
constexpr size_t kDigits = 10;  // of the largest index

// FNV-1a: every version of the plugin must find the same names.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string id_prefix(const std::string& class_name) {
  return shorten(class_name, kMostOfId - 1 - kDigits, '~') + "-";
}

}  // namespace

std::string shorten(std::string_view text, size_t most, char mark) {
  if (text.size() <= most) return std::string(text);
  char tail[18];
  (void)std::snprintf(tail, sizeof tail, "%c%016llx", mark,
                      static_cast<unsigned long long>(hash_of(text)));
  return std::string(text.substr(0, most - 17)) + tail;
}

std::string resource_name(const std::string& domain, const std::string& class_name) {
  return domain + "/" + class_name;
}

std::string device_id(const std::string& class_name, uint32_t index) {
  return id_prefix(class_name) + std::to_string(index);
}

bool is_device_of(const std::string& class_name, std::string_view id) {
  const std::string prefix = id_prefix(class_name);
  if (!id.starts_with(prefix)) return false;
  id.remove_prefix(prefix.size());
  return !id.empty() && id.size() <= kDigits &&
         std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string cdi_name(const std::string& class_name) { return "vrdma.io/device=" + class_name; }

std::string cdi_annotation(const std::string& class_name) {
  // Letters, digits, '-', '_' and '.' are allowed, so the mark is not '~'.
  return "cdi.k8s.io/vrdma_" + shorten(class_name, kMostOfId - sizeof "vrdma_" + 1, '.');
}

}  // namespace vrdma::cli::kubernetes
