#include "vrdmad/parent_groups.h"

#include <fcntl.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/base/fd.h"
#include "core/base/log.h"

namespace vrdma::vrdmad {

namespace fs = std::filesystem;

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;
using Words = std::vector<std::string>;

namespace {

constexpr std::array kOfVersion1{"cpu", "pids"};
constexpr std::array kOfVersion2{"cpu", "pids", "memory"};

Words split(const std::string& text, char separator) {
  Words all;
  std::istringstream stream(text);
  for (std::string each; std::getline(stream, each, separator);) all.push_back(each);
  return all;
}

std::string join(const Words& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

bool contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// What cgroup.controllers of the directory names.
Words controllers_in(const std::string& directory) {
  std::ifstream file(directory + "/cgroup.controllers");
  const Words all{std::istream_iterator<std::string>(file), {}};
  Words wanted;
  for (const char* each : kOfVersion2)
    if (contains(all, each)) wanted.emplace_back(each);
  return wanted;
}

Words controllers_of(const Hierarchy& hierarchy) {
  if (hierarchy.unified) return controllers_in(hierarchy.mount);
  Words wanted;
  for (const char* each : kOfVersion1)
    if (hierarchy.has(each)) wanted.emplace_back(each);
  return wanted;
}

Result<void> write_to(const std::string& path, const std::string& text) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid() || ::write(file.get(), text.data(), text.size()) < 0)
    return fail_errno("write " + text + " to " + path);
  return {};
}

// systemd marks the group in the hierarchy that it uses itself.
bool is_delegated(const std::string& directory) {
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    char value = 0;
    if (::getxattr(directory.c_str(), name, &value, 1) == 1 && value == '1') return true;
  }
  return false;
}

// Empty: there is none.
std::string delegated_group(const std::vector<Hierarchy>& all) {
  for (const Hierarchy& each : all) {
    if (!each.unified && !each.has("name=systemd")) continue;
    const std::string directory = each.directory(each.own);
    if (!directory.empty() && is_delegated(directory)) return each.own;
  }
  return {};
}

// Lets the children of a group of version 2 have the controllers, which are returned.
Result<Words> enable(const Hierarchy& hierarchy, const std::string& group,
                     const std::string& directory) {
  Words controllers = controllers_in(directory);
  // The root of the host may have processes beside its children; it has no type.
  if (group == hierarchy.own && fs::exists(directory + "/cgroup.type")) {
    const std::string own = directory + "/" + kOwnGroup;
    std::error_code error;
    fs::create_directory(own, error);
    if (auto moved = write_to(own + "/cgroup.procs", "0"); !moved)
      return pass(std::move(moved).error());
  }
  for (const std::string& each : controllers) {
    auto enabled = write_to(directory + "/cgroup.subtree_control", "+" + each);
    if (!enabled && enabled.error().code() == EBUSY)
      return fail(EBUSY, "the control group " + directory + " has processes of other programs");
    if (!enabled) return pass(std::move(enabled).error());
  }
  return controllers;
}

struct Prepared {
  Words directories, controllers;
};

// `make`: what is missing; else it is left out.
Result<Prepared> prepare(const std::vector<Hierarchy>& all, const std::string& group, bool make) {
  Prepared prepared;
  for (const Hierarchy& each : all) {
    Words controllers = controllers_of(each);
    const std::string directory = each.directory(group);
    if (controllers.empty() || directory.empty()) continue;
    std::error_code error;
    if (make) fs::create_directories(directory, error);
    if (error) return fail(error.value(), "make " + directory + ": " + error.message());
    if (!fs::is_directory(directory, error)) continue;
    if (each.unified) {
      auto enabled = enable(each, group, directory);
      if (!enabled) return pass(std::move(enabled).error());
      controllers = std::move(*enabled);
    }
    if (controllers.empty()) continue;
    prepared.directories.push_back(directory);
    prepared.controllers.insert(prepared.controllers.end(), controllers.begin(), controllers.end());
  }
  if (prepared.directories.empty())
    return fail(ENOENT, "the control group " + group +
                            " has none of the controllers cpu, pids and memory: enable them in "
                            "cgroup.subtree_control of the group above it");
  return prepared;
}

}  // namespace

bool Hierarchy::has(const std::string& controller) const {
  return contains(controllers, controller);
}

std::string Hierarchy::directory(const std::string& group) const {
  if (root == "/") return group == "/" ? mount : mount + group;
  if (group == root) return mount;
  return group.starts_with(root + "/") ? mount + group.substr(root.size()) : "";
}

// mountinfo: ID PARENT MAJOR:MINOR ROOT MOUNT OPTIONS FIELD... - TYPE SOURCE OPTIONS, see proc(5);
// groups: ID:CONTROLLERS:GROUP, see cgroups(7).
std::vector<Hierarchy> find_hierarchies(std::istream& mountinfo, std::istream& groups) {
  std::vector<std::pair<Words, std::string>> own;
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    own.emplace_back(split(line.substr(first + 1, second - first - 1), ','),
                     line.substr(second + 1));
  }
  std::vector<Hierarchy> all;
  for (std::string line; std::getline(mountinfo, line);) {
    const Words words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool unified = dash[1] == "cgroup2";
    if (!unified && dash[1] != "cgroup") continue;
    const Words options = split(dash[3], ',');
    for (const auto& [controllers, group] : own) {
      const bool its = unified ? controllers.empty()
                               : !controllers.empty() && contains(options, controllers.front());
      const bool known = std::any_of(
          all.begin(), all.end(), [&, &its_controllers = controllers](const Hierarchy& each) {
            return each.unified == unified && each.controllers == its_controllers;
          });
      if (its && !known) all.push_back({unified, controllers, words[3], words[4], group});
    }
  }
  return all;
}

bool is_group_path(const std::string& path) {
  const std::string normal = fs::path(path).lexically_normal();
  return path == "/" || (path.starts_with('/') && !path.ends_with('/') && normal == path);
}

std::vector<Hierarchy> own_hierarchies() {
  std::ifstream mountinfo("/proc/self/mountinfo"), groups("/proc/self/cgroup");
  return find_hierarchies(mountinfo, groups);
}

Result<Words> prepare_parent_groups(const std::string& asked, const std::vector<Hierarchy>& all) {
  if (asked == "none") return Words{};
  const std::string group = asked.empty() ? delegated_group(all) : asked;
  if (group.empty()) {
    base::log_info(
        "worker processes have no control groups, because that of vrdmad is not delegated to it: "
        "name a group with --cgroup");
    return Words{};
  }
  auto prepared = prepare(all, group, !asked.empty());
  if (!prepared && !asked.empty()) return pass(std::move(prepared).error(), "--cgroup");
  if (!prepared) {
    base::log_warning("worker processes have no control groups: " + prepared.error().message());
    return Words{};
  }
  base::log_info("worker processes have control groups in " + join(prepared->directories) +
                 ", for " + join(prepared->controllers));
  return std::move(prepared->directories);
}

}  // namespace vrdma::vrdmad
