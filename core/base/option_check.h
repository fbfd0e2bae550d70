// Checks of what a user gives for an option or an argument, in the form that CLI11 wants: each
// returns a function of the text, whose result is empty or the end of a sentence that begins with
// the name of the option.
#pragma once

#include <charconv>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/printable.h"

namespace vrdma::base {

using OptionCheck = std::function<std::string(const std::string&)>;

constexpr size_t kMostOfWord = 64;  // that is repeated in a sentence

inline std::string in_quotes(const std::string& word) {
  return "'" + printable(word, kMostOfWord) + "'";
}

inline std::string not_empty(const std::string& text) { return text.empty() ? "it is empty" : ""; }

inline std::string is_absolute_path(const std::string& text) {
  return text.starts_with('/') ? "" : in_quotes(text) + " is not an absolute path";
}

inline OptionCheck one_of(std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& text) -> std::string {
    std::string all;
    for (const auto& word : words) {
      if (word == text) return {};
      all += (all.empty() ? "" : ", ") + word;
    }
    return in_quotes(text) + " is not one of " + all;
  };
}

// `range`: the numbers that are valid and their unit, such as "1 to 64".
inline OptionCheck number(double least, double most, const char* range) {
  return [=](const std::string& text) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (whole && value >= least && value <= most) return {};  // not NaN
    return in_quotes(text) + " is not " + range;
  };
}

}  // namespace vrdma::base
