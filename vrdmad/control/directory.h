// Finds the vdevice of an operator's reference, and the vdevices of a namespace or fabric.
//
//   reference := NAME | NETNS "/" NAME | "id:" digits | "container:" prefix | NAMESPACE "/" POD
//
// A name is unique in its network namespace, not on the host: each pod may have its mlx5_0. NAME
// alone suffices while only one vdevice has it. NETNS is the text that the vdevice was created
// with, or any other that refers to the same namespace now. It may be a path, so the last slash
// separates. An id is never reused. A prefix of a container's id names the vdevices of that
// container, and a pod of Kubernetes those of the pod. No meaning is preferred: a reference that
// fits several vdevices names none of them, because users of containers choose such names and must
// not direct an operator's command to another vdevice.
//
// Every query is a map lookup, because a host may have a thousand pods. Lost vdevices are included.
// Belongs to the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace vrdma::vrdmad {

class Directory {
 public:
  struct Entry {
    std::string name;
    std::string netns;    // as given at creation
    uint64_t cookie = 0;  // of the namespace; 0: unknown in this boot
    uint32_t number = 0;  // of its session socket
    std::string fabric, tenant;
    std::string pod = {};                      // NAMESPACE/POD; empty: none
    std::vector<std::string> containers = {};  // their ids
  };
  // The cookie of the namespace that a text refers to now; none: no namespace.
  using CookieOf = std::function<std::optional<uint64_t>(const std::string& netns)>;

  explicit Directory(CookieOf cookie_of) : cookie_of_(std::move(cookie_of)) {}

  void add(uint64_t id, Entry entry);  // replaces the entry of that id
  void remove(uint64_t id);            // does nothing without an entry
  // Replaces the containers of the entry of that id.
  void set_containers(uint64_t id, std::vector<std::string> containers);

  // ENOENT: no match. ENOTUNIQ: several; the sentence names them.
  [[nodiscard]] base::Result<uint64_t> find(const std::string& reference) const;
  // The vdevice of that name in the namespace.
  [[nodiscard]] std::optional<uint64_t> at(uint64_t cookie, const std::string& name) const;
  // The vdevices of that name created with that text; several if the text has referred to several
  // namespaces.
  [[nodiscard]] std::set<uint64_t> created_as(const std::string& netns,
                                              const std::string& name) const;

  // The vdevices of the namespace.
  [[nodiscard]] std::set<uint64_t> in_netns(uint64_t cookie) const;
  // Socket numbers in use in the namespace.
  [[nodiscard]] const std::set<uint32_t>& numbers(uint64_t cookie) const;
  [[nodiscard]] const std::set<uint64_t>& in_fabric(const std::string& fabric) const;
  // Whether a vdevice of another tenant than `tenant` is in the fabric; if `tenant` is empty, of
  // several.
  [[nodiscard]] bool is_shared(const std::string& fabric, const std::string& tenant) const;

 private:
  struct Fabric {
    std::set<uint64_t> members;
    std::map<std::string, size_t> tenants;  // number of members
  };
  struct Space {
    std::unordered_map<std::string, uint64_t> by_name;
    std::set<uint32_t> numbers;
  };
  // By name and netns. `also`: candidates for another reason.
  [[nodiscard]] base::Result<uint64_t> find_in_netns(const std::string& reference,
                                                     const std::set<uint64_t>& also) const;
  [[nodiscard]] std::set<uint64_t> of_container(const std::string& prefix) const;
  // The only one of them, or ENOTUNIQ.
  [[nodiscard]] base::Result<uint64_t> only(const std::set<uint64_t>& ids,
                                            const std::string& reference) const;
  [[nodiscard]] std::string candidates(const std::set<uint64_t>& ids) const;

  CookieOf cookie_of_;
  std::unordered_map<uint64_t, Entry> entries_;
  std::unordered_map<std::string, std::set<uint64_t>> by_name_;
  std::map<std::pair<std::string, std::string>, std::set<uint64_t>> by_text_;  // netns, name
  std::unordered_map<std::string, std::set<uint64_t>> by_pod_;
  std::map<std::string, std::set<uint64_t>> by_container_;
  std::unordered_map<uint64_t, Space> spaces_;  // by cookie
  std::unordered_map<std::string, Fabric> fabrics_;
};

// "red/mlx5_0": a vdevice's name in the log; also a valid reference.
[[nodiscard]] inline std::string label_of(const std::string& netns, const std::string& name) {
  return netns + "/" + name;
}

}  // namespace vrdma::vrdmad
