// The simulated disk: writes the changes of a ChangeQueue to a Store, when its time has come.
#pragma once

#include <memory>

#include "tests/sim/host.h"
#include "vrdmad/control/change_queue.h"
#include "vrdmad/control/store_thread.h"

namespace vrdma::sim {

// Of the machine, so that it is as bad for the next daemon.
struct DiskMood {
  base::Duration longest = std::chrono::milliseconds(5);  // that a commit takes
  bool full = false;                                      // deletions alone succeed, as of Store
};

class SimWriter final : public vrdmad::Writer {
 public:
  SimWriter(Host& host, vrdmad::Store& store, const DiskMood& mood)
      : state_(std::make_shared<State>(State{host, store, mood})) {}
  ~SimWriter() override;

  [[nodiscard]] std::future<base::Result<void>> write(vrdmad::Store::Change change) override;
  void write_later(vrdmad::Store::Change change) override;
  // Instead of what the destructor does: what is not on disk is lost.
  void crash() { state_->ends = state_->crashed = true; }
  [[nodiscard]] bool at_rest() const { return !state_->queue.due() && !state_->busy; }

 private:
  struct State {
    Host& host;
    vrdmad::Store& store;
    const DiskMood& mood;
    vrdmad::ChangeQueue queue{};
    bool busy = false, ends = false, crashed = false;
    [[nodiscard]] std::vector<base::Result<void>> commit(
        const std::vector<vrdmad::Store::Change>& changes) const;
  };
  static void go_on(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace vrdma::sim
