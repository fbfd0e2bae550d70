// What happens in a run: actions of operators, tenants and accidents, each with its time and with
// numbers of its own, so that any of them can be left out.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/host.h"

namespace vrdma::sim {

enum class Do : uint8_t {
  // of operators
  kCreate,
  kDelete,
  kSetQuota,
  kSetLabels,
  kSetBudget,
  kSetFabric,
  kQuery,  // counters, queue pairs
  // of tenants
  kConnect,  // a program
  kEndProgram,
  kAddress,
  kUpOrDown,
  kRename,
  kMtu,
  kNewLink,
  kEndLink,
  kNewNamespace,
  kEndNamespace,
  kHideNamespace,  // its name goes, or comes back
  kStartContainer,
  kEndProcess,  // of a container, or an owner
  // accidents
  kKillWorker,
  kStopWorker,
  kObstinateWorkers,  // refuse limits, or cease to
  kSlowDisk,          // or fast again
  kFullDisk,          // or emptied
  kRestart,           // vrdmad stops and starts
  kCrash,             // the same without the first
  kReboot,            // of the host
  // what must hold, as soon as nothing is on its way
  kCheck,
};

struct Action {
  base::Duration at{};  // since the begin
  Do what{};
  uint64_t seed = 0;
};
using Plan = std::vector<Action>;

inline constexpr auto kRunTime = std::chrono::seconds(60);

[[nodiscard]] Plan make_plan(uint64_t seed);
[[nodiscard]] const char* text_of(Do what);

}  // namespace vrdma::sim
