// How many processes the broker holds at once, and what of that a network namespace and a user may
// have.
//
// Each costs an entry and a descriptor of the broker, and nobody pays for it. While half of the
// seats are free, everyone gets one. Of the next quarter a namespace gets one only while it has
// less than its share, and of the last quarter a user too. So who takes all that can be had, from
// as many vdevices as they like, leaves seats for others. What the broker needs for itself, for
// listeners and for workers is not among the seats.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace vrdma::vrdmad {

class Seats {
 public:
  struct Limits {
    uint32_t all = 0;
    uint32_t of_netns = 0;  // the share of one network namespace
    uint32_t of_user = 0;   // the share of one user
  };
  static constexpr uint32_t kMost = 61'440;
  static constexpr uint32_t kReserve = 4'096;  // descriptors for all else
  // For a process that may have so many descriptors.
  [[nodiscard]] static constexpr Limits limits_for(uint64_t descriptors) {
    constexpr uint32_t kShareOfNetns = 64;
    const uint64_t reserve = std::min<uint64_t>(kReserve, descriptors / 4);
    const auto all = static_cast<uint32_t>(std::min<uint64_t>(kMost, descriptors - reserve));
    return {all, kShareOfNetns, std::max(kShareOfNetns, all / 16)};
  }

  explicit Seats(const Limits& limits) : state_(std::make_shared<State>(limits)) {}

  class Seat;
  // A seat for a process of `user` in `netns`, until the Seat is destroyed; none: it has to wait.
  // `had_one`: under a broker before, which asked then.
  [[nodiscard]] std::optional<Seat> take(uint64_t netns, uid_t user, bool had_one = false);
  // Whether a process of the namespace could get one. Who it is is not known yet.
  [[nodiscard]] bool has_room(uint64_t netns) const;

 private:
  struct State {
    explicit State(const Limits& its) : limits(its) {}
    [[nodiscard]] bool has_room(uint64_t netns) const;

    const Limits limits;
    mutable std::mutex mutex;  // guards all below
    uint32_t taken = 0;
    std::map<uint64_t, uint32_t> of_netns;
    std::map<uid_t, uint32_t> of_user;
  };
  const std::shared_ptr<State> state_;
};

class Seats::Seat {
 public:
  Seat(Seat&& other) noexcept = default;
  Seat& operator=(Seat&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(netns_, other.netns_);
    std::swap(user_, other.user_);
    return *this;
  }
  ~Seat();

 private:
  friend class Seats;
  Seat(std::shared_ptr<State> state, uint64_t netns, uid_t user)
      : state_(std::move(state)), netns_(netns), user_(user) {}

  std::shared_ptr<State> state_;  // none: moved from
  uint64_t netns_;
  uid_t user_;
};

}  // namespace vrdma::vrdmad
