// The file of --config, with errors that name it and the line.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace vrdma::vrdmad {

// Reads lines NAME = VALUE for the options of `app`. Each option at most once, and no sections.
// What is no option is not repeated in the error, because the file may be another than was meant.
class OptionsFile : public CLI::ConfigTOML {
 public:
  explicit OptionsFile(const CLI::App& app) : app_(app) {}

  // Throws CLI::ConfigError.
  [[nodiscard]] std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
  // What app.parse() found: printable, one line of bounded length. It names the line if the value
  // of an option is from there.
  [[nodiscard]] std::string sentence(const CLI::ParseError& error) const;

 private:
  [[nodiscard]] std::string place(unsigned line) const;

  const CLI::App& app_;
  mutable std::map<std::string, unsigned> lines_;  // of the options
};

}  // namespace vrdma::vrdmad
