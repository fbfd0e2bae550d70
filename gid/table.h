// A vdevice's GID table.
//
// Dense: the entries have the indices 0 .. size-1. Indices are as stable as that permits: a new
// entry goes to the end, and the removal of an entry moves those after it forward by one. Therefore
// only the removal of an entry at or before index i disturbs a program that uses index i (it then
// gets IBV_EVENT_GID_CHANGE). Index 0 always holds the first wanted GID, the default GID. Index 1
// holds an IPv4 GID if there is one: the previous one, or else the first. See gid/layout.h.
#pragma once

#include <vector>

#include "core/verbs/gid.h"

namespace vrdma::gid {

class Table {
 public:
  struct Change {
    std::vector<verbs::Gid> added;
    std::vector<verbs::Gid> removed;
    bool moved = false;  // a remaining entry has another index now

    // Whether the table has changed.
    explicit operator bool() const { return moved || !added.empty() || !removed.empty(); }
  };

  // Makes the table hold exactly `wanted`, which must not contain duplicates.
  Change update(const std::vector<verbs::Gid>& wanted);

  [[nodiscard]] const std::vector<verbs::Gid>& gids() const { return gids_; }
  [[nodiscard]] bool contains(const verbs::Gid& gid) const;

 private:
  std::vector<verbs::Gid> gids_;
};

}  // namespace vrdma::gid
