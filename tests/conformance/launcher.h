// Runs the tests of a group, each in two processes of its own.
#pragma once

#include <cstdint>
#include <string>

namespace conformance {

constexpr int kFailed = 1;
constexpr int kSkipped = 77;
constexpr unsigned kTestSeconds = 240;  // for one test; nothing comes near it

struct LauncherOptions {
  std::string netns[2];  // names, of side a and side b
  std::string netdev = "eth0";
  std::string group;
  std::string only;   // name of one test; empty: all of the group
  unsigned uid = 0;   // whose rights the sides have
  uint64_t seed = 0;  // 0: a new one
};

// 0 if all passed or were skipped for a reason that they said, else 1.
int launch(const LauncherOptions& options);

}  // namespace conformance
