// What the API server says, in JSON of any form: nothing is taken for granted.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace vrdma::cli::kubernetes {

// The member `name` of an object; null if there is none, or `of` is no object.
[[nodiscard]] inline const nlohmann::json& member(const nlohmann::json& of, const char* name) {
  static const nlohmann::json kNone;
  if (!of.is_object()) return kNone;
  const auto it = of.find(name);
  return it == of.end() ? kNone : *it;
}

// The same, of a text; empty if it is none.
[[nodiscard]] inline std::string text_of(const nlohmann::json& of, const char* name) {
  const auto& its = member(of, name);
  return its.is_string() ? its.get<std::string>() : "";
}

// The elements; none if it is no list.
[[nodiscard]] inline const nlohmann::json& elements_of(const nlohmann::json& of, const char* name) {
  static const nlohmann::json kNone = nlohmann::json::array();
  const auto& its = member(of, name);
  return its.is_array() ? its : kNone;
}

}  // namespace vrdma::cli::kubernetes
