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
// The vdevices of several processes may share a rate. Then each process divides what it may deal
// (Claim), and control divides the capacity among the processes in the same way (Dealer).
//
// All calls are thread-safe: a member may belong to a thread that reaches memory for its vdevice.
// Each asks a hundred times per second.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "core/base/event_loop.h"
#include "provisioning/budget_page.h"
#include "provisioning/claim.h"

namespace vrdma::provisioning {

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
    // The same in steps, for many members at once: report() of those that ask, Shares::deal(), and
    // rate() of each, which is 0 for a member that has not asked recently. Such a member may be a
    // process with several vdevices.
    void report(base::TimePoint now, const Demand& demand);
    [[nodiscard]] uint64_t rate(base::TimePoint now) const;

   private:
    friend class Shares;
    struct Want {
      double least = 0, most = 0;
      double used = 0, demand = 0;
      bool eager = false;
      double weight = 1;
      double rate = 0;
      base::TimePoint asked{};
    };
    void leave();
    bool note(base::TimePoint now, double used, bool eager);  // true: it was idle
    std::shared_ptr<Shares> shares_;
    std::list<Want>::iterator want_;
  };

  // Divides what set_capacity() says, or what the claim yields.
  Shares() = default;
  explicit Shares(std::unique_ptr<Claim> claim) : claim_(std::move(claim)) {}

  void set_capacity(uint64_t capacity);  // not with a claim
  [[nodiscard]] Member join();
  // Computes all rates. Returns the number of members that have asked recently.
  size_t deal(base::TimePoint now);

 private:
  void follow_claim();
  size_t deal_locked(base::TimePoint now);
  [[nodiscard]] Demand demand(base::TimePoint now) const;

  const std::unique_ptr<Claim> claim_;
  std::mutex mutex_;
  double whole_ = kUnbounded;     // the capacity of the budget
  double capacity_ = kUnbounded;  // what may be dealt of it
  base::TimePoint dealt_{};
  std::list<Member::Want> wants_;
};

}  // namespace vrdma::provisioning
