#include "vrdmad/control/netdev_search.h"

#include <algorithm>
#include <utility>

namespace vrdma::vrdmad {

using base::Result;

NetdevSearch::NetdevSearch(base::EventLoop& loop, Look look, Found found)
    : loop_(loop),
      look_(std::move(look)),
      found_(std::make_shared<const Found>(std::move(found))),
      thread_([this] { run(); }) {}

NetdevSearch::~NetdevSearch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void NetdevSearch::want(uint64_t vdevice, pid_t pid, const std::string& wanted) {
  const base::TimePoint now = loop_.now();
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[vdevice];
    entry.pid = pid;
    entry.wanted = wanted;
    if (entry.due) return;
    if (now > entry.last + 2 * entry.delay) entry.delay = kSettled;
    entry.due = std::max(now + kSettled, entry.last + entry.delay);
  }
  wake_.notify_one();
}

std::map<uint64_t, NetdevSearch::Entry>::iterator NetdevSearch::first(base::TimePoint now) {
  std::erase_if(entries_, [&](const auto& one) {
    return !one.second.due && now > one.second.last + 2 * one.second.delay;
  });
  auto found = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it)
    if (it->second.due && (found == entries_.end() || *it->second.due < *found->second.due))
      found = it;
  return found;
}

void NetdevSearch::run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    const base::TimePoint now = loop_.now();
    const auto next = first(now);
    if (next == entries_.end()) {
      wake_.wait(lock);
      continue;
    }
    const base::TimePoint due = *next->second.due;
    if (due > now) {
      wake_.wait_until(lock, due);
      continue;
    }
    const uint64_t id = next->first;
    const auto [pid, wanted] = std::pair{next->second.pid, next->second.wanted};
    next->second.due.reset();
    next->second.last = now;
    lock.unlock();
    auto netdev = std::make_shared<Result<std::string>>(look_(pid, wanted));
    loop_.post([id, netdev, weak = std::weak_ptr(found_)] {
      if (const auto found = weak.lock()) (*found)(id, std::move(*netdev));
    });
    lock.lock();
    Entry& entry = entries_[id];
    entry.last = loop_.now();
    entry.delay = std::min(2 * entry.delay, kLongest);
    if (entry.due) entry.due = std::max(*entry.due, entry.last + entry.delay);
  }
}

}  // namespace vrdma::vrdmad
