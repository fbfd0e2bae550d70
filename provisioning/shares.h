// Divides a tenant's or parent's rate among those vdevices that have work.
//
// Each member has a least and a most. Active members get equal rates, within these bounds. A member
// that did not use up its rate gets little more than it used; the others get the rest. The rates
// add up to the capacity, so the least is guaranteed while the sum of all is no more than that;
// otherwise they shrink in proportion.
//
// Rates are computed again when an active member asks and they are older than kPeriod, and at once
// when a member becomes active: there is no timer, and an idle member costs nothing.
//
// All calls are thread-safe: members belong to the workers of their fabrics, and each asks a
// hundred times per second.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "core/base/event_loop.h"
#include "provisioning/budget_page.h"

namespace vrdma::provisioning {

constexpr auto kPeriod = std::chrono::milliseconds(10);

class Shares : public std::enable_shared_from_this<Shares> {
 public:
  // Move-only, also to another thread; the destructor leaves the shares.
  class Member {
   public:
    Member() = default;
    Member(Member&& other) noexcept = default;
    Member& operator=(Member&& other) noexcept;
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    ~Member() { leave(); }

    void set(uint64_t least, uint64_t most);
    // Returns the rate per second that the member may use from now on, or kUnbounded. `used`: its
    // rate since the last call; `eager`: whether it would have used more.
    [[nodiscard]] uint64_t ask(base::TimePoint now, double used, bool eager);

   private:
    friend class Shares;
    struct Want {
      double least = 0, most = 0;
      double demand = 0;
      double rate = 0;
      base::TimePoint asked{};
    };
    void leave();
    std::shared_ptr<Shares> shares_;
    std::list<Want>::iterator want_;
  };

  void set_capacity(uint64_t capacity);
  [[nodiscard]] Member join();

 private:
  void deal(base::TimePoint now);

  std::mutex mutex_;
  double capacity_ = kUnbounded;
  base::TimePoint dealt_{};
  std::list<Member::Want> wants_;
};

}  // namespace vrdma::provisioning
