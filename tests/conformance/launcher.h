// Runs the tests of a group, each in two new processes.
#pragma once

#include <cstdint>
#include <string>

namespace conformance {

constexpr int kFailed = 1;
constexpr int kSkipped = 77;
constexpr unsigned kTestSeconds = 240;  // for one test; far more than any needs

struct LauncherOptions {
  std::string netns[2];  // names, of side a and side b
  std::string netdev = "eth0";
  std::string group;
  std::string only;    // name of one test; empty: the whole group
  unsigned uid = 0;    // user of the sides
  bool apart = false;  // the sides are in two fabrics, as on two hosts
  uint64_t seed = 0;   // 0: a random one
};

// 0 if all passed or were skipped with a reason, else 1.
int launch(const LauncherOptions& options);

}  // namespace conformance
