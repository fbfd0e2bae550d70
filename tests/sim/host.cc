#include "tests/sim/host.h"

#include <algorithm>

namespace vrdma::sim {

bool Host::step(base::EventLoop* loop, base::TimePoint end) {
  if (loop != nullptr && loop->step()) return true;
  base::TimePoint next = base::TimePoint::max();
  if (!agenda_.empty()) next = agenda_.begin()->first;
  const auto timer = loop != nullptr ? loop->next_timer() : std::nullopt;
  if (timer) next = std::min(next, *timer);
  if (next > end) {
    time.move_to(end);
    return false;
  }
  time.move_to(next);
  if (agenda_.empty() || agenda_.begin()->first > time.now()) return true;  // the loop's timer
  auto first = agenda_.extract(agenda_.begin());
  first.mapped()();
  return true;
}

Namespace* Host::of_cookie(uint64_t cookie) {
  for (auto& [name, one] : namespaces)
    if (one.cookie == cookie) return &one;
  return nullptr;
}

netns::Link* Host::find_link(uint64_t cookie, uint32_t ifindex) {
  Namespace* const its = of_cookie(cookie);
  if (its == nullptr) return nullptr;
  const auto found = its->links.find(ifindex);
  return found != its->links.end() ? &found->second : nullptr;
}

}  // namespace vrdma::sim
