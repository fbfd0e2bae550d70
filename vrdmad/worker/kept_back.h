// Which sessions that a worker could take over must wait for others that come later.
//
// The process of a session may be one that cannot be inspected now: its session comes with a later
// TakeOver, or not at all. Until then its vdevice awaits others (Await). What has to do with such a
// session is kept back, so that each queue pair finds its peer. All others are taken over at once:
// a process that hangs delays only those that have to do with it.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "vrdmad/records/session_image.h"

namespace vrdma::vrdmad {

// A queue pair by its vdevice and its number.
using QpName = std::pair<uint64_t, uint32_t>;

// What a session has to do with others.
struct SessionTies {
  uint64_t vdevice = 0;
  std::set<QpName> has;    // its queue pairs, and XRC targets
  std::set<QpName> peers;  // to which its queue pairs are linked
  bool shares = false;     // imports, or has an XRC domain: with other sessions of its vdevice
};

// `vdevice_of`: the owner of a GID in the session's fabric; 0: there is none.
[[nodiscard]] SessionTies ties_of(const SessionImage& image, uint64_t vdevice,
                                  const std::function<uint64_t(const verbs::Gid&)>& vdevice_of);

// Whether each is kept back. `awaiting`: the vdevices of sessions that come later. `lives`: whether
// a queue pair is there already.
[[nodiscard]] std::vector<bool> kept_back(const std::vector<SessionTies>& sessions,
                                          std::set<uint64_t> awaiting,
                                          const std::function<bool(const QpName&)>& lives);

}  // namespace vrdma::vrdmad
