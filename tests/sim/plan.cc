#include "tests/sim/plan.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace vrdma::sim {

namespace {

struct Kind {
  Do what;
  uint64_t weight;
  const char* text;
};
constexpr std::array kKinds{
    Kind{Do::kCreate, 20, "create"},
    Kind{Do::kDelete, 9, "delete"},
    Kind{Do::kSetQuota, 8, "quota set"},
    Kind{Do::kSetLabels, 4, "vdev label"},
    Kind{Do::kSetBudget, 5, "budget set"},
    Kind{Do::kSetFabric, 5, "fabric set"},
    Kind{Do::kQuery, 4, "query"},
    Kind{Do::kConnect, 12, "a program connects"},
    Kind{Do::kEndProgram, 5, "a program ends"},
    Kind{Do::kAddress, 9, "an address comes or goes"},
    Kind{Do::kUpOrDown, 4, "a link goes up or down"},
    Kind{Do::kRename, 2, "a link is renamed"},
    Kind{Do::kMtu, 2, "an MTU changes"},
    Kind{Do::kNewLink, 4, "a link comes"},
    Kind{Do::kEndLink, 3, "a link ends"},
    Kind{Do::kNewNamespace, 4, "a namespace comes"},
    Kind{Do::kEndNamespace, 2, "a namespace ends"},
    Kind{Do::kHideNamespace, 4, "the name of a namespace goes or comes back"},
    Kind{Do::kStartContainer, 10, "a container starts"},
    Kind{Do::kEndProcess, 6, "a process ends"},
    Kind{Do::kKillWorker, 3, "a worker is killed"},
    Kind{Do::kStopWorker, 3, "a worker is stopped"},
    Kind{Do::kObstinateWorkers, 2, "workers refuse limits, or cease to"},
    Kind{Do::kSlowDisk, 3, "the disk gets slow or fast"},
    Kind{Do::kFullDisk, 4, "the disk is full or emptied"},
    Kind{Do::kRestart, 3, "vrdmad is restarted"},
    Kind{Do::kReboot, 2, "the host is booted again"},
    Kind{Do::kCrash, 4, "vrdmad crashes"},
    Kind{Do::kCheck, 6, "check"},
};

}  // namespace

// Each plan has a taste: some kinds come often in it, and some never, so that runs differ more than
// by chance alone. Most actions come shortly after another.
Plan make_plan(uint64_t seed) {
  Chance chance(seed * 2);
  std::vector<uint64_t> weights;
  for (const Kind& kind : kKinds) {
    const uint64_t taste = chance.below(8);
    weights.push_back(taste == 0 ? 0 : taste == 1 ? kind.weight * 4 : kind.weight);
  }
  weights[0] = std::max(weights[0], kKinds[0].weight);
  const uint64_t all = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
  Plan plan;
  base::Duration at{};
  for (;;) {
    const base::Duration longest = chance.one_in(4)   ? base::Duration(std::chrono::seconds(4))
                                   : chance.one_in(2) ? std::chrono::milliseconds(500)
                                                      : std::chrono::milliseconds(10);
    at += chance.up_to(longest);
    if (at > kRunTime) return plan;
    uint64_t of = chance.below(all);
    size_t i = 0;
    while (of >= weights[i]) of -= weights[i++];
    plan.push_back({at, kKinds[i].what, chance.below(UINT64_MAX)});
  }
}

const char* text_of(Do what) {
  return std::find_if(kKinds.begin(), kKinds.end(),
                      [&](const Kind& one) { return one.what == what; })
      ->text;
}

}  // namespace vrdma::sim
