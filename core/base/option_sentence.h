// What a program says of a command line that CLI11 refuses: the word, what is wrong with it, and
// what to do. CLI11's own texts name words in reverse, and no options.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/nearest.h"
#include "core/base/option_check.h"

namespace vrdma::base {

// Of the words that no option takes, the first, for it explains the others. `where`: " in 'list'",
// of an option.
inline std::string sentence_of_unknown(const CLI::App& app, const std::string& word,
                                       const std::string& where = {}) {
  if (!word.starts_with("-")) return in_quotes(word) + " is one argument too many";
  std::vector<std::string> names;
  const auto add = [&names](const CLI::App& of) {
    for (const CLI::Option* option : of.get_options())
      if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  };
  add(app);
  for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; }))
    if (group->get_name().empty()) add(*group);  // a group of options
  const std::string meant = nearest(word.substr(0, word.find('=')), names);
  return "there is no option " + in_quotes(word) + where +
         (meant.empty() ? "" : "; do you mean " + meant + "?");
}

// Without "see --help".
inline std::string sentence_of(const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = error.what();
  if (const auto words = app.remaining();
      dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !words.empty())
    return sentence_of_unknown(app, words[0]);
  if (text == "A subcommand is required") {
    std::string names;
    for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
      names += (names.empty() ? "" : ", ") + one->get_name();
    return "a command is missing; there are " + names;
  }
  // "--log-level: At Most 1 required but received 2"
  constexpr std::string_view kOnce = ": At Most 1 required but received ";
  if (const size_t at = text.find(kOnce); at != std::string::npos)
    return text.substr(0, at) + " is given " + text.substr(at + kOnce.size()) +
           " times: once is enough";
  // "--tenant: 1 required TENANT missing"
  constexpr std::string_view kMiddle = ": 1 required ", kEnd = " missing";
  if (const size_t at = text.find(kMiddle); at != std::string::npos && text.ends_with(kEnd)) {
    const size_t type = at + kMiddle.size();
    return text.substr(0, at) +
           " wants a value: " + text.substr(type, text.size() - kEnd.size() - type);
  }
  return text;
}

}  // namespace vrdma::base
