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

struct Model {
  struct Vdevice {
    vrdmad::VdevSpec spec;
    uint64_t cookie = 0;
    uint32_t ifindex = 0;
    // The limit on queue pairs. None: a change was interrupted, or it is a default.
    std::optional<uint64_t> qp;
    // Its netdev or namespace has ended, or a deletion of it was interrupted.
    bool may_be_gone = false;
    // Its label of that name, or ""; none: a change was interrupted.
    std::optional<std::string> team = "";
  };

  std::map<uint64_t, Vdevice> vdevices;  // by id
  std::set<uint64_t> gone;               // ids that never come again
  uint64_t last_id = 0;
  // Creations that a crash has interrupted.
  std::vector<vrdmad::VdevSpec> doubtful;
  // None: a change was interrupted.
  std::map<std::string, std::optional<vrdmad::Reach>> reaches;  // of fabrics; kHost: not in it
  std::map<std::string, std::optional<uint64_t>> ceilings;      // of tenants, for queue pairs

  void link_ended(uint32_t ifindex) {
    for (auto& [id, one] : vdevices)
      if (one.ifindex == ifindex) one.may_be_gone = true;
  }
};

}  // namespace vrdma::sim
