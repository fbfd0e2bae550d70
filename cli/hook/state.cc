#include "cli/hook/state.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "api/hook_wire.h"
#include "core/base/nearest.h"
#include "core/base/printable.h"

namespace vrdma::cli::hook {

namespace {

using base::Result;
using Json = nlohmann::ordered_json;  // keeps the order of what add_hooks() returns

constexpr size_t kMostLibraryPaths = 32;
constexpr size_t kMostKey = 128;  // bytes of an annotation's key in a sentence

// nullptr: `object` is no object, or has no such member.
const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(name);
  return it == object.end() ? nullptr : &*it;
}

// A member that is a text; empty: there is none.
std::string text_in(const Json* object, const char* name) {
  const Json* const value = object == nullptr ? nullptr : member(*object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

Result<Json> parse_object(std::string_view text, const char* what) {
  Json parsed = Json::parse(text, nullptr, false);
  if (!parsed.is_object()) return base::fail(EBADMSG, std::string(what) + " is no JSON object");
  return parsed;
}

bool is_printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

std::string pod_of(const Json* annotations) {
  for (const char* const name : {"io.kubernetes.cri-o.SandboxID", "io.kubernetes.cri.sandbox-id"})
    if (auto id = text_in(annotations, name); !id.empty()) return id;
  return {};
}

bool is_sandbox(const Json* annotations) {
  return text_in(annotations, "io.kubernetes.cri-o.ContainerType") == "sandbox" ||
         text_in(annotations, "io.kubernetes.cri.container-type") == "sandbox";
}

Pod pod_in(const Json& config, const std::string& bundle) {
  const Json* const annotations = member(config, "annotations");
  const std::string cgroup = text_in(member(config, "linux"), "cgroupsPath");
  const auto is = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  Pod pod;
  if (is(bundle, "/io.containerd.runtime.v2.task/k8s.io/"))
    pod = {text_in(annotations, "io.kubernetes.cri.sandbox-namespace"),
           text_in(annotations, "io.kubernetes.cri.sandbox-name"),
           text_in(annotations, "io.kubernetes.cri.sandbox-uid"),
           text_in(annotations, "io.kubernetes.cri.container-name")};
  else if (is(cgroup, ":crio:") || is(cgroup, "/crio-"))
    pod = {text_in(annotations, "io.kubernetes.pod.namespace"),
           text_in(annotations, "io.kubernetes.pod.name"),
           text_in(annotations, "io.kubernetes.pod.uid"),
           text_in(annotations, "io.kubernetes.container.name")};
  using vrdma::hook::Request;
  const auto fits = [](const std::string& text, size_t room) {
    return text.size() < room && is_printable(text) && text.find(' ') == std::string::npos;
  };
  // Another client of the runtime may write any text into these annotations.
  const bool of_kubernetes = fits(pod.pod_namespace, sizeof Request::pod_namespace) &&
                             fits(pod.pod_name, sizeof Request::pod_name) &&
                             fits(pod.pod_uid, sizeof Request::pod_uid) &&
                             fits(pod.container_name, sizeof Request::container_name);
  return of_kubernetes ? pod : Pod();
}

// The bounding set is that of all programs of the container. Without one, the runtime decides.
bool may_have(const Json& config, const char* capability) {
  const Json* const process = member(config, "process");
  const Json* const all = process == nullptr ? nullptr : member(*process, "capabilities");
  const Json* const bounding = all == nullptr ? nullptr : member(*all, "bounding");
  if (bounding == nullptr || !bounding->is_array()) return all == nullptr || !all->is_object();
  return std::find(bounding->begin(), bounding->end(), capability) != bounding->end();
}

std::vector<std::string> library_path_in(const Json& config) {
  constexpr std::string_view kName = "LD_LIBRARY_PATH=";
  const Json* const process = member(config, "process");
  const Json* const environment = process == nullptr ? nullptr : member(*process, "env");
  std::vector<std::string> directories;
  if (environment == nullptr || !environment->is_array()) return directories;
  for (const auto& variable : *environment) {
    if (!variable.is_string()) continue;
    std::string_view rest = variable.get_ref<const std::string&>();
    if (!rest.starts_with(kName)) continue;
    rest.remove_prefix(kName.size());
    while (!rest.empty() && directories.size() < kMostLibraryPaths) {
      const auto directory = rest.substr(0, rest.find(':'));
      if (directory.starts_with('/')) directories.emplace_back(directory);
      rest.remove_prefix(std::min(directory.size() + 1, rest.size()));
    }
  }
  return directories;
}

// A container that has what nobody chose, because of a letter, shall not start. Other names mean
// something to other programs, perhaps.
Result<void> look_for_others(const Json* annotations, std::vector<std::string>* notes) {
  constexpr size_t kMostNotes = 8;
  static const std::string kBelow = "vrdma.io/";
  static const std::vector<std::string> kWishes{"netdev", "name", "quota"};
  if (annotations == nullptr || !annotations->is_object()) return {};
  for (const auto& [key, value] : annotations->items()) {
    if (!key.starts_with(kBelow)) continue;
    const std::string word = key.substr(kBelow.size());
    if (std::find(kWishes.begin(), kWishes.end(), word) != kWishes.end()) continue;
    const std::string named = "annotation '" + base::printable(key, kMostKey) + "'";
    if (const std::string meant = base::nearest(word, kWishes); !meant.empty())
      return base::fail(EINVAL, "there is no " + named + "; do you mean " + kBelow + meant + "?");
    if (notes->size() < kMostNotes)
      notes->push_back("the " + named +
                       " is ignored: a container may choose vrdma.io/netdev, vrdma.io/name and "
                       "vrdma.io/quota");
  }
  return {};
}

Json entry_of(const HookCommand& command, const char* stage) {
  return {{"path", command.program},
          {"args", arguments_of(command, stage)},
          {"env", {kEnvironment}},
          {"timeout", kTimeout}};
}

bool calls(const Json& config, const char* stage, const std::string& program) {
  const Json* const hooks = member(config, "hooks");
  const Json* const entries = hooks == nullptr ? nullptr : member(*hooks, stage);
  if (entries == nullptr || !entries->is_array()) return false;
  return std::any_of(entries->begin(), entries->end(),
                     [&program](const Json& entry) { return text_in(&entry, "path") == program; });
}

}  // namespace

Result<Container> parse_state(std::string_view json) {
  const auto state = parse_object(json, "the state of the container");
  if (!state) return base::pass(state.error());
  Container container;
  container.id = text_in(&*state, "id");
  container.bundle = text_in(&*state, "bundle");
  if (container.id.empty() || !is_printable(container.id))
    return base::fail(EBADMSG, "the state of the container has no valid id");
  if (!container.bundle.starts_with('/') || container.bundle.find('\0') != std::string::npos)
    return base::fail(EBADMSG, "the state of container " + container.id + " has no bundle");
  if (const Json* const pid = member(*state, "pid"); pid != nullptr && pid->is_number_unsigned()) {
    const auto number = pid->get<uint64_t>();
    if (number <= uint64_t{std::numeric_limits<pid_t>::max()})
      container.pid = static_cast<pid_t>(number);
  }
  // Runtimes say "creating" or "created" of one that they create, and runc "stopped" of one that it
  // restores, although it names a process.
  container.restored = text_in(&*state, "status") == "stopped" && container.pid != 0;
  const Json* const annotations = member(*state, "annotations");
  container.pod = pod_of(annotations);
  container.sandbox = is_sandbox(annotations);
  if (auto known = look_for_others(annotations, &container.notes); !known)
    return base::pass(std::move(known).error(), "container " + container.id);
  container.netdev = text_in(annotations, "vrdma.io/netdev");
  container.name = text_in(annotations, "vrdma.io/name");
  container.quota = text_in(annotations, "vrdma.io/quota");
  for (const auto* text : {&container.pod, &container.netdev, &container.name, &container.quota})
    if (!is_printable(*text))
      return base::fail(EINVAL, "an annotation of container " + container.id +
                                    " has characters that are not printable ASCII");
  return container;
}

Result<Config> parse_config(std::string_view json, const std::string& bundle) {
  const auto parsed = parse_object(json, "config.json");
  if (!parsed) return base::pass(parsed.error());
  Config config;
  config.root = text_in(member(*parsed, "root"), "path");
  if (config.root.empty() || config.root.find('\0') != std::string::npos)
    return base::fail(EBADMSG, "config.json names no root file system");
  if (!config.root.starts_with('/')) config.root = bundle + "/" + config.root;
  config.library_path = library_path_in(*parsed);
  config.network_admin = may_have(*parsed, "CAP_NET_ADMIN");
  config.pod = pod_in(*parsed, bundle);
  return config;
}

Result<std::optional<std::string>> add_hooks(std::string_view json, const HookCommand& command) {
  auto config = parse_object(json, "config.json");
  if (!config) return base::pass(std::move(config).error());
  if (is_sandbox(member(*config, "annotations")) ||
      calls(*config, "createRuntime", command.program))
    return std::nullopt;
  Json& hooks = (*config)["hooks"];
  if (!hooks.is_object()) hooks = Json::object();
  for (const char* const stage : kStages) {
    Json& entries = hooks[stage];
    if (!entries.is_array()) entries = Json::array();
    entries.push_back(entry_of(command, stage));
  }
  return config->dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace vrdma::cli::hook
