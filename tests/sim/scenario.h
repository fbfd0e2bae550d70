// A plan on the simulated host: carries out its actions, with the model beside the daemon.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/life.h"
#include "tests/sim/model.h"
#include "tests/sim/plan.h"

namespace vrdma::sim {

// Calls that wait, at most.
inline constexpr int kCallsAtOnce = 4;
// One may wait for a worker that is stopped, twice, and for two commits of a slow disk.
inline constexpr auto kLongestCall = std::chrono::seconds(20);

class Scenario {
 public:
  // `directory`: an empty one.
  Scenario(uint64_t seed, const std::string& directory) : machine_(seed, directory) {}

  // Throws Failure. `trace`: gets a line for each thing that happens.
  void run(const Plan& plan, std::vector<std::string>* trace);

 private:
  // vrdmad ends in the middle of what is on the stack.
  struct End {
    bool crash = false, reboot = false;
  };

  void act(const Action& action);
  void create(Chance& chance);
  void remove(Chance& chance);
  void set_quota(Chance& chance);
  void set_labels(Chance& chance);
  void set_budget(Chance& chance);
  void set_fabric(Chance& chance);
  void query(Chance& chance);
  void connect(Chance& chance);
  void change_address(Chance& chance);
  void new_link(Chance& chance);
  void start_container(Chance& chance);
  void call_hook(uint32_t pid, Chance& chance);
  void call_hook_again(uint32_t pid, uint64_t seed);
  void end_process(uint32_t pid);
  void end_link(Chance& chance);
  void new_namespace(Chance& chance);
  void end_namespace(Chance& chance);
  void check(Chance& chance, int patience);
  void live(base::TimePoint until);
  void start();
  void end(End how);
  void recover();
  void reboot();

  [[nodiscard]] netns::Link* any_link(Chance& chance);
  [[nodiscard]] std::optional<uint64_t> any_vdevice(Chance& chance);
  void add_link(Namespace* to, const std::string& name, Chance& chance);
  void say(const std::string& what);
  // A call of an operator. `is_change`: one that waits for others of its kind.
  template <class Call>
  auto call(const std::string& what, bool is_change, Call make) -> decltype(make());

  Machine machine_;
  Model model_;
  std::unique_ptr<Life> life_;
  bool stopping_ = false;
  int calls_ = 0;            // that wait
  bool changing_ = false;    // one of them is a change
  base::Duration within_{};  // of calls that are within the present one
  std::vector<std::string>* trace_ = nullptr;
  base::TimePoint begun_{};
};

template <class Call>
auto Scenario::call(const std::string& what, bool is_change, Call make) -> decltype(make()) {
  say(what);
  struct Mark {
    Mark(Scenario& its, bool change) : scenario(its), is_change(change) {
      ++scenario.calls_;
      if (is_change) scenario.changing_ = true;
    }
    ~Mark() {
      --scenario.calls_;
      if (is_change) scenario.changing_ = false;
    }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    Scenario& scenario;
    const bool is_change;
  };
  const auto begun = machine_.host.time.now();
  const auto outer = std::exchange(within_, base::Duration(0));
  auto result = [&] {
    const Mark mark(*this, is_change);
    return make();
  }();
  const base::Duration took = machine_.host.time.now() - begun;
  if (took - within_ > kLongestCall) throw Failure("not answered in time: " + what);
  within_ = outer + took;
  if constexpr (requires { result.error(); })
    say((result ? "done: " : result.error().message() + ": ") + what);
  return result;
}

}  // namespace vrdma::sim
