#include "core/base/log.h"

#include <cstdio>
#include <mutex>
#include <utility>

#include "core/base/token_bucket.h"

namespace vrdma::base {

namespace {

std::function<void(LogLevel, const std::string&)>& sink() {
  static std::function<void(LogLevel, const std::string&)> all;
  return all;
}

struct Limit {
  const Clock* clock = nullptr;  // null: there is no limit
  std::mutex mutex;              // guards the members below
  TokenBucket bucket;
  uint64_t left_out = 0;
};
Limit& limit() {
  static Limit all;
  return all;
}

void write(LogLevel level, const std::string& sentence) {
  if (const auto& to = sink()) return to(level, sentence);
  (void)std::fprintf(stderr, "%s\n", sentence.c_str());
}

}  // namespace

void log(LogLevel level, const std::string& sentence) {
  Limit& its = limit();
  uint64_t left_out = 0;
  if (its.clock != nullptr) {
    const std::lock_guard lock(its.mutex);
    if (!its.bucket.take(its.clock->now())) {
      ++its.left_out;
      return;
    }
    left_out = std::exchange(its.left_out, 0);
  }
  if (left_out > 0)
    write(LogLevel::kWarning, std::to_string(left_out) +
                                  " sentences were left out, because they "
                                  "came too fast");
  write(level, sentence);
}

void set_log(std::function<void(LogLevel, const std::string&)> to) { sink() = std::move(to); }

void limit_log(uint64_t a_second, const Clock& clock) {
  Limit& its = limit();
  its.clock = a_second > 0 ? &clock : nullptr;
  its.bucket.set(a_second, a_second);
  its.left_out = 0;
}

}  // namespace vrdma::base
