#include "core/base/label.h"

#include <algorithm>

#include "core/base/printable.h"

namespace vrdma::base {

namespace {

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool fits_key(char c) { return is_alphanumeric(c) || c == '_' || c == '-' || c == '.' || c == '/'; }

bool fits_value(char c) { return c >= ' ' && c <= '~'; }

}  // namespace

Result<void> check_labels(const std::map<std::string, std::string>& labels) {
  if (labels.size() > kMaxLabels)
    return fail(EINVAL, std::to_string(labels.size()) +
                            " labels are too many: a vdevice has at most " +
                            std::to_string(kMaxLabels));
  for (const auto& [key, value] : labels) {
    if (key.empty() || key.size() > kMaxLabelKey || !is_alphanumeric(key[0]) ||
        !std::all_of(key.begin(), key.end(), fits_key))
      return fail(EINVAL,
                  "'" + printable(key.substr(0, 2 * kMaxLabelKey)) +
                      "' is not a valid label key: it needs 1 to 63 letters, digits, '_', '-', "
                      "'.' or '/', and begins with a letter or a digit");
    if (value.size() > kMaxLabelValue || !std::all_of(value.begin(), value.end(), fits_value))
      return fail(EINVAL, "the value of label '" + key +
                              "' is invalid: it may have at most 255 printable ASCII characters");
  }
  return {};
}

}  // namespace vrdma::base
