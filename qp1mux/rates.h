// A rate for each sender of requests.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "core/base/token_bucket.h"
#include "core/verbs/gid.h"

namespace vrdma::qp1mux {

// The host that has an address: by that of IPv4, or of IPv6 by the network of 64 bits, in which a
// host may have any address.
[[nodiscard]] inline verbs::Gid host_of(verbs::Gid address) {
  if (!address.is_ipv4_mapped())
    std::fill(address.bytes.begin() + 8, address.bytes.end(), uint8_t{0});
  return address;
}

// Token buckets by name. When kMany names have one that is in use, all others share that of Name(),
// which no sender may have.
template <class Name>
class Rates {
 public:
  static constexpr size_t kMany = 4096;

  Rates() = default;

  // For each name, `rate` tokens per second, 0: unlimited. All buckets are full again.
  void set(uint64_t rate, uint64_t burst) { *this = Rates(rate, burst); }

  // False: the name has no token.
  [[nodiscard]] bool take(base::TimePoint now, Name name) {
    auto known = buckets_.find(name);
    if (known == buckets_.end()) {
      tidy(now);
      if (buckets_.size() >= kMany) name = Name();
      base::TokenBucket full;
      full.set(rate_, burst_);
      known = buckets_.try_emplace(std::move(name), full).first;
    }
    return known->second.take(now);
  }

 private:
  static constexpr size_t kFew = 16;

  Rates(uint64_t rate, uint64_t burst) : rate_(rate), burst_(burst) {}

  // A full bucket carries no information.
  void tidy(base::TimePoint now) {
    if (buckets_.size() < tidy_size_ || (tidy_size_ == kMany && now < tidy_time_)) return;
    for (auto it = buckets_.begin(); it != buckets_.end();)
      it = it->second.used(now) == 0 ? buckets_.erase(it) : std::next(it);
    tidy_size_ = std::clamp(2 * buckets_.size(), kFew, kMany);
    tidy_time_ = now + std::chrono::seconds(1);
  }

  uint64_t rate_ = 0, burst_ = 0;
  std::map<Name, base::TokenBucket> buckets_;
  size_t tidy_size_ = kFew;
  base::TimePoint tidy_time_{};
};

}  // namespace vrdma::qp1mux
