// Runner's waiting.
#pragma once

#include <thread>

#include "tests/integrity/runner.h"

namespace integrity {

constexpr auto kPatience = std::chrono::seconds(30);

template <class Condition>
void Runner::wait(Condition condition, const char* what) {
  using Clock = std::chrono::steady_clock;
  auto since = Clock::now();
  uint64_t progress = device_->ledger().progress();
  for (unsigned idle = 0; !condition();) {
    idle = poll() ? 0 : idle + 1;
    if (idle % 64 == 63) look();
    if (idle > 200)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    else if (idle > 4)
      std::this_thread::yield();
    if (idle % 1024 != 1023) continue;
    if (const uint64_t now = device_->ledger().progress(); now != progress) {
      progress = now;
      since = Clock::now();
    }
    if (Clock::now() - since > kPatience)
      fail("%s: nothing happens any more: %s", what, device_->ledger().outstanding().c_str());
  }
}

}  // namespace integrity
