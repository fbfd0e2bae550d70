#include "cli/rdma/report.h"

#include <nlohmann/json.hpp>

namespace vrdma::cli::rdma {

namespace {

std::string quote(const std::string& value) {
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void Report::begin_row() {
  if (is_json())
    rows_.emplace_back();
  else if (!text_.empty())
    text_ += '\n';
}

void Report::in_json(const std::string& name, const std::string& value, bool quoted) {
  if (!is_json()) return;
  std::string& row = rows_.back();
  if (!row.empty()) row += ',';
  if (pretty()) row += "\n        ";
  row += quote(name) + (pretty() ? ": " : ":") + (quoted ? quote(value) : value);
}

void Report::text(const std::string& name, const std::string& value) {
  if (value.empty()) return;
  in_text(name + " " + value + " ");
  in_json(name, value, true);
}

void Report::number(const std::string& name, const std::string& value) {
  if (value.empty()) return;
  in_text(name + " " + value + " ");
  in_json(name, value, false);
}

void Report::list(const std::string& name, const std::vector<std::string>& values) {
  std::string words, quoted;
  for (const auto& value : values) {
    words += (words.empty() ? "" : ", ") + value;
    quoted += (quoted.empty() ? "" : ",") + quote(value);
  }
  in_text("\n    " + name + ": <" + words + ">");
  in_json(name, pretty() ? "[ " + quoted + " ]" : "[" + quoted + "]", false);
}

std::string Report::str() const {
  if (!is_json()) return text_.empty() ? "" : text_ + "\n";
  std::string all = pretty() ? "[ " : "[";
  for (size_t i = 0; i < rows_.size(); ++i)
    all += (i > 0 ? ",{" : "{") + rows_[i] + (pretty() ? "\n    }" : "}");
  return all + (pretty() ? " ]\n" : "]\n");
}

}  // namespace vrdma::cli::rdma
