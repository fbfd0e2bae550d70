// Work of a vdevice that is no work request: done piece by piece in the turns of its lane.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "transport/runner.h"

namespace vrdma::transport {

class Backlog final : public Runnable {
 public:
  explicit Backlog(Lane& lane) : Runnable(lane) {}
  ~Backlog() override { lane().runner().remove(this); }  // what is not done is dropped
  // A piece may add more, and must not destroy the backlog.
  void add(std::function<void()> piece) {
    pieces_.push_back(std::move(piece));
    lane().runner().activate(this);
  }
  bool run(Turn& turn) override {
    if (pieces_.empty()) return false;
    const auto piece = std::move(pieces_.front());
    pieces_.pop_front();
    const base::TimePoint begun = turn.now();
    piece();
    turn.spend_time(turn.now() - begun);
    return !pieces_.empty();
  }

 private:
  std::deque<std::function<void()>> pieces_;
};

}  // namespace vrdma::transport
