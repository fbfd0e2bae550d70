// Which sessions are ended instead of being given to the next worker.
//
// A request that crashes a worker is still in its program's queue, and would crash the next worker
// too. So a session that was in hand at two crashes within an hour is ended. After three crashes
// within a minute all sessions of the domain are ended, because the culprit is not known. If the
// kernel kills a worker because it needs more memory than it may have, that is a crash too. The
// death of another worker that did not report one does not count: it was killed from outside.
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
  // `session`: what the worker had in hand; 0: nothing.
  void crashed(const std::string& domain, uint32_t session, base::TimePoint now);
  // Whether the session, or all sessions of the domain, must not be taken over. A sentence for the
  // log, or empty.
  [[nodiscard]] std::string reason_to_end(uint32_t session, base::TimePoint now) const;
  [[nodiscard]] std::string reason_to_end(const std::string& domain, base::TimePoint now) const;

 private:
  // Of each session or domain that crashed within `time`: when the last `most` crashes were.
  template <class Key>
  class Crashes {
   public:
    Crashes(size_t most, base::Duration time) : most_(most), time_(time) {}
    void add(const Key& key, base::TimePoint now) {
      std::erase_if(all_, [&](const auto& entry) { return now - entry.second.back() > time_; });
      auto& its = all_[key];
      its.push_back(now);
      if (its.size() > most_) its.pop_front();
    }
    // Whether there were `most` within `time`.
    [[nodiscard]] bool has_most(const Key& key, base::TimePoint now) const {
      const auto its = all_.find(key);
      return its != all_.end() && its->second.size() == most_ && now - its->second.front() <= time_;
    }

   private:
    const size_t most_;
    const base::Duration time_;
    std::map<Key, std::deque<base::TimePoint>> all_;
  };
  Crashes<uint32_t> sessions_{2, std::chrono::hours(1)};
  Crashes<std::string> domains_{3, std::chrono::minutes(1)};
};

}  // namespace vrdma::vrdmad
