// The options that say what a bad wire does. vrdma-sandbox has them too.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace vrdma::cli::bad_wire {

struct Faults;

// Adds --loss, --delay etc. to `app`; they write into `faults` when it parses.
void add_options(CLI::App& app, Faults& faults);

// Empty, or a sentence: of these options, one was given that changes nothing without another.
[[nodiscard]] std::string without_effect(const CLI::App& app);

// The options that mean these faults.
[[nodiscard]] std::vector<std::string> words_of(const Faults& faults);

}  // namespace vrdma::cli::bad_wire
