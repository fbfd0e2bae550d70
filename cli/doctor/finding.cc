#include "cli/doctor/finding.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/printable.h"

namespace vrdma::cli::doctor {

namespace {

const char* word_of(State state) {
  switch (state) {
    case State::kOk:
      return "ok";
    case State::kProblem:
      return "problem";
    case State::kUnknown:
      return "unknown";
  }
  return "";
}

}  // namespace

size_t problems_in(const Findings& findings) {
  return static_cast<size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [](const Finding& one) { return one.state == State::kProblem; }));
}

bool nothing_known(const Findings& findings) {
  return std::all_of(findings.begin(), findings.end(),
                     [](const Finding& one) { return one.state == State::kUnknown; });
}

void print_table(const Findings& findings, std::ostream& out) {
  size_t width = 0;
  for (const auto& one : findings) width = std::max(width, one.check.size());
  for (const auto& one : findings) {
    std::string line = word_of(one.state);
    line.resize(9, ' ');
    line += one.check;
    line.resize(9 + width + 2, ' ');
    line += one.text;
    if (!one.remedy.empty()) line += "; " + one.remedy;
    // The text may contain foreign words: file names, output of the loader.
    out << base::printable(line) << '\n';
  }
}

void print_json(const Findings& findings, std::ostream& out) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& one : findings)
    all.push_back({{"check", one.check},
                   {"state", word_of(one.state)},
                   {"text", one.text},
                   {"remedy", one.remedy}});
  out << all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

}  // namespace vrdma::cli::doctor
