#include "core/base/log.h"

#include <cstdio>
#include <utility>

namespace vrdma::base {

namespace {

std::function<void(LogLevel, const std::string&)>& sink() {
  static std::function<void(LogLevel, const std::string&)> all;
  return all;
}

}  // namespace

void log(LogLevel level, const std::string& sentence) {
  if (const auto& to = sink()) return to(level, sentence);
  (void)std::fprintf(stderr, "%s\n", sentence.c_str());
}

void set_log(std::function<void(LogLevel, const std::string&)> to) { sink() = std::move(to); }

}  // namespace vrdma::base
