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

netns::RoutedNetdevs Host::routed(uint64_t cookie) {
  netns::RoutedNetdevs routed;
  const Namespace* const its = of_cookie(cookie);
  if (its == nullptr) return routed;
  for (const auto& [ifindex, link] : its->links) {
    if (!link.up || link.addresses.empty()) continue;
    if (routed.all.empty()) routed.of_default = link.name;
    routed.all.insert(link.name);
  }
  return routed;
}

void Host::reboot() {
  namespaces.clear();
  processes.clear();
  last_cookie_ = kFirstCookie;
  last_ifindex_ = 1;
  boot_id = "boot " + std::to_string(++boots_);
}

uint32_t Host::start_process(uint64_t netns) {
  processes.emplace(++last_pid_, Process{last_pid_ + 1'000'000, netns});
  return last_pid_;
}

void Host::end_process(uint32_t pid) {
  const uint64_t netns = processes.at(pid).netns;
  processes.erase(pid);
  process_ended(pid);
  const bool last = std::none_of(processes.begin(), processes.end(),
                                 [&](const auto& one) { return one.second.netns == netns; });
  if (last && std::erase_if(namespaces, [&](const auto& one) {
                return one.second.cookie == netns && one.second.of_processes;
              }) > 0)
    links_changed();
}

}  // namespace vrdma::sim
