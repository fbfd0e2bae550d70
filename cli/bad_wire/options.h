// The options that say what a bad wire does. vrdma-sandbox has them too.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace vrdma::cli::bad_wire {

struct Faults;

// Adds --loss, --delay etc. to `app`; they write into `faults` when it parses.
void add_options(CLI::App& app, Faults& faults);

// The options that mean these faults.
[[nodiscard]] std::vector<std::string> words_of(const Faults& faults);

}  // namespace vrdma::cli::bad_wire
