#include "vrdmad/records/session_search.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "vrdmad/records/process_files.h"

namespace vrdma::vrdmad {

SessionSearch::SessionSearch(Broker& broker, const std::vector<Wanted>& wanted)
    : broker_(broker), wanted_(wanted), found_(wanted.size()), left_(ProcessFiles::kSearchTime) {
  std::map<pid_t, size_t> numbers;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto [it, is_new] = numbers.try_emplace(wanted[i].process.pid, processes_.size());
    if (is_new) processes_.emplace_back();
    processes_[it->second].push_back(i);
  }
  const std::lock_guard lock(mutex_);
  // What no thread finds is found by take().
  while (processes_.size() > 1 && running_ < std::min<size_t>(kThreads, processes_.size())) {
    try {
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      break;
    }
    ++running_;
  }
}

SessionSearch::~SessionSearch() {
  for (std::thread& thread : threads_) thread.join();
}

SessionSearch::Budget& SessionSearch::budget_of(size_t index) {
  return budgets_.try_emplace(wanted_[index].vdevice, Budget{ProcessFiles::kSearchTime})
      .first->second;
}

// `lock` is released meanwhile, and the time is reserved.
SessionSearch::Result SessionSearch::find(size_t index, base::Duration share,
                                          std::unique_lock<std::mutex>& lock) {
  const Wanted& wanted = wanted_[index];
  Budget& budget = budget_of(index);
  const std::shared_ptr<Caller> earlier = callers_[wanted.process.pid];
  base::Duration used{};
  budget.left -= share;
  lock.unlock();
  auto found = broker_.find(wanted.process, wanted.socket, wanted.recipient,
                            {wanted.files, share, &used, earlier.get()});
  lock.lock();
  budget.left += share - used;
  budget.used += used;
  if (found) callers_[wanted.process.pid] = found->caller;
  return found;
}

void SessionSearch::run() {
  ::pthread_setname_np(::pthread_self(), "takeover");
  std::unique_lock lock(mutex_);
  while (next_process_ < processes_.size()) {
    for (const size_t index : processes_[next_process_++]) {
      Budget& budget = budget_of(index);
      if (budget.alone || budget.left < kShare) continue;
      auto found = find(index, kShare, lock);
      if (!found && found.error().code() == EMFILE)
        budget.alone = true;
      else
        found_[index] = std::move(found);
      changed_.notify_one();
    }
  }
  --running_;
  changed_.notify_one();
}

SessionSearch::Result SessionSearch::take(size_t index) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return found_[index] || running_ == 0; });
  if (!found_[index]) {
    Budget& budget = budget_of(index);
    const base::Duration before = budget.used, share = std::min(budget.left, left_);
    const bool is_cut = share < budget.left;
    Result late = find(index, share, lock);
    left_ -= budget.used - before;
    if (!late && late.error().code() == EMFILE && is_cut)
      return base::fail(EAGAIN, "other processes with many descriptors were searched first");
    return late;
  }
  Result found = std::move(*found_[index]);
  found_[index].reset();
  return found;
}

std::map<uint64_t, base::Duration> SessionSearch::used() {
  const std::lock_guard lock(mutex_);
  std::map<uint64_t, base::Duration> all;
  for (const auto& [vdevice, budget] : budgets_) all[vdevice] = budget.used;
  return all;
}

}  // namespace vrdma::vrdmad
