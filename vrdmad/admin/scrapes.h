// Makes the text of the metrics for all that ask at about the same time.
//
// A question while rows are gathered gets the same text, and afterwards the control thread rests
// from metrics for four times the processor time that it used meanwhile, a second at most. So
// clients that ask without end take a bounded part of its time.
//
// Control thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

// To call its argument once with the rows, now or later, on the loop.
using MetricsSource = std::function<void(std::function<void(std::vector<CounterRow>)>)>;

class Scrapes {
 public:
  using Text = std::shared_ptr<const std::string>;

  // `loop` must outlive it.
  Scrapes(base::EventLoop& loop, MetricsSource source) : loop_(loop), source_(std::move(source)) {}
  Scrapes(const Scrapes&) = delete;
  Scrapes& operator=(const Scrapes&) = delete;

  // Calls `then` once, now or later.
  void ask(std::function<void(Text)> then);

 private:
  void begin();
  void end(const std::vector<CounterRow>& rows);

  base::EventLoop& loop_;
  const MetricsSource source_;
  bool gathering_ = false;
  base::Duration cpu_before_{};  // the thread's processor time when it began to gather
  std::vector<std::function<void(Text)>> waiting_;
  base::EventLoop::Timer rest_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for rows that come later
};

}  // namespace vrdma::vrdmad
