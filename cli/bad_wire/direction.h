// What a bad wire does to the frames of one direction.
//
// It knows neither a device nor a clock: the caller hands in each frame with the time of its
// arrival, and takes those out whose time has come. In this order, each frame is lost, or sent
// twice; it waits while the line is busy (rate) and is lost if the queue is full; a bit flips, or
// it is marked; it takes the delay; at last it may be held until others have passed.
//
// Frames that are no RoCE v2 pass at once, unmodified, unless the faults are for `all`. Jitter
// alone never changes the order. Decisions depend on the seed and on the number of the frame alone,
// not on time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>

#include "cli/bad_wire/frame.h"

namespace vrdma::cli::bad_wire {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

struct Faults {
  // Probabilities.
  double loss = 0, reorder = 0, duplicate = 0, corrupt = 0, mark = 0;
  uint32_t behind = 3;           // frames that pass one that is held
  bool right_checksum = false;   // of UDP, in corrupted frames
  Duration delay{0}, jitter{0};  // each takes between delay and delay + jitter
  uint64_t rate = 0;  // bits a second; 0: no limit. Then only frames that wait are marked.
  Duration queue = std::chrono::milliseconds(100);  // with a rate: the longest wait
  bool all = false;                                 // not only RoCE v2

  [[nodiscard]] bool any() const {
    return loss > 0 || reorder > 0 || duplicate > 0 || corrupt > 0 || mark > 0 || rate > 0 ||
           delay.count() > 0 || jitter.count() > 0;
  }
};

// Frames. received + duplicated == lost + overflowed + forwarded + those inside.
struct Counts {
  uint64_t received = 0;    // that faults are for
  uint64_t others = 0;      // that passed at once
  uint64_t lost = 0;        // on purpose
  uint64_t overflowed = 0;  // because the queue was full
  uint64_t duplicated = 0;
  uint64_t corrupted = 0;  // and forwarded
  uint64_t marked = 0;
  uint64_t reordered = 0;  // at least one has passed them
  uint64_t forwarded = 0;
};

class Direction {
 public:
  // A frame that is held leaves after this time, even if none has passed it.
  static constexpr Duration kMostHeld = std::chrono::milliseconds(10);

  Direction(const Faults& faults, uint64_t seed) : faults_(faults), random_(seed) {}

  void take(Frame frame, TimePoint now);
  // When a frame may leave; empty: none is inside.
  [[nodiscard]] std::optional<TimePoint> next() const;
  // The next frame that leaves at `now`; empty: there is none.
  [[nodiscard]] std::optional<Frame> give(TimePoint now);

  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] size_t inside() const { return line_.size() + held_.size(); }

 private:
  struct Entry {
    Frame frame;
    bool counts = true;  // faults are for it
    bool held = false;   // it has to be, or was
    uint32_t left = 0;   // that have to pass it
    TimePoint until;
  };

  struct Fate {
    bool corrupt = false, mark = false, hold = false;
    uint64_t bit = 0;    // that flips
    Duration jitter{0};  // in addition to the delay
  };

  // True with this probability. Takes one random number, whatever the probability is.
  bool chance(double probability);
  void send(Frame frame, const Parts& parts, const Fate& fate, TimePoint now);

  const Faults faults_;
  std::mt19937_64 random_;
  Counts counts_;
  std::multimap<TimePoint, Entry> line_;  // by the time when they leave
  std::deque<Entry> held_;
  TimePoint busy_{}, last_{};
};

}  // namespace vrdma::cli::bad_wire
