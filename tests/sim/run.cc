// vrdma_sim: what vrdmad decides, on a simulated host, for many seeds. See README.md.
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/scenario.h"

namespace {

using vrdma::sim::Failure;
using vrdma::sim::Plan;

// Removed with its content. In memory, where that is possible: the simulated disk has its own time.
class Directory {
 public:
  Directory() {
    const char* const memory = "/dev/shm";
    std::string name = ::access(memory, W_OK) == 0
                           ? std::string(memory)
                           : std::filesystem::temp_directory_path().string();
    name += "/sim-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The sentence of what failed; empty: nothing.
std::string run(uint64_t seed, const Plan& plan, std::vector<std::string>* trace) {
  const Directory directory;
  try {
    vrdma::sim::Scenario scenario(seed, directory.path());
    scenario.run(plan, trace);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return {};
}

// Leaves out parts of the plan, first halves and then less and less, as long as something fails:
// not always the same.
Plan smaller(uint64_t seed, Plan plan) {
  for (size_t part = plan.size() / 2; part > 0; part /= 2)
    for (size_t at = 0; at < plan.size();) {
      Plan without = plan;
      const auto from = without.begin() + static_cast<ptrdiff_t>(at);
      without.erase(from, from + static_cast<ptrdiff_t>(std::min(part, without.size() - at)));
      if (run(seed, without, nullptr).empty())
        at += part;
      else
        plan = std::move(without);
    }
  return plan;
}

int show(uint64_t seed, const Plan& plan) {
  std::vector<std::string> trace;
  const std::string failure = run(seed, plan, &trace);
  for (const auto& line : trace) std::puts(line.c_str());
  std::printf("seed %lu: %s\n", seed, failure.empty() ? "nothing has failed" : failure.c_str());
  return failure.empty() ? 0 : 1;
}

// Every `step`th seed. Returns the exit status.
int run_all(uint64_t first, uint64_t count, uint64_t step, bool keep_going) {
  int status = 0;
  for (uint64_t seed = first; seed < first + count; seed += step) {
    const Plan plan = vrdma::sim::make_plan(seed);
    const std::string failure = run(seed, plan, nullptr);
    if (failure.empty()) continue;
    std::printf("seed %lu fails: %s\n", seed, failure.c_str());
    status = 1;
    if (keep_going) continue;
    const Plan less = smaller(seed, plan);
    std::printf("%zu of its %zu actions are needed:\n", less.size(), plan.size());
    (void)show(seed, less);
    return status;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs vrdmad's decisions on a simulated host.");
  uint64_t first = 1, count = 1000;
  unsigned processes = 1;
  std::optional<uint64_t> seed;
  std::vector<uint64_t> also;
  bool log = false, all = false, small = false;
  app.add_option("--first", first, "the first seed");
  app.add_option("--seeds", count, "how many seeds");
  app.add_option("--also", also, "these seeds, too");
  app.add_option("--processes", processes, "that share them");
  app.add_option("--seed", seed, "one seed, with its trace");
  app.add_flag("--smaller", small, "with --seed: the smallest plan that fails");
  app.add_flag("--log", log, "with --seed: vrdmad's log, too");
  app.add_flag("--keep-going", all, "name all seeds that fail");
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(log ? spdlog::level::info : spdlog::level::off);
  if (seed) {
    Plan plan = vrdma::sim::make_plan(*seed);
    if (small) plan = smaller(*seed, std::move(plan));
    return show(*seed, plan);
  }
  const auto begun = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  for (unsigned i = 0; i + 1 < processes; ++i) {
    const pid_t child = ::fork();
    if (child < 0) std::abort();
    if (child == 0) {
      const int status = run_all(first + i, count - i, processes, all);
      std::fflush(stdout);
      ::_exit(status);
    }
    children.push_back(child);
  }
  int status = run_all(first + processes - 1, count - processes + 1, processes, all);
  for (const uint64_t one : also) status |= run_all(one, 1, 1, all);
  for (const pid_t child : children) {
    int how = 0;
    if (::waitpid(child, &how, 0) != child || !WIFEXITED(how) || WEXITSTATUS(how) != 0) status = 1;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  std::printf("%lu seeds, %.0f seconds of virtual time each, in %.1f s: %s\n", count,
              std::chrono::duration<double>(vrdma::sim::kRunTime).count(), took.count(),
              status == 0 ? "nothing has failed" : "some have failed");
  return status;
}
