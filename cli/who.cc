#include "cli/who.h"

namespace vrdma::cli {

namespace {

std::string label_of(const v1::Vdev& vdev, const char* key) {
  const auto it = vdev.labels().find(key);
  return it != vdev.labels().end() ? it->second : std::string();
}

}  // namespace

std::string pod_of(const v1::Vdev& vdev) {
  const std::string space = label_of(vdev, "pod_namespace"), name = label_of(vdev, "pod_name");
  return space.empty() || name.empty() ? "" : space + "/" + name;
}

std::string container_of(const v1::Vdev& vdev) {
  constexpr size_t kDigits = 12;
  const std::string id =
      vdev.containers_size() > 0 ? vdev.containers(0).id() : label_of(vdev, "container");
  return id.substr(0, kDigits);
}

std::string who_of(const v1::Vdev& vdev) {
  if (auto pod = pod_of(vdev); !pod.empty()) return pod;
  if (auto container = container_of(vdev); !container.empty()) return container;
  if (vdev.has_owner()) return "pid:" + std::to_string(vdev.owner().pid());
  return vdev.netns().starts_with("pid:") ? vdev.netns() : "";
}

std::map<uint64_t, std::string> whose(const std::vector<v1::Vdev>& vdevs) {
  std::map<uint64_t, std::string> all;
  for (const auto& vdev : vdevs) all[vdev.id()] = who_of(vdev);
  return all;
}

std::map<std::string, std::string> sorted_labels(
    const google::protobuf::Map<std::string, std::string>& labels) {
  return {labels.begin(), labels.end()};
}

References::References(const std::vector<v1::Vdev>& all) {
  for (const auto& vdev : all) {
    ++names_[vdev.name()];
    ++long_names_[vdev.netns() + "/" + vdev.name()];
    if (const auto pod = pod_of(vdev); !pod.empty()) ++long_names_[pod];
  }
}

std::string References::of(const v1::Vdev& vdev) const {
  const auto is_unique = [](const std::map<std::string, int>& names, const std::string& name) {
    const auto it = names.find(name);
    return it != names.end() && it->second == 1;
  };
  if (is_unique(names_, vdev.name())) return vdev.name();
  const std::string text = vdev.netns() + "/" + vdev.name();
  return is_unique(long_names_, text) ? text : "id:" + std::to_string(vdev.id());
}

}  // namespace vrdma::cli
