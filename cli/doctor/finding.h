// The findings of `vrdmactl doctor`, one line each.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace vrdma::cli::doctor {

enum class State { kOk, kProblem, kUnknown };

struct Finding {
  std::string check;  // a word: "library", "vdevice", "socket", ...
  State state = State::kOk;
  std::string text;    // one sentence without a full stop
  std::string remedy;  // empty: nothing to do
};
using Findings = std::vector<Finding>;

[[nodiscard]] size_t problems_in(const Findings& findings);
// No check had a result.
[[nodiscard]] bool nothing_known(const Findings& findings);

// "ok       library  ...", and "; REMEDY" after a problem.
void print_table(const Findings& findings, std::ostream& out);
// [{"check": "library", "state": "ok", "text": "...", "remedy": ""}, ...]
void print_json(const Findings& findings, std::ostream& out);

}  // namespace vrdma::cli::doctor
