#include "vrdmad/control/directory.h"

#include <charconv>

#include "core/base/printable.h"

namespace vrdma::vrdmad {

using base::fail;
using base::printable;
using base::Result;

namespace {

constexpr size_t kNamed = 8;  // candidates in an error

// Removes the id from a map's set, and the set if it is empty.
template <class Map, class Key>
void erase_from(Map& map, const Key& key, uint64_t id) {
  const auto it = map.find(key);
  if (it == map.end()) return;
  it->second.erase(id);
  if (it->second.empty()) map.erase(it);
}

}  // namespace

void Directory::add(uint64_t id, Entry entry) {
  remove(id);
  by_name_[entry.name].insert(id);
  by_text_[{entry.netns, entry.name}].insert(id);
  if (!entry.pod.empty()) by_pod_[entry.pod].insert(id);
  for (const auto& container : entry.containers) by_container_[container].insert(id);
  if (entry.cookie != 0) {
    Space& space = spaces_[entry.cookie];
    space.by_name.emplace(entry.name, id);
    space.numbers.insert(entry.number);
  }
  Fabric& fabric = fabrics_[entry.fabric];
  fabric.members.insert(id);
  ++fabric.tenants[entry.tenant];
  entries_.emplace(id, std::move(entry));
}

void Directory::remove(uint64_t id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  const Entry& entry = it->second;
  erase_from(by_name_, entry.name, id);
  erase_from(by_text_, std::pair(entry.netns, entry.name), id);
  erase_from(by_pod_, entry.pod, id);
  for (const auto& container : entry.containers) erase_from(by_container_, container, id);
  if (const auto space = spaces_.find(entry.cookie); space != spaces_.end()) {
    const auto named = space->second.by_name.find(entry.name);
    if (named != space->second.by_name.end() && named->second == id) {
      space->second.by_name.erase(named);
      space->second.numbers.erase(entry.number);
    }
    if (space->second.by_name.empty()) spaces_.erase(space);
  }
  Fabric& fabric = fabrics_[entry.fabric];
  fabric.members.erase(id);
  if (--fabric.tenants[entry.tenant] == 0) fabric.tenants.erase(entry.tenant);
  if (fabric.members.empty()) fabrics_.erase(entry.fabric);
  entries_.erase(it);
}

void Directory::set_containers(uint64_t id, std::vector<std::string> containers) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  for (const auto& container : it->second.containers) erase_from(by_container_, container, id);
  for (const auto& container : containers) by_container_[container].insert(id);
  it->second.containers = std::move(containers);
}

std::set<uint64_t> Directory::of_container(const std::string& prefix) const {
  // A whole id is no prefix of others, whatever ids users choose.
  if (const auto whole = by_container_.find(prefix); whole != by_container_.end())
    return whole->second;
  std::set<uint64_t> ids;
  if (prefix.empty()) return ids;
  for (auto it = by_container_.lower_bound(prefix);
       it != by_container_.end() && it->first.starts_with(prefix); ++it)
    ids.insert(it->second.begin(), it->second.end());
  return ids;
}

Result<uint64_t> Directory::only(const std::set<uint64_t>& ids,
                                 const std::string& reference) const {
  if (ids.size() == 1) return *ids.begin();
  return fail(ENOTUNIQ, "'" + printable(reference) + "' means " + std::to_string(ids.size()) +
                            " vdevices, name one of them as id:N: " + candidates(ids));
}

Result<uint64_t> Directory::find(const std::string& reference) const {
  static const std::string kId = "id:", kContainer = "container:";
  if (reference.rfind(kContainer, 0) == 0 && reference.find('/') == std::string::npos) {
    const std::string prefix = reference.substr(kContainer.size());
    const auto ids = of_container(prefix);
    if (!ids.empty()) return only(ids, reference);
    return fail(ENOENT, prefix.empty() ? "container: is without the beginning of a container's id"
                                       : "no container whose id begins with '" + printable(prefix) +
                                             "' has a vdevice");
  }
  if (reference.rfind(kId, 0) == 0 && reference.find('/') == std::string::npos) {
    uint64_t id = 0;
    const char* const last = reference.data() + reference.size();
    const auto [end, error] = std::from_chars(reference.data() + kId.size(), last, id);
    if (error != std::errc() || end != last || !entries_.contains(id))
      return fail(ENOENT, "there is no vdevice '" + printable(reference) + "'");
    return id;
  }
  const size_t slash = reference.rfind('/');
  if (slash == std::string::npos) {
    const auto named = by_name_.find(reference);
    if (named == by_name_.end())
      return fail(ENOENT, "there is no vdevice '" + printable(reference) + "'");
    if (named->second.size() == 1) return *named->second.begin();
    return fail(ENOTUNIQ, "there are " + std::to_string(named->second.size()) + " vdevices '" +
                              printable(reference) +
                              "', name one of them as NETNS/NAME: " + candidates(named->second));
  }
  const auto pod = by_pod_.find(reference);
  return find_in_netns(reference, pod != by_pod_.end() ? pod->second : std::set<uint64_t>());
}

Result<uint64_t> Directory::find_in_netns(const std::string& reference,
                                          const std::set<uint64_t>& also) const {
  const size_t slash = reference.rfind('/');
  const std::string netns = reference.substr(0, slash), name = reference.substr(slash + 1);
  const auto texts = created_as(netns, name);
  std::optional<uint64_t> its;
  // What the text means now may be another one than it was created with.
  if (by_name_.contains(name))
    if (const auto cookie = cookie_of_(netns)) its = at(*cookie, name);
  if (texts.size() == 1) {
    if (its && *its != *texts.begin()) return only({*its, *texts.begin()}, reference);
    its = *texts.begin();
  }
  if (!also.empty()) {
    std::set<uint64_t> all = also;
    if (its) all.insert(*its);
    if (!its) all.insert(texts.begin(), texts.end());
    return only(all, reference);
  }
  if (its) return *its;
  if (!texts.empty())
    return fail(ENOTUNIQ, "'" + printable(reference) + "' was the name of " +
                              std::to_string(texts.size()) +
                              " vdevices, name one of them as id:N: " + candidates(texts));
  return fail(ENOENT, "there is no vdevice '" + printable(name) + "' in netns '" +
                          printable(netns) + "'" +
                          (by_pod_.empty() ? "" : ", and no pod of that name has one"));
}

std::optional<uint64_t> Directory::at(uint64_t cookie, const std::string& name) const {
  const auto space = spaces_.find(cookie);
  if (space == spaces_.end()) return {};
  const auto named = space->second.by_name.find(name);
  if (named == space->second.by_name.end()) return {};
  return named->second;
}

std::set<uint64_t> Directory::created_as(const std::string& netns, const std::string& name) const {
  const auto found = by_text_.find({netns, name});
  return found != by_text_.end() ? found->second : std::set<uint64_t>();
}

std::set<uint64_t> Directory::in_netns(uint64_t cookie) const {
  std::set<uint64_t> ids;
  const auto space = spaces_.find(cookie);
  if (space == spaces_.end()) return ids;
  for (const auto& [name, id] : space->second.by_name) ids.insert(id);
  return ids;
}

const std::set<uint32_t>& Directory::numbers(uint64_t cookie) const {
  static const std::set<uint32_t> kNone;
  const auto space = spaces_.find(cookie);
  return space != spaces_.end() ? space->second.numbers : kNone;
}

const std::set<uint64_t>& Directory::in_fabric(const std::string& fabric) const {
  static const std::set<uint64_t> kNone;
  const auto found = fabrics_.find(fabric);
  return found != fabrics_.end() ? found->second.members : kNone;
}

bool Directory::is_shared(const std::string& fabric, const std::string& tenant) const {
  const auto found = fabrics_.find(fabric);
  if (found == fabrics_.end()) return false;
  const auto& tenants = found->second.tenants;
  return tenants.size() > 1 || (!tenant.empty() && !tenants.contains(tenant));
}

// "red/mlx5_0 (id:3), blue/mlx5_0 (id:4) and 12 more"
std::string Directory::candidates(const std::set<uint64_t>& ids) const {
  std::string text;
  size_t named = 0;
  for (const uint64_t id : ids) {
    if (named == kNamed) return text + " and " + std::to_string(ids.size() - named) + " more";
    const Entry& entry = entries_.at(id);
    text += (named++ > 0 ? ", " : "") + printable(label_of(entry.netns, entry.name)) +
            " (id:" + std::to_string(id) + ")";
  }
  return text;
}

}  // namespace vrdma::vrdmad
