// Which sessions are ended instead of being given to the next worker.
//
// A request that crashes a worker is still in its program's queue, and would crash the next worker
// too. So a session that was in hand at two crashes is ended; and after three crashes within a
// minute all sessions of the domain are, because the culprit is not known. A worker that is killed
// from outside does not count.
//
// Belongs to the control thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "core/base/event_loop.h"

namespace vrdma::vrdmad {

class Quarantine {
 public:
  static constexpr size_t kInHand = 2;     // crashes of one session
  static constexpr size_t kOfADomain = 3;  // within kWithin
  static constexpr auto kWithin = std::chrono::minutes(1);

  // `session`: what the worker had in hand; 0: nothing.
  void crashed(const std::string& domain, uint32_t session, base::TimePoint now);
  // Whether the session must not be taken over. A sentence for the log, or empty.
  [[nodiscard]] std::string reason_to_end(const std::string& domain, uint32_t session,
                                          base::TimePoint now) const;
  void forget(uint32_t session) { in_hand_.erase(session); }  // it has ended

 private:
  std::map<uint32_t, size_t> in_hand_;                          // crashes, by session
  std::map<std::string, std::deque<base::TimePoint>> crashes_;  // the latest, by domain
};

}  // namespace vrdma::vrdmad
