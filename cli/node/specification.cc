#include "cli/node/specification.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

namespace vrdma::cli::node {

using base::pass;
using base::Result;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Result<std::vector<std::string>> Specification::update() {
  std::vector<std::string> sentences;
  std::map<std::string, std::string> mistakes;
  const auto classes = classes_.read();
  if (!classes) mistakes[""] = classes.error().message();
  if (classes)
    for (const auto& [name, error] : classes->wrong()) mistakes[name] = error.message();
  for (const auto& [name, sentence] : mistakes)
    if (told_[name] != sentence) sentences.push_back(sentence);
  told_ = std::move(mistakes);
  if (!classes) return sentences;

  std::vector<std::string> names;
  std::string all;
  for (const auto& [name, its] : classes->all()) {
    names.push_back(name);
    all += (all.empty() ? "" : ", ") + name;
  }
  const auto text = cdi_specification(names, hook_);
  if (!text) return pass(text.error());
  if (text_of(path_) == *text) return sentences;
  if (auto written = replace_file(path_, *text); !written) return pass(std::move(written.error()));
  sentences.push_back(path_ + ": written, with the classes " + all);
  return sentences;
}

Result<void> Specification::remove() const {
  const auto specification = nlohmann::json::parse(text_of(path_), nullptr, false);
  if (!specification.is_object() || specification.value("kind", "") != kCdiKind) return {};
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) return base::fail_errno("remove " + path_);
  return {};
}

}  // namespace vrdma::cli::node
