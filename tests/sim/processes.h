// The simulated host's processes, as the daemon sees them, and what it does aside: both take a
// moment.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tests/sim/host.h"
#include "vrdmad/control/aside.h"
#include "vrdmad/control/processes.h"

namespace vrdma::sim {

class SimProcesses final : public vrdmad::Processes {
 public:
  explicit SimProcesses(Host& host) : host_(host) {
    host_.process_ended = [this](uint32_t pid) { tell_soon(pid); };
  }
  ~SimProcesses() override {
    host_.process_ended = [](uint32_t) {};
  }

  [[nodiscard]] const std::string& boot_id() const override { return host_.boot_id; }
  [[nodiscard]] base::Result<vrdmad::Owner> identify(const vrdmad::Owner& said) override;
  [[nodiscard]] base::Result<std::unique_ptr<Watch>> watch(const vrdmad::Owner& owner,
                                                           std::function<void()> ended) override;
  [[nodiscard]] base::Result<netns::RoutedNetdevs> netdevs(pid_t pid) const override;

  [[nodiscard]] bool settled() const { return *untold_ == 0; }

 private:
  class Held;
  struct Watched {
    uint32_t pid = 0;
    std::function<void()> ended;
  };
  using All = std::map<uint64_t, Watched>;

  void tell_soon(uint32_t pid);

  Host& host_;
  uint64_t next_ = 1;
  // What the agenda holds may run when this is gone.
  const std::shared_ptr<All> watched_ = std::make_shared<All>();
  const std::shared_ptr<int> untold_ = std::make_shared<int>(0);
};

class SimAside final : public vrdmad::Aside {
 public:
  explicit SimAside(Host& host) : host_(host) {}
  void run(std::function<void()> work) override;
  [[nodiscard]] bool at_rest() const { return !*works_; }

 private:
  Host& host_;
  const std::shared_ptr<bool> works_ = std::make_shared<bool>(false);
};

}  // namespace vrdma::sim
