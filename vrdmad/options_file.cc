#include "vrdmad/options_file.h"

#include <sstream>

#include "core/base/option_sentence.h"
#include "core/base/printable.h"

namespace vrdma::vrdmad {

namespace {

constexpr size_t kLongest = 32;    // name of an option
constexpr size_t kSentence = 300;  // characters
constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

}  // namespace

std::vector<CLI::ConfigItem> OptionsFile::from_config(std::istream& input) const {
  std::vector<CLI::ConfigItem> all;
  std::string text;
  for (unsigned line = 1; std::getline(input, text); ++line) {
    std::istringstream one(text);
    for (auto& item : CLI::ConfigTOML::from_config(one)) {
      const std::string& name = item.name;
      if (!item.parents.empty() || name.size() > kLongest ||
          name.find_first_not_of(kLetters) != std::string::npos)
        throw CLI::ConfigError(place(line) + "this is no option: write NAME = VALUE");
      const CLI::Option* const option = app_.get_option_no_throw("--" + name);
      if (option == nullptr || !option->get_configurable())
        throw CLI::ConfigError(place(line) + "there is no option '" + name + "'");
      if (!lines_.emplace(name, line).second)
        throw CLI::ConfigError(place(line) + "the option '" + name + "' was given before");
      if (!option->empty()) lines_[name] = 0;  // the command line takes precedence
      all.push_back(std::move(item));
    }
  }
  return all;
}

std::string OptionsFile::sentence(const CLI::ParseError& error) const {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return base::sentence_of(app_, error) + "; see --help";
  std::string text = base::sentence_of(app_, error);
  for (const auto& [name, line] : lines_)
    if (const size_t at = text.find("--" + name);
        line != 0 && at != std::string::npos &&
        text.find_first_of(kLetters, at + 2 + name.size()) != at + 2 + name.size())
      text = place(line) + text;
  return base::printable(text, kSentence);
}

std::string OptionsFile::place(unsigned line) const {
  return app_.get_config_ptr()->as<std::string>() + ", line " + std::to_string(line) + ": ";
}

}  // namespace vrdma::vrdmad
