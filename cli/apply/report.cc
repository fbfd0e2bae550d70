#include "cli/apply/report.h"

#include <nlohmann/json.hpp>

namespace vrdma::cli::apply {

namespace {

const char* text_of(Action action) {
  switch (action) {
    case Action::kCreate:
      return "create";
    case Action::kChange:
      return "change";
    case Action::kRecreate:
      return "recreate";
    case Action::kDelete:
      return "delete";
  }
  return "";
}

}  // namespace

std::string text_of(const Change& change) {
  return std::string(text_of(change.action)) + " " + change.object + " " + change.name;
}

void print(std::ostream& out, Format format, const std::vector<Change>& changes,
           const std::vector<std::string>& failures) {
  const auto failure = [&](size_t i) { return failures.empty() ? std::string() : failures[i]; };
  if (format == Format::kJson) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (size_t i = 0; i < changes.size(); ++i)
      rows.push_back({{"action", text_of(changes[i].action)},
                      {"object", changes[i].object},
                      {"name", changes[i].name},
                      {"details", changes[i].details},
                      {"error", failure(i)}});
    out << rows.dump(2) << '\n';
    return;
  }
  for (size_t i = 0; i < changes.size(); ++i) {
    if (!failure(i).empty()) continue;
    out << text_of(changes[i]) << '\n';
    for (const auto& detail : changes[i].details) out << "    " << detail << '\n';
  }
}

}  // namespace vrdma::cli::apply
