// Words that a person pastes into a shell.
#pragma once

#include <string>

namespace vrdma::cli {

[[nodiscard]] inline std::string for_shell(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

}  // namespace vrdma::cli
