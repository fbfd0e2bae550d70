#include "vrdmad/hooks/policy.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "core/base/name.h"
#include "provisioning/kind.h"
#include "vrdmad/hooks/backend.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;
using provisioning::Setting;

namespace {

Result<void> may_use(const api::Class& its, const HookCaller& caller) {
  const std::string name = "class '" + its.name + "'";
  if (!its.is_for(caller.uid))
    return fail(EPERM, "user " + std::to_string(caller.uid) + " may not use " + name +
                           ": add the user to its key `users` in classes.conf");
  if (caller.uid != 0 && caller.uid != caller.owner)
    return fail(EPERM, "the network namespace belongs to user " + std::to_string(caller.owner) +
                           ", not to user " + std::to_string(caller.uid) +
                           ": start the container as the user that owns it");
  if (caller.host_network && !its.host_network)
    return fail(EPERM, "the container uses the host's network, which " + name +
                           " does not allow: give it a network of its own, or set host_network in "
                           "classes.conf");
  if (its.is_for_pods() && !caller.is_trusted())
    return fail(EPERM, name +
                           " goes by the namespaces of Kubernetes, which only root's runtimes "
                           "may tell: user " +
                           std::to_string(caller.uid) + " must use another class");
  return {};
}

// The namespace becomes part of a name.
Result<void> check_pod(const api::Class& its, const std::string& pod_namespace) {
  if (!its.is_for_pods() || base::is_name(pod_namespace)) return {};
  const std::string name = "class '" + its.name + "'";
  if (pod_namespace.empty())
    return fail(EPERM, "the container is in no pod of Kubernetes, by whose namespace " + name +
                           " goes: use another class");
  return fail(EINVAL,
              "the namespace of the pod, '" + pod_namespace + "', " + std::string(base::kNameRule));
}

void add_labels(const HookRequest& asked, VdevSpec* spec) {
  for (const auto& [key, value] : {std::pair{HookBackend::kNamespaceLabel, &asked.pod_namespace},
                                   {HookBackend::kPodNameLabel, &asked.pod_name},
                                   {HookBackend::kPodUidLabel, &asked.pod_uid},
                                   {HookBackend::kContainerNameLabel, &asked.container_name}})
    if (!value->empty()) spec->labels[key] = *value;
}

Result<void> may_choose(const api::Class& its, const std::string& annotation,
                        const std::string& value) {
  if (value.empty() || its.annotations.contains(annotation)) return {};
  return fail(EPERM, "annotation vrdma.io/" + annotation + ": class '" + its.name +
                         "' lets no container choose it; remove the annotation, or allow it with "
                         "`annotations` in classes.conf");
}

uint64_t limit_in(const std::vector<Setting>& settings, const std::string& kind,
                  uint64_t otherwise) {
  for (const auto& setting : settings)
    if (setting.kind == kind) return setting.limit;
  return otherwise;
}

// What a container may choose of a kind; `otherwise`: the class has no limit of it.
uint64_t most_of(const api::Class& its, const std::string& kind, uint64_t otherwise) {
  return limit_in(its.max_quota, kind, limit_in(its.quota, kind, otherwise));
}

// What the container chooses replaces the class's limits. Without a maximum it may only choose less
// than it would get.
Result<std::vector<Setting>> quota_of(const api::Class& its, const std::string& chosen) {
  auto settings = provisioning::parse_settings(chosen);
  if (!settings) return pass(std::move(settings.error()), "annotation vrdma.io/quota");
  if (auto known = provisioning::understand(*settings); !known)
    return pass(std::move(known.error()), "annotation vrdma.io/quota");
  std::vector<Setting> quota = its.quota;
  for (const auto& setting : *settings) {
    const uint64_t initial = provisioning::traits(*provisioning::find_kind(setting.kind)).initial;
    const uint64_t most = most_of(its, setting.kind, initial);
    if (setting.limit > most)
      return fail(EPERM, "annotation vrdma.io/quota: class '" + its.name + "' allows at most " +
                             setting.kind + "=" + std::to_string(most) +
                             ": ask for less, or set max_quota in classes.conf");
    std::erase_if(quota, [&](const auto& one) { return one.kind == setting.kind; });
    quota.push_back(setting);
  }
  return quota;
}

}  // namespace

Result<VdevSpec> grant(const api::Class& its, const HookRequest& asked, const HookCaller& caller) {
  if (auto may = may_use(its, caller); !may) return pass(std::move(may.error()));
  for (const auto& [annotation, value] :
       {std::pair{"quota", &asked.quota}, {"netdev", &asked.netdev}, {"name", &asked.name}})
    if (auto may = may_choose(its, annotation, *value); !may) return pass(std::move(may.error()));
  if (!asked.name.empty() && !base::is_name(asked.name))
    return fail(EINVAL,
                "annotation vrdma.io/name: '" + asked.name + "' " + std::string(base::kNameRule));
  if (auto pod = check_pod(its, asked.pod_namespace); !pod) return pass(std::move(pod.error()));
  auto quota = quota_of(its, asked.quota);
  if (!quota) return pass(std::move(quota.error()));
  VdevSpec spec;
  spec.name = asked.name.empty() ? its.device : asked.name;
  spec.netdev = asked.netdev.empty() ? its.netdev : asked.netdev;
  spec.parent = its.parent;
  const api::ClassUser user{caller.owner, caller.is_trusted() ? asked.pod_namespace : ""};
  spec.tenant = its.tenant_of(user);
  spec.fabric = its.fabric_of(user);
  for (const auto& setting : *quota) spec.quota.push_back({setting.kind, setting.limit});
  spec.allow = its.allow;
  spec.labels = {{HookBackend::kContainerLabel, asked.container},
                 {HookBackend::kClassLabel, its.name}};
  if (caller.owner != 0) spec.labels[HookBackend::kUserLabel] = std::to_string(caller.owner);
  if (!asked.pod.empty()) spec.labels[HookBackend::kPodLabel] = asked.pod;
  if (asked.network_admin) spec.labels[HookBackend::kNetworkAdminLabel] = "yes";
  if (caller.is_trusted()) add_labels(asked, &spec);
  return spec;
}

std::set<std::string> only_lowered(const api::Class& its, const VdevSpec& granted) {
  std::set<std::string> kinds;
  for (const auto& setting : granted.quota)
    if (most_of(its, setting.kind, UINT64_MAX) == UINT64_MAX) kinds.insert(setting.kind);
  return kinds;
}

}  // namespace vrdma::vrdmad
