#include "cli/mounts/plan.h"

#include <algorithm>
#include <set>

namespace vrdma::cli {

namespace {

const std::string kClass = "/sys/class";
const std::string kVirtual = "/sys/devices/virtual", kVdevices = kVirtual + "/vrdma";
const std::string kDevices = "/dev/infiniband";
const std::string kIbdevs = "infiniband", kUverbs = "infiniband_verbs";  // below kClass

Mount step(Mount::Kind kind, const std::string& to, const std::string& from = "") {
  Mount mount;
  mount.kind = kind;
  mount.to = to;
  mount.from = from;
  return mount;
}

// Restores the contents of `directory`, which is covered or new.
void keep(const std::string& directory, const std::vector<Entry>& entries,
          const std::set<std::string>& without, Plan& plan) {
  for (const auto& entry : entries) {
    if (without.contains(entry.name)) continue;
    const std::string path = directory + "/" + entry.name;
    if (entry.kind == Entry::Kind::kLink) {
      plan.push_back(step(Mount::Kind::kLink, path, entry.target));
      continue;
    }
    plan.push_back(step(Mount::Kind::kBind, path, path));
    plan.back().own = true;
    plan.back().file = entry.kind == Entry::Kind::kFile;
  }
}

// A tmpfs with the previous contents of `directory`.
void cover(const std::string& directory, const std::vector<Entry>& entries, Plan& plan) {
  plan.push_back(step(Mount::Kind::kTmpfs, directory));
  keep(directory, entries, {}, plan);
}

std::vector<Entry> sorted(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

std::set<std::string> names_of(const std::optional<std::vector<Entry>>& entries) {
  std::set<std::string> names;
  if (entries)
    for (const auto& entry : *entries) names.insert(entry.name);
  return names;
}

}  // namespace

Plan plan_sysfs(const std::vector<std::string>& below, bool read_only) {
  Plan plan{step(Mount::Kind::kSysfs, "/sys")};
  plan.back().read_only = read_only;
  for (const auto& point : below) {
    plan.push_back(step(Mount::Kind::kBind, point, point));
    plan.back().own = true;
    plan.back().optional = true;
  }
  return plan;
}

Plan plan_devices(const Look& look, std::vector<ShownVdevice> vdevices) {
  Plan plan;
  const auto ibdevs = look(kClass + "/" + kIbdevs), uverbs = look(kClass + "/" + kUverbs);
  const auto classes = {std::pair{kIbdevs, &ibdevs}, {kUverbs, &uverbs}};
  // A missing class directory requires that all of /sys/class is covered.
  const bool whole = !ibdevs || !uverbs;
  if (whole) {
    plan.push_back(step(Mount::Kind::kTmpfs, kClass));
    keep(kClass, sorted(look(kClass).value_or(std::vector<Entry>())), {kIbdevs, kUverbs}, plan);
  }
  for (const auto& [name, entries] : classes) {
    const std::string path = kClass + "/" + name;
    const auto held = sorted(entries->value_or(std::vector<Entry>()));
    if (!whole) {
      cover(path, held, plan);
      continue;
    }
    plan.push_back(step(Mount::Kind::kDirectory, path));
    keep(path, held, {}, plan);
  }
  // The vdevices of an earlier run are in a directory that is read-only since, so it is made anew.
  plan.push_back(step(Mount::Kind::kTmpfs, kVirtual));
  keep(kVirtual, sorted(look(kVirtual).value_or(std::vector<Entry>())), {"vrdma"}, plan);
  plan.push_back(step(Mount::Kind::kDirectory, kVdevices));
  keep(kVdevices, sorted(look(kVdevices).value_or(std::vector<Entry>())), {}, plan);
  plan.push_back(step(Mount::Kind::kDirectory, kDevices));
  cover(kDevices, sorted(look(kDevices).value_or(std::vector<Entry>())), plan);

  const auto known = names_of(ibdevs), taken = names_of(uverbs);
  size_t number = 0;
  std::sort(vdevices.begin(), vdevices.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (const auto& vdevice : vdevices) {
    if (known.contains(vdevice.name)) continue;
    while (taken.contains("uverbs" + std::to_string(number))) ++number;
    // Read-only: not even root may write to vrdmad's files.
    for (const auto& [from, to] :
         {std::pair{vdevice.tree + "/device", kVdevices + "/" + vdevice.name},
          {vdevice.tree + "/infiniband_verbs",
           kClass + "/" + kUverbs + "/uverbs" + std::to_string(number)}}) {
      plan.push_back(step(Mount::Kind::kBind, to, from));
      plan.back().read_only = true;
    }
    plan.push_back(
        step(Mount::Kind::kLink, kClass + "/" + kIbdevs + "/" + vdevice.name,
             "../../devices/virtual/vrdma/" + vdevice.name + "/infiniband/" + vdevice.name));
    ++number;
    plan.push_back(step(Mount::Kind::kBind, kDevices + "/" + vdevice.name, "/dev/null"));
    plan.back().own = true;
    plan.back().file = true;
  }
  return plan;
}

}  // namespace vrdma::cli
