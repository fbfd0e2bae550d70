// What vrdmad has acknowledged, and so must keep, whatever happens to it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "vrdmad/admin/backend.h"

namespace vrdma::sim {

// The class of which the containers of a pod share a vdevice.
inline constexpr const char* kSharedClass = "c0";

struct Model {
  struct Vdevice {
    vrdmad::VdevSpec spec;
    // 0: not known, after a reboot or of a container.
    uint64_t cookie = 0;
    uint32_t ifindex = 0;
    // The limit on queue pairs. None: a change was interrupted, or it is a default.
    std::optional<uint64_t> qp;
    // Its netdev, namespace or owner has ended, or a deletion of it was interrupted.
    bool may_be_gone = false;
    // Its label of that name, or ""; none: a change was interrupted.
    std::optional<std::string> team = "";
    bool of_containers = false;  // it is there while one of them lives
    // The process with which it ends; 0: there is none.
    uint32_t owner = 0;
  };

  // The first process of a container, from the call of its hook on.
  struct Container {
    std::string id, device_class;
    uint64_t netns = 0;  // the cookie
    // None: the hook has no answer.
    std::optional<uint64_t> vdevice;
    bool doubtful = false;  // a crash has interrupted the call
    bool lives = true;
  };

  std::map<uint64_t, Vdevice> vdevices;      // by id
  std::map<uint32_t, Container> containers;  // by pid
  std::set<uint64_t> gone;                   // ids that never come again
  uint64_t last_id = 0;
  // Creations that a crash has interrupted.
  std::vector<vrdmad::VdevSpec> doubtful;
  // None: a change was interrupted.
  std::map<std::string, std::optional<vrdmad::Reach>> reaches;  // of fabrics; kHost: not in it
  std::map<std::string, std::optional<uint64_t>> ceilings;      // of tenants, for queue pairs

  [[nodiscard]] static Vdevice for_containers(const std::string& netns, const std::string& name) {
    Vdevice made;
    made.spec.netns = netns;
    made.spec.name = name;
    made.of_containers = true;
    return made;
  }
  void process_ended(uint32_t pid) {
    if (const auto its = containers.find(pid); its != containers.end()) its->second.lives = false;
    for (auto& [id, one] : vdevices)
      if (one.owner == pid) one.may_be_gone = true;
  }
  // Whether one that lives has it.
  [[nodiscard]] bool has_container(uint64_t id) const {
    for (const auto& [pid, one] : containers)
      if (one.lives && one.vdevice == id) return true;
    return false;
  }
  void link_ended(uint32_t ifindex) {
    for (auto& [id, one] : vdevices)
      if ((one.ifindex == ifindex || one.ifindex == 0) && !one.of_containers)
        one.may_be_gone = true;
  }
  void rebooted() {
    for (auto& [id, one] : vdevices) {
      one.cookie = one.ifindex = 0;
      if (one.owner != 0) one.may_be_gone = true;
    }
    for (auto& [pid, one] : containers) one.lives = false;
  }
};

}  // namespace vrdma::sim
