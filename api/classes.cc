#include "api/classes.h"

#include <net/if.h>
#include <pwd.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <utility>

#include "core/base/file_change.h"
#include "core/base/name.h"
#include "core/base/nearest.h"
#include "core/base/printable.h"
#include "provisioning/permission.h"

namespace vrdma::api {

using base::fail;
using base::pass;
using base::printable;
using base::Result;

namespace {

using Words = std::vector<std::string>;

// In the keys `tenant` and `fabric`.
constexpr const char* kByUser = "user";
constexpr const char* kByNamespace = "namespace";
constexpr const char* kByTenant = "tenant";  // in the key `fabric`
constexpr std::array<const char*, 3> kAnnotations{"quota", "netdev", "name"};

std::string user_name(uid_t owner) { return "uid" + std::to_string(owner); }
std::string of_kubernetes(const std::string& name) {
  return std::string(base::kOfKubernetes) + name;
}

std::string in_quotes(const std::string& text) { return "'" + printable(text) + "'"; }

std::string joined(const Words& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

Result<std::string> one_word(const Words& words) {
  if (words.size() != 1 || words[0].empty())
    return fail(EINVAL, "it has one value, not " + in_quotes(joined(words)));
  return words[0];
}

Result<void> set_name(const Words& words, std::string* name) {
  auto word = one_word(words);
  if (!word) return pass(std::move(word.error()));
  if (!base::is_name(*word))
    return fail(EINVAL, in_quotes(*word) + " " + std::string(base::kNameRule));
  *name = *word;
  return {};
}

// A name, or a word that stands for another.
Result<void> set_group(const Words& words, std::string* name, Class::Rule* rule) {
  if (auto set = set_name(words, name); !set) return set;
  *rule = *name == kByUser        ? Class::Rule::kByUser
          : *name == kByNamespace ? Class::Rule::kByNamespace
                                  : Class::Rule::kNamed;
  return {};
}

Result<void> set_fabric(const Words& words, Class* of) {
  if (auto set = set_group(words, &of->fabric, &of->fabric_rule); !set) return set;
  if (of->fabric == kByTenant) of->fabric.clear();
  return {};
}

Result<void> set_reach(const Words& words, std::string* reach) {
  auto word = one_word(words);
  if (!word) return pass(std::move(word.error()));
  if (*word != "host" && *word != "network" && *word != "wire")
    return fail(EINVAL, in_quotes(*word) + " is none of host, network and wire");
  *reach = *word;
  return {};
}

Result<void> set_peers(const Words& words, Class* of) {
  if (words.empty()) return fail(EINVAL, "a value is missing: prefixes, or `all`");
  of->peers.emplace();
  if (words == Words{"all"}) return {};
  auto prefixes = gid::parse_prefixes(words);
  if (!prefixes) return pass(std::move(prefixes.error()));
  of->peers = std::move(*prefixes);
  return {};
}

Result<void> set_memory(const Words& words, bool* reached) {
  auto word = one_word(words);
  if (!word) return pass(std::move(word.error()));
  if (*word != "in-place" && *word != "reached")
    return fail(EINVAL, in_quotes(*word) + " is neither in-place nor reached");
  *reached = *word == "reached";
  return {};
}

Result<void> set_number(const Words& words, uint64_t* number) {
  auto word = one_word(words);
  if (!word) return pass(std::move(word.error()));
  const char* const last = word->data() + word->size();
  const auto [end, error] = std::from_chars(word->data(), last, *number);
  if (error == std::errc() && end == last) return {};
  return fail(EINVAL, in_quotes(*word) + " is not a number");
}

Result<void> set_devices(const Words& words, uint32_t* devices) {
  constexpr uint64_t kMost = 10'000;  // a kubelet gets the whole list at each change
  uint64_t number = 0;
  if (auto set = set_number(words, &number); !set) return set;
  if (number == 0 || number > kMost)
    return fail(EINVAL, std::to_string(number) + " is not a number from 1 to 10000");
  *devices = static_cast<uint32_t>(number);
  return {};
}

Result<void> set_flag(const Words& words, bool* flag) {
  auto word = one_word(words);
  if (!word) return pass(std::move(word.error()));
  const std::string lower = CLI::detail::to_lower(*word);
  for (const auto& [text, value] : {std::pair{"yes", true},
                                    {"true", true},
                                    {"on", true},
                                    {"no", false},
                                    {"false", false},
                                    {"off", false}})
    if (lower == text) {
      *flag = value;
      return {};
    }
  return fail(EINVAL, in_quotes(*word) + " is neither yes nor no");
}

Result<void> set_quota(const Words& words, std::vector<provisioning::Setting>* quota) {
  auto settings = provisioning::parse_settings(joined(words));
  if (!settings) return pass(std::move(settings.error()));
  if (auto known = provisioning::understand(*settings); !known)
    return pass(std::move(known.error()));
  *quota = std::move(*settings);
  return {};
}

Result<void> set_netdev(const Words& words, std::string* netdev) {
  auto word = one_word(words);
  if (!word) return pass(std::move(word.error()));
  if (word->size() >= IFNAMSIZ || word->find('/') != std::string::npos)
    return fail(EINVAL, in_quotes(*word) + " is not the name of a network interface");
  *netdev = *word;
  return {};
}

Result<void> set_allow(const Words& words, std::vector<std::string>* allow) {
  auto known = provisioning::Permissions::of(words);
  if (!known) return pass(std::move(known.error()));
  *allow = words;
  return {};
}

Result<uid_t> find_user(const std::string& user) {
  uid_t uid = 0;
  const char* const last = user.data() + user.size();
  const auto [end, error] = std::from_chars(user.data(), last, uid);
  if (!user.empty() && error == std::errc() && end == last) return uid;
  std::array<char, 4096> buffer;
  passwd entry{}, *found = nullptr;
  if (::getpwnam_r(user.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr)
    return fail(EINVAL, "there is no user " + in_quotes(user) + ": use a name, a number or *");
  return found->pw_uid;
}

Result<void> set_users(const Words& words, Class* of) {
  for (const auto& word : words) {
    if (word == "*") {
      of->all_users = true;
      continue;
    }
    auto user = find_user(word);
    if (!user) return pass(std::move(user.error()));
    of->users.insert(*user);
  }
  return {};
}

Result<void> set_annotations(const Words& words, std::set<std::string>* annotations) {
  for (const auto& word : words) {
    if (std::find(kAnnotations.begin(), kAnnotations.end(), word) == kAnnotations.end())
      return fail(EINVAL, "there is no annotation " + in_quotes(word) +
                              ": containers may choose quota, netdev and name");
    annotations->insert(word);
  }
  return {};
}

using Setter = std::function<Result<void>(const Words&, Class*)>;

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> all{
      {"tenant", [](const Words& words,
                    Class* of) { return set_group(words, &of->tenant, &of->tenant_rule); }},
      {"fabric", set_fabric},
      {"peers", set_peers},
      {"reach", [](const Words& words, Class* of) { return set_reach(words, &of->reach); }},
      {"devices", [](const Words& words, Class* of) { return set_devices(words, &of->devices); }},
      {"memory",
       [](const Words& words, Class* of) { return set_memory(words, &of->memory_reached); }},
      {"quota", [](const Words& words, Class* of) { return set_quota(words, &of->quota); }},
      {"max_quota", [](const Words& words, Class* of) { return set_quota(words, &of->max_quota); }},
      {"parent", [](const Words& words, Class* of) { return set_name(words, &of->parent); }},
      {"netdev", [](const Words& words, Class* of) { return set_netdev(words, &of->netdev); }},
      {"allow", [](const Words& words, Class* of) { return set_allow(words, &of->allow); }},
      {"name", [](const Words& words, Class* of) { return set_name(words, &of->device); }},
      {"users", set_users},
      {"host_network",
       [](const Words& words, Class* of) { return set_flag(words, &of->host_network); }},
      {"per_container",
       [](const Words& words, Class* of) { return set_flag(words, &of->per_container); }},
      {"most", [](const Words& words, Class* of) { return set_number(words, &of->most); }},
      {"annotations",
       [](const Words& words, Class* of) { return set_annotations(words, &of->annotations); }},
  };
  return all;
}

Result<void> set(const CLI::ConfigItem& item, std::set<std::string>* seen, Class* of) {
  const auto setter = setters().find(item.name);
  if (setter == setters().end()) {
    Words keys;
    for (const auto& [key, its] : setters()) keys.push_back(key);
    const std::string meant = base::nearest(item.name, keys);
    return fail(EINVAL, "there is no key " + in_quotes(item.name) +
                            (meant.empty() ? "" : "; do you mean " + meant + "?") + "; there are " +
                            joined(keys));
  }
  if (!seen->insert(item.name).second) return fail(EINVAL, item.name + ": it is set twice");
  // A list may have spaces beside its commas.
  Words words;
  for (const auto& input : item.inputs)
    for (auto& word : CLI::detail::split_up(input)) words.push_back(std::move(word));
  if (auto done = setter->second(words, of); !done) return pass(std::move(done.error()), item.name);
  return {};
}

// What the parser would take for something else.
Result<void> check_lines(const std::string& text) {
  std::istringstream input(text);
  unsigned number = 1;
  for (std::string line; std::getline(input, line); ++number) {
    const std::string word = CLI::detail::trim_copy(line);
    const std::string place = "line " + std::to_string(number);
    if (!base::is_utf8(line)) return fail(EINVAL, place + " is not UTF-8: " + in_quotes(word));
    if (word.empty() || word[0] == '#' || word[0] == ';') continue;
    if (word[0] == '[') {
      const bool closed = word.find(']') != std::string::npos;
      if (!closed || word[1] == '[' || word[1] == ']')
        return fail(EINVAL,
                    place + ": " + in_quotes(word) + " does not begin a class: write [NAME]");
    } else if (word.find('=') == std::string::npos) {
      return fail(EINVAL, place + ": " + in_quotes(word) + " is no key: write KEY = VALUE");
    }
  }
  return {};
}

// What no single key shows.
Result<void> check_whole(const Class& its) {
  if ((its.reach == "network" || its.reach == "wire") && its.tenant.empty() && its.fabric.empty())
    return fail(EINVAL,
                "reach: each vdevice has a fabric of its own, which cannot reach the "
                "network: set fabric or tenant");
  if (its.peers && its.reach != "network" && its.reach != "wire")
    return fail(EINVAL, "peers: set reach to network or wire, too");
  return {};
}

// A name in a CDI device begins and ends so, too.
Result<void> check_class_name(const std::string& name) {
  const auto is_inside_only = [](char c) { return c == '_' || c == '-' || c == '.'; };
  if (base::is_name(name) && !is_inside_only(name.front()) && !is_inside_only(name.back()))
    return {};
  return fail(EINVAL, "class " + in_quotes(name) +
                          " is not a valid name: it needs 1 to 63 letters, digits, '_', '-' or "
                          "'.', and begins and ends with a letter or a digit");
}

}  // namespace

std::string Class::tenant_of(const ClassUser& user) const {
  if (tenant_rule == Rule::kByUser) return user_name(user.owner);
  return tenant_rule == Rule::kByNamespace ? of_kubernetes(user.pod_namespace) : tenant;
}

std::string Class::fabric_of(const ClassUser& user) const {
  if (fabric_rule == Rule::kByNamespace) return of_kubernetes(user.pod_namespace);
  const bool by_user =
      fabric_rule == Rule::kByUser || (fabric_rule == Rule::kDefault && user.owner != 0);
  return by_user ? user_name(user.owner) : fabric;
}

Result<Classes> Classes::parse(const std::string& text, const std::string& path) {
  Classes classes;
  classes.path_ = path;
  classes.all_[kDefaultClass].name = kDefaultClass;
  if (auto whole = check_lines(text); !whole) return pass(std::move(whole.error()), path);
  CLI::ConfigTOML file;
  file.parentSeparator('\n');  // names have dots
  std::istringstream input(text);
  std::map<std::string, std::set<std::string>> seen;
  std::set<std::string> begun;
  // The first mistake of each class.
  const auto mistake = [&classes, &path](const std::string& name, base::Error error) {
    classes.wrong_.try_emplace(name, std::move(error).in(path + ": class '" + name + "'"));
  };
  for (const auto& item : file.from_config(input)) {
    if (item.name == "--") continue;  // the end of a section
    const std::string name = item.parents.empty() ? kDefaultClass : item.parents.front();
    if (auto valid = check_class_name(name); !valid) return pass(std::move(valid.error()), path);
    Class& its = classes.all_[name];
    its.name = name;
    if (item.name == "++") {
      if (!begun.insert(name).second) mistake(name, {EINVAL, "it appears twice"});
    } else if (auto done = set(item, &seen[name], &its); !done) {
      mistake(name, std::move(done.error()));
    }
  }
  for (const auto& [name, its] : classes.all_)
    if (auto whole = check_whole(its); !whole) mistake(name, std::move(whole.error()));
  for (const auto& [name, error] : classes.wrong_) classes.all_.erase(name);
  return classes;
}

Result<Classes> Classes::read(const std::string& path) {
  constexpr std::streamoff kMost = 1 << 20;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return parse("", path);
    return base::fail_errno("read " + path);
  }
  if (!S_ISREG(status.st_mode) || status.st_size > kMost)
    return fail(EINVAL, path + " is not a file of at most 1 MiB");
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return fail(EACCES, "read " + path + ": it cannot be opened");
  return parse(text.str(), path);
}

Result<Class> Classes::find(const std::string& name) const {
  if (const auto its = wrong_.find(name); its != wrong_.end()) return pass(its->second);
  const auto found = all_.find(name);
  if (found == all_.end())
    return fail(ENOENT, "there is no class " + in_quotes(name) + " in " + path_);
  return found->second;
}

Result<Classes> ClassFile::read() {
  struct stat now {};
  const bool there = ::stat(path_.c_str(), &now) == 0;
  const std::lock_guard lock(mutex_);
  if (there && classes_ && base::is_unchanged(seen_, now)) return *classes_;
  auto classes = Classes::read(path_);
  seen_ = now;
  classes_.reset();
  // A mistake may end without a change of the file: a user may be made meanwhile.
  if (there && classes && classes->wrong().empty()) classes_ = *classes;
  return classes;
}

}  // namespace vrdma::api
