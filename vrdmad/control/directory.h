// Which vdevice an operator means, and which vdevices have something in common.
//
//   reference := NAME | NETNS "/" NAME | "id:" digits
//
// A name is unique in its network namespace, not on the host: each pod may have its mlx5_0. NAME
// alone is enough as long as one vdevice has it. NETNS is the text that the vdevice was created
// with, or any other that means the same namespace now; it may be a path, so that the last slash
// counts. The id is unique for all time.
//
// Every question is answered from a map: a host with a thousand pods is the usual case. Lost
// vdevices are in it too. Belongs to the control thread.
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
    uint64_t cookie = 0;  // of the namespace; 0: not known in this boot
    uint32_t number = 0;  // of its session socket
    std::string fabric, tenant;
  };
  // The cookie of the namespace that a text means now; none: it means no namespace.
  using CookieOf = std::function<std::optional<uint64_t>(const std::string& netns)>;

  explicit Directory(CookieOf cookie_of) : cookie_of_(std::move(cookie_of)) {}

  void add(uint64_t id, Entry entry);  // an id that is not there, a place that is free
  void remove(uint64_t id);            // nothing, if it is not there

  // ENOENT: there is none. ENOTUNIQ: there are several, and the sentence names them.
  [[nodiscard]] base::Result<uint64_t> find(const std::string& reference) const;
  // The one of that name in the namespace.
  [[nodiscard]] std::optional<uint64_t> at(uint64_t cookie, const std::string& name) const;
  // Those of that name that were created with that text: more than one if its meaning changed.
  [[nodiscard]] std::set<uint64_t> created_as(const std::string& netns,
                                              const std::string& name) const;

  // Socket numbers in use in the namespace.
  [[nodiscard]] const std::set<uint32_t>& numbers(uint64_t cookie) const;
  [[nodiscard]] const std::set<uint64_t>& in_fabric(const std::string& fabric) const;
  // Whether a vdevice of another tenant than `tenant` is in it, or of several if that is empty.
  [[nodiscard]] bool is_shared(const std::string& fabric, const std::string& tenant) const;

 private:
  struct Fabric {
    std::set<uint64_t> members;
    std::map<std::string, size_t> tenants;  // how many members each has
  };
  struct Space {
    std::unordered_map<std::string, uint64_t> by_name;
    std::set<uint32_t> numbers;
  };
  [[nodiscard]] std::string candidates(const std::set<uint64_t>& ids) const;

  CookieOf cookie_of_;
  std::unordered_map<uint64_t, Entry> entries_;
  std::unordered_map<std::string, std::set<uint64_t>> by_name_;
  std::map<std::pair<std::string, std::string>, std::set<uint64_t>> by_text_;  // netns, name
  std::unordered_map<uint64_t, Space> spaces_;                                 // by cookie
  std::unordered_map<std::string, Fabric> fabrics_;
};

// "red/mlx5_0": what the log calls a vdevice; also a reference to it.
[[nodiscard]] inline std::string label_of(const std::string& netns, const std::string& name) {
  return netns + "/" + name;
}

}  // namespace vrdma::vrdmad
