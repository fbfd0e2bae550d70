// Timers: a binary heap whose elements store their position, so that moving and cancelling allocate
// nothing, nor does setting an element that is already in the heap.
#pragma once

#include <cstddef>
#include <vector>

#include "core/base/event_loop.h"

namespace vrdma::qp1mux {

// Base class of the elements. Must be cancelled before it is destroyed.
struct Due {
  static constexpr size_t kNowhere = static_cast<size_t>(-1);
  base::TimePoint when{};
  size_t place = kNowhere;
};

class DueQueue {
 public:
  void set(Due* due, base::TimePoint when) {
    due->when = when;
    if (due->place == Due::kNowhere) {
      due->place = heap_.size();
      heap_.push_back(due);
    }
    down(up(due->place));
  }
  void cancel(Due* due) {
    if (due->place == Due::kNowhere) return;
    const size_t hole = due->place;
    due->place = Due::kNowhere;
    Due* last = heap_.back();
    heap_.pop_back();
    if (last == due) return;
    put(hole, last);
    down(up(hole));
  }
  // The earliest, or null.
  [[nodiscard]] Due* first() const { return heap_.empty() ? nullptr : heap_.front(); }

 private:
  void put(size_t place, Due* due) {
    heap_[place] = due;
    due->place = place;
  }
  void exchange(size_t a, size_t b) {
    Due* other = heap_[a];
    put(a, heap_[b]);
    put(b, other);
  }
  size_t up(size_t place) {
    while (place > 0 && heap_[place]->when < heap_[(place - 1) / 2]->when) {
      exchange(place, (place - 1) / 2);
      place = (place - 1) / 2;
    }
    return place;
  }
  void down(size_t place) {
    for (;;) {
      size_t least = place;
      for (size_t child = 2 * place + 1; child < 2 * place + 3 && child < heap_.size(); ++child)
        if (heap_[child]->when < heap_[least]->when) least = child;
      if (least == place) return;
      exchange(place, least);
      place = least;
    }
  }

  std::vector<Due*> heap_;
};

}  // namespace vrdma::qp1mux
