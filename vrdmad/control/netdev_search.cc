#include "vrdmad/control/netdev_search.h"

#include <algorithm>
#include <utility>

namespace vrdma::vrdmad {

using base::Result;

void NetdevSearch::want(uint64_t vdevice, pid_t pid, const std::string& wanted) {
  const base::TimePoint now = loop_.now();
  Entry& entry = entries_[vdevice];
  entry.pid = pid;
  entry.wanted = wanted;
  if (entry.due) return;
  if (now > entry.last + 2 * entry.delay) entry.delay = kSettled;
  entry.due = std::max(now + kSettled, entry.last + entry.delay);
  next();
}

void NetdevSearch::next() {
  if (looks_) return;
  const base::TimePoint now = loop_.now();
  std::erase_if(entries_, [&](const auto& one) {
    return !one.second.due && now > one.second.last + 2 * one.second.delay;
  });
  auto first = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it)
    if (it->second.due && (first == entries_.end() || *it->second.due < *first->second.due))
      first = it;
  if (first == entries_.end()) return;
  const base::TimePoint due = *first->second.due;
  if (due > now) {
    timer_ = loop_.after(due - now, [this] { next(); });
    return;
  }
  first->second.due.reset();
  first->second.last = now;
  looks_ = true;
  aside_.run([&loop = loop_, look = look_, id = first->first, pid = first->second.pid,
              wanted = first->second.wanted, self = std::weak_ptr(self_)] {
    loop.post([id, netdev = look(pid, wanted), self] {
      if (const auto search = self.lock()) (*search)->looked(id, netdev);
    });
  });
}

void NetdevSearch::looked(uint64_t vdevice, const Result<std::string>& netdev) {
  looks_ = false;
  Entry& entry = entries_[vdevice];
  entry.last = loop_.now();
  entry.delay = std::min(2 * entry.delay, kLongest);
  if (entry.due) entry.due = std::max(*entry.due, entry.last + entry.delay);
  found_(vdevice, netdev);
  next();
}

}  // namespace vrdma::vrdmad
