#include "qp1mux/due_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

namespace vrdma::qp1mux {
namespace {

// Compared with a linear search.
TEST(DueQueue, TellsTheEarliest) {
  std::mt19937 random(1);
  std::vector<Due> all(50);
  std::vector<Due*> in;
  DueQueue queue;
  for (int i = 0; i < 20'000; ++i) {
    Due* due = &all[random() % all.size()];
    std::erase(in, due);
    if (random() % 3 == 0) {
      queue.cancel(due);
    } else {
      queue.set(due, base::TimePoint(std::chrono::milliseconds(random() % 1000)));
      in.push_back(due);
    }
    ASSERT_EQ(queue.first() == nullptr, in.empty());
    if (in.empty()) continue;
    const auto earliest = std::min_element(
        in.begin(), in.end(), [](const Due* a, const Due* b) { return a->when < b->when; });
    ASSERT_EQ(queue.first()->when, (*earliest)->when);
  }
}

}  // namespace
}  // namespace vrdma::qp1mux
