// What a tenant or a parent has of something a second, dealt out among those vdevices that want it.
//
// Each member has a least and a most. Those that want something are dealt equal rates, but none
// below its least and none above its most or, if it did not use up what it had, not much above what
// it used: what one does not want is the others'. All rates together are the capacity, so that the
// least is a guarantee as long as the sum of them is no more; else they shrink in proportion.
//
// The dealing is done anew when a member that wants something asks and it is older than kPeriod,
// and at once when one begins to want: there is no timer, and who is idle costs nothing.
//
// All calls are thread-safe: members live on the workers of their fabrics, and each asks a hundred
// times a second.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "core/base/event_loop.h"

namespace vrdma::provisioning {

constexpr auto kPeriod = std::chrono::milliseconds(10);
constexpr uint64_t kUnbounded = 0;  // a capacity or a most

class Shares : public std::enable_shared_from_this<Shares> {
 public:
  // Move-only, also to another thread; the destructor leaves.
  class Member {
   public:
    Member() = default;
    Member(Member&& other) noexcept = default;
    Member& operator=(Member&& other) noexcept;
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    ~Member() { leave(); }

    void set(uint64_t least, uint64_t most);
    // What it may use a second from now on, kUnbounded if that is unlimited. `used` is what it used
    // a second since it last asked, and `eager` whether it would have used more.
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
