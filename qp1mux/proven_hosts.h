// The other hosts that have shown that they receive what a vdevice sends to them.
#pragma once

#include <chrono>
#include <cstddef>
#include <iterator>
#include <list>
#include <unordered_map>
#include <utility>

#include "core/base/event_loop.h"
#include "core/verbs/gid.h"
#include "qp1mux/rates.h"

namespace vrdma::qp1mux {

// Anybody may send a request in the name of a host; but only the host that receives the answer
// knows the random communication id in it. Hosts are those of host_of().
class ProvenHosts {
 public:
  static constexpr size_t kMost = 4096;  // then the one whose proof is the oldest is forgotten
  static constexpr base::Duration kLast = std::chrono::minutes(10);

  // A message from `source` named one of our ids.
  void add(const verbs::Gid& source, base::TimePoint now) {
    const verbs::Gid host = host_of(source);
    if (const auto known = places_.find(host); known != places_.end()) {
      known->second->second = now;
      by_time_.splice(by_time_.end(), by_time_, known->second);
      return;
    }
    if (by_time_.size() >= kMost) {
      places_.erase(by_time_.front().first);
      by_time_.pop_front();
    }
    by_time_.emplace_back(host, now);
    places_.emplace(host, std::prev(by_time_.end()));
  }
  [[nodiscard]] bool has(const verbs::Gid& source, base::TimePoint now) const {
    const auto known = places_.find(host_of(source));
    return known != places_.end() && now - known->second->second < kLast;
  }

 private:
  using ByTime = std::list<std::pair<verbs::Gid, base::TimePoint>>;  // the latest proof is last

  ByTime by_time_;
  std::unordered_map<verbs::Gid, ByTime::iterator> places_;
};

}  // namespace vrdma::qp1mux
