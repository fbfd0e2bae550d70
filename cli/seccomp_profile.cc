#include "cli/seccomp_profile.h"

#include <linux/userfaultfd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

namespace vrdma::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr char kCall[] = "userfaultfd", kPermit[] = "SCMP_ACT_ALLOW";

bool is_rule(const Json& rule) {
  const auto is_text = [](const Json& one) { return one.is_string(); };
  return rule.is_object() && rule.contains("names") && rule["names"].is_array() &&
         std::all_of(rule["names"].begin(), rule["names"].end(), is_text) &&
         rule.contains("action") && rule["action"].is_string();
}

bool is_profile(const Json& profile) {
  return profile.is_object() && profile.contains("defaultAction") &&
         profile["defaultAction"].is_string() && profile.contains("syscalls") &&
         profile["syscalls"].is_array() &&
         std::all_of(profile["syscalls"].begin(), profile["syscalls"].end(), is_rule);
}

bool names_it(const Json& rule) {
  return std::find(rule["names"].begin(), rule["names"].end(), kCall) != rule["names"].end();
}

Json rule_of_ours() {
  return {{"names", {kCall}},
          {"action", kPermit},
          {"args",
           {{{"index", 0},
             {"value", UFFD_USER_MODE_ONLY},  // the mask
             {"valueTwo", UFFD_USER_MODE_ONLY},
             {"op", "SCMP_CMP_MASKED_EQ"}}}},
          {"comment", "with UFFD_USER_MODE_ONLY, for registered memory of vrdma"}};
}

// What the library needs, whatever the container's capabilities are.
bool permits_it(const Json& rule) {
  const auto has = [&](const char* key) { return rule.contains(key) && !rule[key].empty(); };
  return rule == rule_of_ours() || (names_it(rule) && rule["action"] == kPermit && !has("args") &&
                                    !has("includes") && !has("excludes"));
}

}  // namespace

base::Result<std::string> with_userfaultfd(const std::string& profile) {
  Json json = Json::parse(profile, nullptr, false);
  if (!is_profile(json))
    return base::fail(EINVAL,
                      "this is no seccomp profile of a container engine, which is a JSON object "
                      "with defaultAction and a list of syscalls, each with names and an action");
  Json& rules = json["syscalls"];
  const bool permits_by_default = json["defaultAction"] == kPermit;
  const bool is_named = std::any_of(rules.begin(), rules.end(), names_it);
  if (std::any_of(rules.begin(), rules.end(), permits_it) || (permits_by_default && !is_named))
    return profile;
  if (permits_by_default)
    return base::fail(EINVAL,
                      "it permits all system calls but those it names, and names userfaultfd: take "
                      "the name out, or start from the profile of an engine");
  // A rule without arguments would win.
  Json others = Json::array();
  for (Json& rule : rules) {
    if (rule["action"] != kPermit) std::erase(rule["names"].get_ref<Json::array_t&>(), kCall);
    if (!rule["names"].empty()) others.push_back(std::move(rule));
  }
  others.push_back(rule_of_ours());
  rules = std::move(others);
  return json.dump(2) + "\n";
}

}  // namespace vrdma::cli
