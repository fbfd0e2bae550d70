// A vdevice's GID table.
//
// Dense: entries have the indices 0 .. size-1. As stable as that allows: a new entry goes to the
// end, and the removal of an entry moves those behind it up by one, so that a program which uses
// index i is disturbed only by the loss of an entry at or before i (it gets IBV_EVENT_GID_CHANGE
// then). Index 0 always holds the first of the wanted GIDs, the default GID. Index 1 holds an IPv4
// GID, if there is one: the one that was there before, else the first. See gid/layout.h.
#pragma once

#include <vector>

#include "core/verbs/gid.h"

namespace vrdma::gid {

class Table {
 public:
  struct Change {
    std::vector<verbs::Gid> added;
    std::vector<verbs::Gid> removed;
    bool moved = false;  // an entry that stays has another index now

    // Whether the table is another than before.
    explicit operator bool() const { return moved || !added.empty() || !removed.empty(); }
  };

  // Makes the table hold `wanted`, which names no GID twice, and nothing else.
  Change update(const std::vector<verbs::Gid>& wanted);

  [[nodiscard]] const std::vector<verbs::Gid>& gids() const { return gids_; }
  [[nodiscard]] bool contains(const verbs::Gid& gid) const;

 private:
  std::vector<verbs::Gid> gids_;
};

}  // namespace vrdma::gid
