#include "cli/kubernetes/dra/claim_keeper.h"

#include <algorithm>
#include <chrono>

#include "core/base/log.h"

namespace vrdma::cli::kubernetes {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAgain = std::chrono::seconds(1);  // after a failure; doubled for the API server
constexpr auto kLongest = std::chrono::seconds(60);
constexpr auto kInterval = std::chrono::minutes(10);

}  // namespace

ClaimKeeper::ClaimKeeper(Claims& claims) : claims_(claims), thread_([this] { run(); }) {}

ClaimKeeper::~ClaimKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ClaimKeeper::files_changed() {
  const std::lock_guard lock(mutex_);
  files_due_ = true;
  changed_.notify_one();
}

void ClaimKeeper::yield(bool yields) {
  const std::lock_guard lock(mutex_);
  yields_ = yields;
}

std::string ClaimKeeper::trouble() {
  const std::lock_guard lock(mutex_);
  return files_trouble_.empty() ? claims_trouble_ : files_trouble_;
}

// Logs what is new.
void ClaimKeeper::told(std::string& before, const base::Result<void>& result) {
  std::string now = result ? "" : result.error().message();
  const std::lock_guard lock(mutex_);
  if (now == before) return;
  before = std::move(now);
  if (!before.empty()) base::log_warning("claims: " + before);
}

void ClaimKeeper::run() {
  auto files_next = Clock::now(), claims_next = files_next;
  std::chrono::nanoseconds pause = kAgain;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const auto now = Clock::now();
    if (files_due_ && now >= files_next) {
      files_due_ = false;
      lock.unlock();
      const auto done = claims_.restore();
      told(files_trouble_, done);
      lock.lock();
      files_next = Clock::now() + (done ? std::chrono::seconds(0) : kAgain);
      files_due_ |= !done;
      continue;
    }
    if (!yields_ && now >= claims_next) {
      lock.unlock();
      const auto done = claims_.reconcile();
      told(claims_trouble_, done);
      lock.lock();
      claims_next = Clock::now() + (done ? std::chrono::nanoseconds(kInterval) : pause);
      pause = done ? std::chrono::nanoseconds(kAgain)
                   : std::min<std::chrono::nanoseconds>(2 * pause, kLongest);
      continue;
    }
    // While it yields, it looks once a second whether it still does.
    auto until = yields_ ? now + kAgain : claims_next;
    if (files_due_) until = std::min(until, files_next);
    changed_.wait_until(lock, until);
  }
}

}  // namespace vrdma::cli::kubernetes
